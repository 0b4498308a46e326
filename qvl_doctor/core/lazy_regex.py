"""Regexes that are compiled when they are first used: of some 250 in this package one run needs a few dozen."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class LazyRegex:
    """Stands for a compiled pattern: each of its attributes is fetched from there once, and is its own afterwards."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, attribute)
        return attribute


def lazy_regex(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile(source, flags)`, put off; a wrong source raises `re.error` at the first use."""
    return cast("re.Pattern[AnyStr]", LazyRegex(source, flags))
