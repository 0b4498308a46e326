"""What reaches the reader: language, colour, nothing hostile, no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.harness import (
    COMMAND,
    FAILED_LOG,
    FAILED_RULE,
    WRONG_COMMAND,
    assert_plain,
    doctor,
    on_terminal,
)

CHINESE = re.compile("[\u4e00-\u9fff]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\x08"


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(FAILED_LOG)
    return str(path)


def test_chinese_on_request(log: str) -> None:
    english = doctor("diagnose", "--log", log)
    chinese = doctor("diagnose", "--log", log, "--lang", "zh")
    assert not CHINESE.search(english.out)
    assert CHINESE.search(chinese.out)
    assert FAILED_RULE in chinese.out
    assert english.code == chinese.code == 1


@pytest.mark.parametrize(
    ("variables", "chinese"),
    [
        ({"LC_ALL": "zh_CN.UTF-8"}, True),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "zh_TW.UTF-8"}, True),
        ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, False),
        ({"LC_ALL": "", "LANG": ""}, False),
    ],
)
def test_language_of_the_locale(log: str, variables: dict[str, str], chinese: bool) -> None:
    outcome = doctor("diagnose", "--log", log, "--json", env={"PYTHONUTF8": "1"} | variables)
    assert bool(CHINESE.search(outcome.document["findings"][0]["title"])) is chinese


def test_chinese_under_an_ascii_locale_is_no_crash(log: str) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    outcome = doctor("diagnose", "--log", log, "--lang", "zh", env=ascii_only)
    assert outcome.code == 1, outcome
    assert "Traceback" not in outcome.err


def test_no_colour_in_a_pipe(log: str) -> None:
    outcome = doctor("diagnose", "--log", log, "--command", COMMAND, env={"TERM": "xterm-256color"})
    assert_plain(outcome.out)


def test_colour_on_a_terminal_unless_refused(log: str) -> None:
    code, coloured = on_terminal("diagnose", "--log", log)
    assert code == 1
    assert COLOUR.search(coloured)
    _, plain = on_terminal("diagnose", "--log", log, env={"NO_COLOR": "1"})
    assert not COLOUR.search(plain)
    assert COLOUR.sub(b"", coloured) == plain


def test_json_on_a_terminal_has_no_colour(log: str) -> None:
    _, received = on_terminal("diagnose", "--log", log, "--json")
    assert not COLOUR.search(received)


def hostile_log() -> str:
    """The failed start with control characters inside the very line that proves the cause."""
    return FAILED_LOG.replace("estimated maximum", f"estimated {HOSTILE}maximum").replace(
        "Using max model len", f"{HOSTILE}Using max model len"
    )


def test_escape_sequences_of_a_log_never_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(hostile_log(), newline="")
    outcome = doctor("diagnose", "--log", "server.log", cwd=tmp_path)
    assert outcome.code == 1
    assert_plain(outcome.out + outcome.err)
    _, received = on_terminal("diagnose", "--log", str(tmp_path / "server.log"))
    assert b"owned\x07" not in received
    assert b"\x1b]" not in received
    assert b"\x1b[2J" not in received


def test_escape_sequences_of_names_never_reach_the_terminal(tmp_path: Path) -> None:
    name = "server\x1b]0;owned\x07\x1b[31m.log"
    (tmp_path / name).write_text(FAILED_LOG)
    outcome = doctor("diagnose", "--log", name, cwd=tmp_path)
    assert outcome.code == 1
    assert_plain(outcome.out + outcome.err)


def test_escape_sequences_of_a_command_files_name_never_reach_the_terminal(tmp_path: Path) -> None:
    name = "run\x1b]0;owned\x07\x1b[31m.sh"
    (tmp_path / name).write_text(f"#!/bin/sh\n{WRONG_COMMAND}\n{WRONG_COMMAND} --port 8001\n")
    for command in ("diagnose", "fix"):
        outcome = doctor(command, "--command-file", name, cwd=tmp_path)
        assert outcome.code == 1
        assert_plain(outcome.out + outcome.err)


def test_escape_sequences_of_a_command_never_reach_the_terminal() -> None:
    outcome = doctor("diagnose", "--command", WRONG_COMMAND + " --served-model-name 'a\x1b]0;owned\x07\x1b[31mb'")
    assert outcome.code == 1
    assert_plain(outcome.out + outcome.err)


def test_json_holds_no_control_characters_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(hostile_log(), newline="")
    document = doctor("diagnose", "--log", "server.log", "--json", cwd=tmp_path).document
    for finding in document["findings"]:
        for text in (finding["title"], finding["explanation"], *(item["text"] for item in finding["evidence"])):
            assert_plain(text)


SECRETS = {
    "key": "sk-4f9d1c7ab2e84d0c9a6e5b3f",
    "token": "hf_QwErTyUiOpAsDfGhJkLzXcVbNm",
    "password": "hunter2-but-much-longer",
}
SECRET_COMMAND = (
    f"HF_TOKEN={SECRETS['token']} VLLM_API_KEY={SECRETS['key']} vllm serve Qwen/Qwen2.5-VL-7B-Instruct "
    f"--enable-mm-token-trim --api-key {SECRETS['key']} --host 127.0.0.1"
)
SECRET_LOG = (
    "(APIServer pid=1) INFO 11-30 17:55:47 [api_utils.py:273] non-default args: {'model': "
    f"'Qwen/Qwen2.5-VL-7B-Instruct', 'api_key': ['{SECRETS['key']}'], 'hf_token': '{SECRETS['token']}', "
    "'max_model_len': 128000}\n"
    + FAILED_LOG.replace(
        "Try increasing",
        f"(Authorization: Bearer {SECRETS['key']}, https://user:{SECRETS['password']}@mirror.example/x) Try increasing",
    )
)


@pytest.mark.parametrize("form", [[], ["--json"], ["--verbose"]], ids=["text", "json", "verbose"])
def test_secrets_are_never_printed(tmp_path: Path, form: list[str]) -> None:
    (tmp_path / "server.log").write_text(SECRET_LOG)
    outcome = doctor("diagnose", "--log", "server.log", "--command", SECRET_COMMAND, *form, cwd=tmp_path)
    assert outcome.code == 1
    for kind, secret in SECRETS.items():
        assert secret not in outcome.out + outcome.err, kind
