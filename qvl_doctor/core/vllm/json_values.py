"""JSON as people type it on a command line: what was meant by a value that does not arrive as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from qvl_doctor.core.lazy_regex import lazy_regex

MAX_VALUE = 20_000
MAX_DEPTH = 20
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_NUMBER = lazy_regex(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PAIR = lazy_regex(r"\s*([A-Za-z_][\w.-]*)\s*[=:]\s*([^,=:\s]+)\s*")
_QUOTES = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’", "「": "」"}
_BARE_END = frozenset(",:{}[]\"'“”‘’ \t\r\n")


def loads(text: str) -> Any:
    """What `json.loads` gives. Raises ValueError for everything else, too deep nesting included."""
    if len(text) > MAX_VALUE:
        raise ValueError("too long")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def dumps(value: Any) -> str:
    """JSON without blanks, so that even an unquoted shell keeps it in one word."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pairs(text: str) -> dict[str, int | float | str] | None:
    """The meaning of "image=4,video=0" (or with colons), None if it is not of that form."""
    found: dict[str, int | float | str] = {}
    if len(text) > MAX_VALUE:
        return None
    for item in text.strip().rstrip(",").split(","):
        match = _PAIR.fullmatch(item)
        if match is None:
            return None
        found[match.group(1)] = _scalar(match.group(2).strip("\"'"))
    return found or None


def lenient(text: str) -> Any:
    """The value that a broken JSON text most likely means: bare or single-quoted names, typographic quotes, Python's
    constants, trailing commas, a missing end. Raises ValueError where that is a guess.
    """
    if len(text) > MAX_VALUE:
        raise ValueError("too long")
    reader = _Reader(text.strip())
    value = reader.value(0)
    if not reader.at_end():
        raise ValueError("text behind the value")
    return value


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of everything in nested objects that is no object itself."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, str(key)))
    else:
        yield path, value


def merged(base: Any, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of an object with one value put at a path."""
    result = dict(base) if isinstance(base, Mapping) else {}
    if len(path) > 1:
        result[path[0]] = merged(result.get(path[0]), path[1:], value)
    elif path:
        result[path[0]] = value
    return result


def scalar(value: str) -> Any:
    """A flag's value as it belongs into JSON: JSON as it is, a number as number, else text."""
    try:
        return loads(value)
    except ValueError:
        return _scalar(value)


def _scalar(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _NUMBER.fullmatch(word):
        return float(word) if any(c in word for c in ".eE") else int(word)
    return word


class _Reader:
    """Recursive descent over the text; every step moves forward, so it ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def at_end(self) -> bool:
        self._blanks()
        return self.position >= len(self.text)

    def _blanks(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _peek(self) -> str:
        self._blanks()
        return self.text[self.position] if self.position < len(self.text) else ""

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        if first in _QUOTES:
            return self._quoted(_QUOTES[first])
        return _scalar(self._bare())

    def _object(self, depth: int) -> dict[str, Any]:
        self.position += 1
        found: dict[str, Any] = {}
        while (character := self._peek()) not in ("}", ""):
            if character == ",":
                self.position += 1
                continue
            key = self._quoted(_QUOTES[character]) if character in _QUOTES else self._bare()
            if self._peek() not in (":", "=", "："):
                raise ValueError(f"no value behind {key}")
            self.position += 1
            found[key] = self.value(depth + 1)
        self.position += 1
        return found

    def _list(self, depth: int) -> list[Any]:
        self.position += 1
        found: list[Any] = []
        while (character := self._peek()) not in ("]", ""):
            if character == ",":
                self.position += 1
                continue
            found.append(self.value(depth + 1))
        self.position += 1
        return found

    def _quoted(self, closing: str) -> str:
        start = self.position + 1
        end = self.text.find(closing, start)
        if end < 0:
            raise ValueError("a quote is not closed")
        self.position = end + 1
        return self.text[start:end]

    def _bare(self) -> str:
        start = self.position
        while self.position < len(self.text) and self.text[self.position] not in _BARE_END:
            self.position += 1
        if self.position == start:
            raise ValueError("a name or value is missing")
        return self.text[start : self.position].rstrip("\\").lstrip("\\")
