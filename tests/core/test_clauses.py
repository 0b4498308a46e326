"""Clauses are three-valued comparisons of facts."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qvl_doctor.core.clauses import ClauseError, parse_clause, parse_specifier, version_holds
from qvl_doctor.core.facts import Known, Value, View

FACTS: dict[str, Value] = {
    "launch.present": True,
    "launch.max_model_len": 32768,
    "launch.dtype": "Half",
    "launch.enforce_eager": True,
    "match.length": "40,960",
    "gpu.compute_capability": 7.5,
    "version.vllm": "0.10.1.1",
    "log.oom.frames": "worker.py:load_model model.py:forward",
}


def view(**more: Value) -> View:
    return View({name: Known(value) for name, value in {**FACTS, **more}.items()})


@pytest.mark.parametrize(
    ("fact", "text", "expected"),
    [
        ("launch.max_model_len", "== 32768", True),
        ("launch.max_model_len", "> 32768", False),
        ("match.length", "> launch.max_model_len", True),
        ("launch.max_model_len", "< match.length", True),
        ("launch.dtype", "== 'half'", True),
        ("launch.dtype", "in ['half', 'float16']", True),
        ("launch.dtype", "not in ['half', 'float16']", False),
        ("launch.enforce_eager", "== true", True),
        ("launch.enforce_eager", "!= true", False),
        ("gpu.compute_capability", "< 8.0", True),
        ("version.vllm", "< 0.11", True),
        ("version.vllm", "< '0.11'", True),
        ("version.vllm", ">= '0.10.1'", True),
        ("log.oom.frames", "~ 'load_model'", True),
        ("log.oom.frames", "!~ 'load_model'", False),
        ("launch.max_num_seqs", "absent", True),
        ("launch.max_num_seqs", "present", False),
        ("launch.max_num_seqs", "> 1", None),
        ("host.shm_bytes", "absent", None),  # nobody said anything about the host
        ("launch.dtype", "> 3", None),  # text is no number
    ],
)
def test_holds(fact: str, text: str, expected: bool | None) -> None:
    assert parse_clause(fact, text).holds(view()) is expected


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("nonsense.name", "== 1"),
        ("launch", "== 1"),
        ("launch.x", "1"),
        ("launch.x", "=="),
        ("launch.x", "== bare words"),
        ("launch.x", "present 3"),
        ("launch.x", "in 3"),
        ("launch.x", "~ 3"),
        ("launch.x", "~ '('"),
        ("launch.x", "== {a = 1}"),
        ("launch.x", "in [[1]]"),
    ],
)
def test_what_cannot_be_understood_is_refused(fact: str, text: str) -> None:
    with pytest.raises(ClauseError):
        parse_clause(fact, text)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        clause = parse_clause("launch.max_model_len", text)
    except ClauseError:
        return
    assert clause.holds(view()) in (True, False, None)


def test_version_ranges_include_previews_and_leave_the_unknown_open() -> None:
    specifier = ">=0.10,<0.11"
    assert version_holds(specifier, view()) is True
    assert version_holds(specifier, View({"version.vllm": Known("0.10.2rc1")})) is True
    assert version_holds(specifier, View({"version.vllm": Known("0.11.0")})) is False
    assert version_holds(specifier, View({})) is None
    with pytest.raises(ClauseError):
        parse_specifier("0.10")


def test_evidence_is_the_comparison_where_no_line_shows_it() -> None:
    (evidence,) = parse_clause("launch.max_model_len", "< match.length").evidence(view())
    assert evidence.text == "launch.max_model_len 32768 < match.length 40,960"
    (absent,) = parse_clause("launch.max_num_seqs", "absent").evidence(view())
    assert absent.text == "--max-num-seqs is not given"


@pytest.mark.parametrize(
    "literal",
    [
        *(
            "0",
            "-7",
            "0.5",
            "-0.25",
            "12.0",
            "true",
            "false",
            "'a, b'",
            '"x"',
            "''",
            "'it\\d'",
            '"tab\\t"',
            '"\\u00e9"',
        ),
        *("1_000", "0x10", "1e3", "[1, 2.5, 'a']", "['a,b', 'c']", "[ 'a' , \"b\", ]", "['é', '']", "[true, 1]"),
    ],
)
def test_a_literal_is_what_toml_says(literal: str) -> None:
    expected = tomllib.loads(f"value = {literal}")["value"]
    expected = tuple(expected) if isinstance(expected, list) else expected
    found = parse_clause("launch.x", f"{'in' if isinstance(expected, tuple) else '=='} {literal}").literal
    assert found == expected
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("literal", ["01", "1.", ".5", "-", "'a'b'", '"a', "[1, ", "[a]", "truely", "+", "'a'\n'b'"])
def test_what_is_no_literal_of_toml_is_refused(literal: str) -> None:
    with pytest.raises(ClauseError):
        parse_clause("launch.x", f"== {literal}")
