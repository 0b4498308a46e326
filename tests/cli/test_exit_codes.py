"""Exit statuses and what goes to which stream, as the public interface promises them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from qvl_doctor import __version__
from tests.cli.harness import (
    COMMAND,
    FAILED_LOG,
    FAILED_RULE,
    HEALTHY_LOG,
    SECONDS,
    WRONG_COMMAND,
    doctor,
    doctor_argv,
    environment,
)

COMMANDS = ["diagnose", "fix", "rules", "flags"]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(FAILED_LOG)
    return str(path)


def test_version_is_a_line_on_stdout() -> None:
    outcome = doctor("--version")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.strip().endswith(__version__)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    outcome = doctor(command, "--help")
    assert outcome.code == 0
    assert f"qvl-doctor {command}" in outcome.out
    assert "xample" in outcome.out


def test_help_names_every_command() -> None:
    outcome = doctor("--help")
    assert outcome.code == 0
    assert all(command in outcome.out for command in COMMANDS)


def test_a_fault_is_status_1_and_names_its_line(log: str) -> None:
    outcome = doctor("diagnose", "--log", log, "--command", COMMAND)
    assert outcome.code == 1
    assert FAILED_RULE in outcome.out
    assert "server.log:8" in outcome.out
    assert "--max-model-len" in outcome.out


def test_a_healthy_log_is_status_0(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(HEALTHY_LOG)
    outcome = doctor("diagnose", "--log", "server.log", "--json", cwd=tmp_path)
    assert outcome.code == 0, outcome
    assert outcome.document["server"]["state"] == "ready"
    assert not [finding for finding in outcome.document["findings"] if not finding["risk"]]


def test_a_risk_alone_is_status_0() -> None:
    open_address = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --max-model-len 16384 --host 0.0.0.0"
    outcome = doctor("diagnose", "--command", open_address, "--vllm-version", "0.25.1", "--json")
    assert outcome.code == 0, outcome
    risks = [finding["rule"] for finding in outcome.document["findings"] if finding["risk"]]
    assert "api-open-without-key" in risks


def test_a_wrong_flag_is_status_1() -> None:
    outcome = doctor("diagnose", "--command", WRONG_COMMAND, "--vllm-version", "0.25.1", "--json")
    assert outcome.code == 1, outcome
    assert outcome.rules[0] == "flag-never-existed"
    edits = [(edit["op"], edit["name"]) for edit in outcome.document["findings"][0]["edits"]]
    assert ("unset", "--enable-mm-token-trim") in edits


def test_the_log_may_come_from_stdin() -> None:
    outcome = doctor("diagnose", "--log", "-", "--json", stdin=FAILED_LOG)
    assert (outcome.code, outcome.rules[0]) == (1, FAILED_RULE)


def test_json_is_one_document_and_nothing_else(log: str) -> None:
    outcome = doctor("diagnose", "--log", log, "--command", COMMAND, "--json")
    document = outcome.document
    assert outcome.err == ""
    assert document["schema"] == "qvl-doctor/diagnosis/1"
    assert set(document) >= {"schema", "server", "findings", "command", "plan"}
    assert set(document["server"]) >= {"vllm_version", "version_from", "model", "state"}
    assert document["server"]["vllm_version"] == "0.25.1"
    assert document["server"]["version_from"] == "log"
    assert document["server"]["state"] == "failed"
    finding = document["findings"][0]
    assert set(finding) >= {"rule", "severity", "confidence", "risk", "title", "explanation", "evidence", "edits"}
    evidence = finding["evidence"][0]
    assert (evidence["source"], evidence["where"]) == ("log", "server.log:8")
    assert "70880" in evidence["text"]
    assert set(document["command"]) >= {"before", "after", "changed"}
    assert document["command"]["before"] == COMMAND
    assert document["command"]["changed"] is (document["command"]["after"] != COMMAND)


def test_json_parses_for_every_command(log: str) -> None:
    for words in (
        ["fix", "--log", log, "--command", COMMAND],
        ["rules", "list"],
        ["rules", "show", FAILED_RULE],
        ["flags", "--vllm-version", "0.11.2"],
        ["flags", "--limit-mm-per-prompt"],
    ):
        outcome = doctor(*words, "--json")
        assert outcome.code in {0, 1}, (words, outcome)
        json.loads(outcome.out)


def test_fix_prints_a_command_without_the_wrong_flag() -> None:
    outcome = doctor("fix", "--command", WRONG_COMMAND, "--vllm-version", "0.11.2", "--json")
    after = outcome.document["commands"][0]["after"]
    assert "--enable-mm-token-trim" not in after
    assert "vllm serve Qwen/Qwen2.5-VL-7B-Instruct" in after
    assert "--host 127.0.0.1" in after
    again = doctor("fix", "--command", after, "--vllm-version", "0.11.2", "--json")
    assert again.code == 0
    assert again.document["commands"][0]["after"] == after


def test_nothing_to_look_at_is_wrong_usage() -> None:
    outcome = doctor("diagnose")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "--log" in outcome.err


def test_no_command_is_wrong_usage() -> None:
    outcome = doctor()
    assert (outcome.code, outcome.out) == (2, "")
    assert "--help" in outcome.err


def test_an_interrupt_is_status_130_without_a_traceback() -> None:
    # More than a pipe holds: once it is written, the process is reading, and it will wait for the rest.
    line = b"INFO 11-30 17:44:27 [x.py:1] still loading\n"
    with subprocess.Popen(
        doctor_argv("diagnose", "--log", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        # a suite that runs in the background of a shell inherits SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (no threads here)
    ) as process:
        assert process.stdin is not None
        process.stdin.write(line * (200_000 // len(line)))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_closed_pipe_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)  # as `| head -1` does, only surely before the first byte
    try:
        done = subprocess.run(
            doctor_argv("rules", "list"),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(theirs)
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_one_line_not_a_traceback() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            doctor_argv("rules", "list"),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode not in {0, 1}
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
