"""Flags that a missing backslash or a curly quote keeps from the server."""

from __future__ import annotations

import pytest

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import Objects, View
from qvl_doctor.core.launch import parse_text

load_all()


def _view(text: str) -> View:
    return View({}, Objects(launch=parse_text(text).commands[0]))


def test_flags_behind_a_missing_backslash_are_named_with_their_line() -> None:
    view = _view("vllm serve M \\\n  --port 80\n  --max-num-seqs 8 --enforce-eager\n")
    assert view.text("derived.lost_flags") == "--max-num-seqs, --enforce-eager"
    assert view.integer("derived.lost_line") == 3


def test_joined_lines_lose_nothing() -> None:
    view = _view("vllm serve M \\\n  --port 80 \\\n  --max-num-seqs 8\n")
    assert view.value("derived.lost_flags") is None
    assert view.value("derived.lost_line") is None


@pytest.mark.parametrize(
    ("command", "quote"),
    [
        ("vllm serve M --x ‘{}’", "‘"),
        ("vllm serve M --x '{} --port 80", "'"),
        ("vllm serve M --x '{}' --port 80", None),
    ],
)
def test_quotes_that_are_none(command: str, quote: str | None) -> None:
    assert _view(command).value("derived.wrong_quotes") == quote


def test_without_a_command_nothing_is_known() -> None:
    assert View({}).value("derived.lost_flags") is None
    assert View({}).value("derived.wrong_quotes") is None
