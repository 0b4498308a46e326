"""A user's mistakes: one plain line on stderr, exit status 2, never a traceback."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import (
    COMMAND,
    FAILED_LOG,
    FAILED_RULE,
    SECONDS,
    Outcome,
    assert_plain,
    assert_user_error,
    doctor,
    environment,
)


def test_missing_log(tmp_path: Path) -> None:
    assert_user_error(doctor("diagnose", "--log", "nowhere.log", cwd=tmp_path), "nowhere.log")


def test_missing_command_file(tmp_path: Path) -> None:
    assert_user_error(doctor("diagnose", "--command-file", "nowhere.sh", cwd=tmp_path), "nowhere.sh")


def test_missing_facts_file(tmp_path: Path) -> None:
    assert_user_error(doctor("diagnose", "--command", COMMAND, "--facts", "no.json", cwd=tmp_path), "no.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files of any mode")
def test_log_without_permission(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(FAILED_LOG)
    (tmp_path / "server.log").chmod(0)
    assert_user_error(doctor("diagnose", "--log", "server.log", cwd=tmp_path), "server.log")


@pytest.mark.parametrize("option", ["--log", "--command-file", "--facts"])
def test_a_directory_is_no_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "folder").mkdir()
    extra = ["--command", COMMAND] if option == "--facts" else []
    assert_user_error(doctor("diagnose", option, "folder", *extra, cwd=tmp_path), "folder")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"], ids=["no byte", "blank lines"])
def test_empty_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "server.log").write_bytes(content)
    assert_user_error(doctor("diagnose", "--log", "server.log", cwd=tmp_path), "server.log")


def test_empty_stdin_as_log() -> None:
    assert_user_error(doctor("diagnose", "--log", "-", stdin=b""))


@pytest.mark.parametrize(
    "content",
    [gzip.compress(FAILED_LOG.encode(), mtime=0), b"\x7fELF\x02\x01\x01" + bytes(4096), bytes(range(256)) * 40],
    ids=["gzip", "program", "every byte"],
)
def test_binary_log(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "server.log").write_bytes(content)
    assert_user_error(doctor("diagnose", "--log", "server.log", cwd=tmp_path), "server.log")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device of Unix")
@pytest.mark.parametrize("option", ["--log", "--command-file"])
def test_an_endless_device_is_given_up_soon(option: str) -> None:
    assert_user_error(doctor("diagnose", option, "/dev/zero"), "/dev/zero")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file of Linux that opens and cannot be read")
@pytest.mark.parametrize("option", ["--log", "--command-file"])
def test_a_read_that_fails_halfway(option: str) -> None:
    assert_user_error(doctor("diagnose", option, "/proc/self/mem"), "/proc/self/mem")


def test_standard_input_is_read_once() -> None:
    assert_user_error(doctor("diagnose", "--log", "-", "--command-file", "-", stdin=FAILED_LOG), "input")


def test_standard_input_may_be_closed() -> None:
    program = (
        'import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, "-m", "qvl_doctor", *sys.argv[1:]])'
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "diagnose", "--log", "-"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    assert_user_error(Outcome(done.returncode, done.stdout, done.stderr), "input")


def test_a_dockerfile_whose_entry_point_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text('FROM vllm/vllm-openai:v0.10.1\nENTRYPOINT [vllm\nCMD ["--model", "/model"]\n')
    outcome = doctor("diagnose", "--command-file", "Dockerfile", "--json", cwd=tmp_path)
    assert outcome.document["server"]["model"] == "/model"


def test_a_command_file_cut_off_within_a_character(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(COMMAND.encode("utf-16")[:-1])
    outcome = doctor("diagnose", "--command-file", "run.sh", "--json", cwd=tmp_path)
    assert outcome.code in {0, 1}
    assert outcome.document["server"]["model"] == "Qwen/Qwen2.5-VL-7B-Instruct"


def test_the_raw_stream_of_dockers_socket_is_no_binary_file(tmp_path: Path) -> None:
    lines = FAILED_LOG.encode().splitlines(keepends=True)
    framed = b"".join(b"\x02\0\0\0" + len(line).to_bytes(4, "big") + line for line in lines)
    (tmp_path / "server.log").write_bytes(framed)
    outcome = doctor("diagnose", "--log", "server.log", "--json", cwd=tmp_path)
    assert (outcome.code, outcome.rules[0]) == (1, FAILED_RULE)


def test_a_log_with_some_undecodable_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"INFO 11-30 17:55:47 [x.py:1] caf\xe9 \xff\xfe\n" + FAILED_LOG.encode())
    outcome = doctor("diagnose", "--log", "server.log", "--json", cwd=tmp_path)
    assert (outcome.code, outcome.rules[0]) == (1, FAILED_RULE)
    assert outcome.document["findings"][0]["evidence"][0]["where"] == "server.log:9"


@pytest.mark.parametrize("text", ["ls -la /", "", "   ", "python train.py --lr 1e-4", "'"])
def test_a_command_that_starts_no_vllm(text: str) -> None:
    assert_user_error(doctor("diagnose", "--command", text))


def test_a_file_that_starts_no_vllm(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho hello\n")
    assert_user_error(doctor("diagnose", "--command-file", "run.sh", cwd=tmp_path), "run.sh")


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[1, 2]", "null", '{"gpus": 3}', '{"gpus": [{"name": 5, "memory_total_mib": "much"}]}'),
        *("[" * 100_000, "1" * 5000),
    ],
    ids=[
        *("empty", "cut off", "a list", "null", "gpus a number", "a GPU of wrong types"),
        *("deeply nested", "thousands of digits"),
    ],
)
def test_facts_of_a_wrong_form(tmp_path: Path, content: str) -> None:
    (tmp_path / "facts.json").write_text(content)
    outcome = doctor("diagnose", "--command", COMMAND, "--facts", "facts.json", cwd=tmp_path)
    assert_user_error(outcome, "facts.json")


def test_facts_with_undecodable_text(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_bytes(b'{"os": "li\xff\xfenux", "env": {"A": "\xff"}, "\xff": 1}')
    for form in ([], ["--json"]):
        outcome = doctor("diagnose", "--command", COMMAND, "--facts", "facts.json", *form, cwd=tmp_path)
        assert outcome.code in {0, 1}, outcome


def test_facts_with_unknown_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text('{"shm_bytes": 67108864, "of_a_later_release": {"x": [1]}}')
    outcome = doctor("diagnose", "--command", COMMAND, "--facts", "facts.json", "--json", cwd=tmp_path)
    assert outcome.code in {0, 1}, outcome


@pytest.mark.parametrize(("option", "text"), [("--gpu", "a toaster"), ("--vllm-version", "0.x")])
def test_a_gpu_or_version_that_is_none_is_named_and_never_a_crash(option: str, text: str) -> None:
    outcome = doctor("diagnose", "--command", COMMAND, option, text)
    assert outcome.code in {0, 1, 2}
    assert "Traceback" not in outcome.err
    assert text in outcome.err + outcome.out


def test_unknown_rule() -> None:
    assert_user_error(doctor("rules", "show", "no-such-rule"), "no-such-rule")


def test_unknown_flag() -> None:
    assert_user_error(doctor("flags", "--no-such-flag-anywhere"), "--no-such-flag-anywhere")


@pytest.mark.parametrize(
    "words", [["rules", "list", "--no-such-option"], ["diagnose", "--no-such-option"], ["no-such-command"]]
)
def test_wrong_words_are_named(words: list[str]) -> None:
    assert_user_error(doctor(*words), words[-1])


def test_options_are_never_guessed_from_their_beginning(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(FAILED_LOG)
    outcome = doctor("diagnose", "--lo", "server.log", cwd=tmp_path)
    assert outcome.code == 2


def test_a_broken_rule_file_of_the_user_names_file_and_fault(tmp_path: Path) -> None:
    rules = tmp_path / "mine"
    rules.mkdir()
    (rules / "half-a-rule.toml").write_text('schema = 1\nid = "half-a-rule"\nseverity = "loud"\n')
    outcome = doctor("rules", "test", "mine", cwd=tmp_path)
    assert outcome.code in {1, 2}
    assert "Traceback" not in outcome.err
    assert "half-a-rule" in outcome.out + outcome.err
    assert "severity" in outcome.out + outcome.err


def test_control_characters_of_a_path_stay_out_of_the_message(tmp_path: Path) -> None:
    outcome = doctor("diagnose", "--log", "no\x1b]0;owned\x07\x1b[31mwhere.log", cwd=tmp_path)
    assert_user_error(outcome, "where.log")
    assert_plain(outcome.err)


def test_undecodable_arguments(tmp_path: Path) -> None:
    outcome = doctor("diagnose", "--log", os.fsdecode(b"no\xff\xfewhere.log"), cwd=tmp_path)
    assert_user_error(outcome, "where.log")


@pytest.mark.parametrize("fate", ["gone", "undecodable"])
@pytest.mark.parametrize("words", [["diagnose", "--command", COMMAND], ["rules", "list"]])
def test_the_current_folder_may_be_gone_or_have_any_name(tmp_path: Path, words: list[str], fate: str) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    start = "import os, sys; os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); "
    leave = "os.rmdir(sys.argv[1]); " if fate == "gone" else ""
    run = 'os.execv(sys.executable, [sys.executable, "-m", "qvl_doctor", *sys.argv[2:]])'
    done = subprocess.run(
        [sys.executable, "-c", start + leave + run, folder, *words],
        capture_output=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout
    assert not done.stderr
