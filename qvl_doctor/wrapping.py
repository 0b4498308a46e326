"""Breaking text into lines by the terminal cells that it takes."""

from __future__ import annotations

import re
import unicodedata

_FIRST_WIDE = "\u2e80"  # from here on text breaks anywhere
_WORDS = r"\s+|\S+"
_WORDS_AND_WIDE = r"\s+|[^\s\u2e80-\uffef]+|[\u2e80-\uffef]"  # takes 6 ms to compile: only for text that needs it


def cells(text: str) -> int:
    """Terminal cells that the text takes; wide East Asian characters take two."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` cells, later lines with `indent`; longer words stay whole."""
    lines: list[str] = []
    current, used = "", 0
    pattern = _WORDS if max(text, default="") < _FIRST_WIDE else _WORDS_AND_WIDE
    for atom in re.findall(pattern, text.replace("\n", " ")):
        size = cells(atom)
        closing = atom in "，。；：、）！？”》"  # never begins a line
        if used + size > width and current.strip() and not closing:
            lines.append(current.rstrip())
            current, used = indent, cells(indent)
            if atom.isspace():
                continue
        current, used = current + atom, used + size
    return [*lines, current.rstrip()] if current.strip() else lines
