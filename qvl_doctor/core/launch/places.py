"""Where a command's parts stand, and how each is written there: in shell words, and as the interfaces that YAML lists,
Python calls and config files fulfil in their own modules.

A place makes splices of the document; None means that it can't be written there safely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from qvl_doctor.core.launch.quoting import compact_json, quoted
from qvl_doctor.core.launch.values import Flag, Layer, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

Splices = list[Splice]


class Place(Protocol):
    """The arguments of one command."""

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        """`spelled` with `value` in place of `flag`, or behind the last argument."""
        ...

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        """Another value, in the position and quoting style of the old one."""
        ...

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        """Another name, the same value."""
        ...

    def remove(self, flag: Flag) -> Splices | None:
        """The flag with its value gone, and its line if it stood alone there."""
        ...

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        """The positional model replaced, or put where it belongs."""
        ...


@record
class EnvSlot:
    """One assignment of a variable."""

    name: str
    value: str
    write: Callable[[str], Splice | None]
    remove: Callable[[], Splice | None]


@record
class EnvPlace:
    slots: tuple[EnvSlot, ...]
    add: Callable[[str, str], Splice | None]


@record
class OptionSlot:
    """One option of the container: "--shm-size"."""

    name: str
    write: Callable[[str | None], Splice | None]
    remove: Callable[[], Splice | None]


@record
class OptionPlace:
    slots: tuple[OptionSlot, ...]
    add: Callable[[str, str | None], Splice | None]


def splice(layer: Layer, lstart: int, lend: int, text: str) -> Splice | None:
    """A replacement of `lstart:lend` of the layer, written in the outer language."""
    written = layer.escape(text) if text else ""
    if written is None:
        return None
    start = layer.begin(lstart) if lend > lstart else layer.finish(lstart)
    return Splice(start, layer.finish(lend) if lend > lstart else start, written)


_SEPARATOR = lazy_regex(r"(?:[ \t]|[\\`^]\r?\n|\r?\n)+\Z")
_LOOK_BACK = 2_000  # characters of blanks between two arguments


def separator_before(layer: Layer, lstart: int) -> tuple[int, str]:
    """Where the blanks (with continuations) before a word begin, and their text."""
    low = max(lstart - _LOOK_BACK, 0)
    match = _SEPARATOR.search(layer.text[low:lstart]) if lstart else None
    if match is None:
        return lstart, ""
    return low + match.start(), match[0]


def own_separator(layer: Layer, lstart: int) -> str:
    """What sets arguments apart, as the document has it: a blank, or a line's end with what goes with it."""
    begin = separator_before(layer, lstart)[0]
    source = layer.source(begin, lstart)
    return source if "\n" in source and begin > 0 else " "


def removal(layer: Layer, lstart: int, lend: int, *, inserted: bool = False) -> Splice | None:
    """A word gone with the blanks before it, so that a line of its own leaves nothing behind.

    `inserted`: it stands in a variable's value or an array, so that a quote or parenthesis may open right before it.
    """
    begin = separator_before(layer, lstart)[0]
    text = layer.text
    if begin == 0 or (inserted and text[begin - 1] in "(\"'="):
        after = re.compile(r"(?:[ \t]|\\\r?\n|\r?\n)*").match(text, lend)
        return splice(layer, lstart, after.end() if after else lend, "")
    return splice(layer, begin, lend, "")


