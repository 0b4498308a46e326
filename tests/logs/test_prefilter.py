"""A regex that can match a line is always tried on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.logs.prefilter import Index, required_literals, required_skeletons, skeleton

PATTERNS = (Path(__file__).resolve().parents[1] / "bench/log_patterns.txt").read_text(encoding="utf-8").splitlines()
TRICKY = [
    r"(?i)out OF memory",
    r"a dead beef (?:cafe|face)d? 12 x",
    r"(?:foo+ bar|baz{2,3}) end",
    r"\bKilled\b",
    r"(?x) spaced \s out   # comment",
    r"error(?= 404)|warning(?! ok)",
    r"[Ee]rror: code",
    r"µs per token",
]
INDEX = Index([required_skeletons(regex) for regex in (*PATTERNS, *TRICKY)])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_each_match_is_a_candidate(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(PATTERNS) + len(TRICKY) - 1))
    regex = [*PATTERNS, *TRICKY][number]
    inside = data.draw(st.from_regex(re.compile(regex), fullmatch=False))
    around = st.text(st.sampled_from("abcdef019 -x."), max_size=6)
    text = data.draw(around) + inside + data.draw(around)
    if re.search(regex, text):
        assert number in INDEX.candidates(skeleton(text.encode()))


@pytest.mark.parametrize(
    ("regex", "literals"),
    [
        (r"Worker proc (?P<p>\S+) died", ("Worker proc ",)),
        (r"(?:NCCL|RCCL) error: \d+", (" error: ",)),
        (r"Killed|OOMKilled", ("Killed", "OOMKilled")),
        (r"\d+(?:\.\d+)? GiB", (" GiB",)),
        (r"free|\d+", None),  # one alternative has none
        (r"dead|cafe", None),  # nothing is left of them in a skeleton
        (r"(?:text)?", None),
        (r"(?:text)+ (?=more)", ("text",)),
        (r".*", None),
        (r"x*y?", None),
    ],
)
def test_required_literals(regex: str, literals: tuple[str, ...] | None) -> None:
    assert required_literals(regex) == literals


def test_a_regex_without_literal_is_tried_everywhere() -> None:
    assert Index([required_skeletons(r"\d+"), required_skeletons("Killed")]).candidates(b"nothing") == (0,)


def test_lines_that_differ_in_ids_and_numbers_share_a_skeleton() -> None:
    first = b"INFO 01-02 03:04:05 [a.py:12] Added request chatcmpl-9b0b5170f32ad333-9e65b4ac."
    second = b"INFO 11-30 23:14:15 [a.py:9] Added request chatcmpl-0c0ffee1deadbeef-11112222."
    assert skeleton(first) == skeleton(second)
