"""Text from outside made fit for a terminal: no escape sequences, no control or direction-changing characters."""

from __future__ import annotations

from qvl_doctor.core.lazy_regex import lazy_regex

_ESCAPE = lazy_regex(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_a-z])?")
_CONTROL = lazy_regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, *, keep_newlines: bool = True) -> str:
    """`text` without terminal escapes; other control characters become "\N{REPLACEMENT CHARACTER}"."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPE.sub("", text.replace("\r\n", "\n")))
    return text if keep_newlines else text.replace("\n", " ").replace("\t", " ")
