"""Python values out of a log line: `{'model': 'x', 'mode': <Mode.NONE: 0>}`, `Namespace(a=1, b=Foo(...))`.

Nothing is evaluated. What is no literal (an object's repr, an enum member, a call) becomes its own text.
Cut lines give what stands before the cut.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.masking import MASK, masked

DEPTH_LIMIT = 40
TEXT_LIMIT = 64 * 1024  # characters read

_STRING = lazy_regex(r"""[rbuRBU]{0,2}(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
_NUMBER = lazy_regex(r"[-+]?(?:\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)(?![\w.])")
_WORD = lazy_regex(r"[A-Za-z_][\w.]*")
_BLANK = lazy_regex(r"\s*")
_WORDS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan")}
_SECRET = lazy_regex(r"(?i)(?:^|_)(?:api_?key|token|secret|password|passwd)$")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class _CutError(Exception):
    """The text ends, or goes on in a way that is no value."""


def mapping(text: str) -> dict[str, object]:
    """The dict that stands at the start of `text`, or as keywords of a call (`Namespace(...)`)."""
    reader = _Reader(text[:TEXT_LIMIT])
    result: dict[str, object] = {}
    try:
        if reader.text.startswith("{"):
            reader.items(result)
        elif (word := _WORD.match(reader.text)) and reader.text.startswith("(", word.end()):
            reader.position = word.end()
            reader.keywords(result)
    except (_CutError, RecursionError):
        pass  # what came before the cut is kept
    return {name: without_secrets(name, value) for name, value in result.items()}


def without_secrets(name: str, value: object) -> object:
    """`value`, masked where its name says that it is secret, and inside texts."""
    if value is not None and _SECRET.search(name):
        return MASK
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {str(key): without_secrets(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets("", item) for item in value]
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def _skip(self) -> str:
        """The next character that is no blank."""
        blank = _BLANK.match(self.text, self.position)
        self.position = blank.end() if blank else self.position
        if self.position >= len(self.text):
            raise _CutError
        return self.text[self.position]

    def items(self, into: dict[str, object], depth: int = 0) -> None:
        """`{'a': 1, ...}` at the position."""
        self.position += 1
        while self._skip() != "}":
            key = self.value(depth + 1)
            if self._skip() == ":":
                self.position += 1
                into[str(key)] = self.value(depth + 1)
            else:  # a set
                into[str(key)] = True
            self._comma("}")
        self.position += 1

    def keywords(self, into: dict[str, object]) -> None:
        """`(a=1, ...)` at the position."""
        self.position += 1
        while self._skip() != ")":
            word = _WORD.match(self.text, self.position)
            if word is None or not self.text.startswith("=", word.end()):
                raise _CutError
            self.position = word.end() + 1
            into[word[0]] = self.value(1)
            self._comma(")")
        self.position += 1

    def _comma(self, closing: str) -> None:
        following = self._skip()
        if following == ",":
            self.position += 1
        elif following != closing:
            raise _CutError

    def value(self, depth: int) -> object:
        if depth > DEPTH_LIMIT:
            raise _CutError
        first = self._skip()
        if first == "{":
            inner: dict[str, object] = {}
            self.items(inner, depth)
            return inner
        if first in "[(":
            return self._sequence(_CLOSING[first], depth)
        if first == "<":
            return self._balanced()
        for pattern in (_STRING, _NUMBER, _WORD):
            found = pattern.match(self.text, self.position)
            if found is not None:
                return self._atom(pattern, found)
        raise _CutError

    def _atom(self, pattern: re.Pattern[str], found: re.Match[str]) -> object:
        if pattern is _WORD:
            start = self.position
            self.position = found.end()
            if self.text.startswith("(", self.position):
                self._balanced()
                return self.text[start : self.position]
            return _WORDS.get(found[0], found[0])
        self.position = found.end()
        try:
            value: object = ast.literal_eval(found[0])
        except (ValueError, SyntaxError):
            return found[0]
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def _sequence(self, closing: str, depth: int) -> list[object]:
        self.position += 1
        values: list[object] = []
        while self._skip() != closing:
            values.append(self.value(depth + 1))
            self._comma(closing)
        self.position += 1
        return values

    def _balanced(self) -> str:
        """The text of a bracketed part, quoted brackets not counted."""
        start = self.position
        opened: list[str] = []
        while self.position < len(self.text):
            char = self.text[self.position]
            if char in "'\"" and (quoted := _STRING.match(self.text, self.position)):
                self.position = quoted.end()
                continue
            self.position += 1
            if char in _CLOSING:
                opened.append(_CLOSING[char])
            elif opened and char == opened[-1]:
                opened.pop()
                if not opened:
                    return self.text[start : self.position]
        raise _CutError
