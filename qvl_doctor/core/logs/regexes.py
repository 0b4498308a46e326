"""What a regex may cost on a hostile line, judged from its structure before it is ever run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from re import _constants as sre  # type: ignore[attr-defined]  # the parser's opcodes; typeshed leaves them out
from re import _parser as sre_parser  # type: ignore[attr-defined]  # no public way to read a regex's structure
from typing import Any

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)  # possessive repeats give nothing back
_MANY = 100  # repetitions from which a bounded repeat counts as unbounded
_BROAD_CATEGORIES = (sre.CATEGORY_NOT_SPACE, sre.CATEGORY_NOT_DIGIT, sre.CATEGORY_NOT_WORD)


def regex_problem(regex: str) -> str | None:
    """Why a regex may take exponential time, or None: a repeat in a repeat with nothing firm between the turns."""
    for body in _repeated(sre_parser.parse(regex)):
        items = list(_flat(body))
        inner = [item for item in items if _is_open_repeat(item)]
        firm = [item for item in items if item[0] in (sre.LITERAL, sre.IN, sre.NOT_LITERAL, sre.ANY)]
        if inner and (not firm or any(_is_broad(item[1][2], words=True) for item in inner)):
            return "a repeat within a repeat can take exponential time"
    return None


def broad_repeats(regex: str) -> int:
    """Number of open repeats that match nearly anything (`.*`, `[^x]+`, `\\S+`): the power of its cost."""
    return _count(sre_parser.parse(regex))


def _count(parsed: Iterable[Any]) -> int:
    total = 0
    for opcode, argument in parsed:
        if opcode is sre.BRANCH:
            total += max(_count(choice) for choice in argument[1])
        elif opcode is sre.SUBPATTERN:
            total += _count(argument[3])
        elif opcode in _REPEATS:
            total += argument[1] >= _MANY and _is_broad(argument[2])
            total += _count(argument[2])
    return total


def _is_open_repeat(item: Any) -> bool:
    return item[0] in _REPEATS and item[1][1] >= _MANY


def _is_broad(body: Iterable[Any], *, words: bool = False) -> bool:
    """Whether one item matches nearly anything; with `words`, letters and digits are enough."""
    items = list(_flat(body))
    if len(items) != 1:
        return False
    opcode, argument = items[0]
    if opcode in (sre.ANY, sre.NOT_LITERAL):
        return True
    return opcode is sre.IN and any(
        part[0] is sre.NEGATE
        or (part[0] is sre.CATEGORY and (part[1] in _BROAD_CATEGORIES or (words and part[1] is sre.CATEGORY_WORD)))
        for part in argument
    )


def _flat(parsed: Iterable[Any]) -> Iterator[Any]:
    """Items of a sequence with its plain groups opened."""
    for item in parsed:
        if item[0] is sre.SUBPATTERN:
            yield from _flat(item[1][3])
        else:
            yield item


def _repeated(parsed: Iterable[Any]) -> Iterator[Any]:
    """The bodies of all open repeats, each with its alternatives one by one."""
    for opcode, argument in parsed:
        if opcode in _REPEATS:
            if argument[1] >= _MANY:
                yield from _alternatives(argument[2])
            yield from _repeated(argument[2])
        elif opcode is sre.SUBPATTERN:
            yield from _repeated(argument[3])
        elif opcode is sre.BRANCH:
            for choice in argument[1]:
                yield from _repeated(choice)


def _alternatives(body: Iterable[Any]) -> Iterator[Any]:
    items = list(_flat(body))
    if len(items) == 1 and items[0][0] is sre.BRANCH:
        for choice in items[0][1][1]:
            yield from _alternatives(choice)
    else:
        yield items