@record
class ShellPlace:
    """Arguments in shell text, at the top or inside another language's string."""

    layer: Layer
    program_end: int  # behind the words that start the server
    end: int  # behind the last argument
    flags: tuple[Flag, ...]
    positional_model: bool

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        if flag is None:
            return self._append(spelled, value)
        first, last = flag.words[0], flag.words[-1]
        if not _contiguous(flag.words):
            return None
        text = self._argument(spelled, value, like=_value_raw(flag), joined=flag.joined and flag.spelled[1:2] != "O")
        return _all(splice(first.layer, first.lstart, last.lend, text))

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        words = flag.words
        if len(words) == 1 and flag.joined and not words[0].raw.startswith(("'", '"')):
            word = words[0]
            prefix = len(word.value) - len(flag.value or "")
            lstart = word.locate(prefix - 1) + 1 if prefix else word.lstart
            return _all(splice(word.layer, lstart, word.lend, quoted(value, word.layer.text[lstart : word.lend])))
        if len(words) == 1 and flag.joined:
            text = quoted(f"{flag.spelled}={value}", words[0].raw)
            return _all(splice(words[0].layer, words[0].lstart, words[0].lend, text))
        if len(words) == 1:
            return _all(splice(words[0].layer, words[0].lend, words[0].lend, " " + quoted(value)))
        if not _contiguous(words[1:]):
            return None
        text = self._values(flag, value)
        return _all(splice(words[1].layer, words[1].lstart, words[-1].lend, text))

    def _values(self, flag: Flag, value: str) -> str:
        if len(flag.words) > 2 and not value.startswith("{") and not (flag.value or "").startswith("{"):
            return " ".join(quoted(part) for part in value.split())
        return quoted(value, flag.words[1].raw)

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        word = flag.words[0]
        if not flag.joined:
            return _all(splice(word.layer, word.lstart, word.lend, spelled))
        if word.raw.startswith(("'", '"')):
            return _all(splice(word.layer, word.lstart, word.lend, quoted(f"{spelled}={flag.value}", word.raw)))
        lend = word.locate(len(flag.spelled) - 1) + 1
        return _all(splice(word.layer, word.lstart, lend, spelled))

    def remove(self, flag: Flag) -> Splices | None:
        first = flag.words[0]
        if not _contiguous(flag.words):
            return None
        return _all(removal(first.layer, first.lstart, flag.words[-1].lend, inserted=first.inserted))

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        if word is not None:
            return _all(splice(word.layer, word.lstart, word.lend, quoted(model, word.raw)))
        if not self.positional_model:
            return self._append("--model", model)
        return _all(splice(self.layer, self.program_end, self.program_end, " " + quoted(model)))

    def _append(self, spelled: str, value: str | None) -> Splices | None:
        own = [flag for flag in self.flags if flag.words[0].layer is self.layer and not flag.words[0].inserted]
        separator = own_separator(self.layer, own[-1].words[0].lstart) if own else " "
        valued = [flag for flag in own if flag.value is not None]
        joined = bool(valued) and all(flag.joined for flag in valued)
        made = splice(self.layer, self.end, self.end, self._argument(spelled, value, like="", joined=joined))
        return None if made is None else [Splice(made.start, made.end, separator + made.text)]

    def _argument(self, spelled: str, value: str | None, *, like: str, joined: bool) -> str:
        if value is None:
            return spelled
        return f"{spelled}{'=' if joined else ' '}{quoted(compact_or_same(self.layer, value), like)}"


def compact_or_same(layer: Layer, value: str) -> str:
    """JSON with blanks cannot stand in every outer language: where it can't, without blanks."""
    return value if layer.escape(value) is not None else compact_json(value)


def _value_raw(flag: Flag) -> str:
    if len(flag.words) > 1:
        return flag.words[1].raw
    return flag.words[0].raw.partition("=")[2]


def _contiguous(words: Sequence[Word]) -> bool:
    """Whether a splice from the first to the last word touches these words and the blanks between them only."""
    layer = words[0].layer
    last = words[0]
    for word in words[1:]:
        if word.layer is not layer or word.lstart < last.lend:
            return False
        between = layer.text[last.lend : word.lstart]
        if between.strip(" \t\r\n\\`^"):
            return False
        last = word
    return True


def _all(*splices: Splice | None) -> Splices | None:
    return None if any(found is None for found in splices) else [found for found in splices if found is not None]
