"""Which of some hundred regexes can match a line at all, decided from texts that they must contain.

Each regex is reduced to a *requirement*: a set of literals of which every match holds at least one
(derived from the standard library's own regex parser). Lines and literals are compared in a reduced
spelling, the *skeleton*: lower case, digits removed, and words made of a-f only removed (what remains of
hexadecimal ids). The reduction is local, so a literal that a line holds is held by its skeleton too; lines
that differ only in numbers and ids share a skeleton, and one answer serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]  # the parser's opcodes; typeshed leaves them out
from re import _parser as sre_parser  # type: ignore[attr-defined]  # no public way to read a regex's structure
from typing import Any

from qvl_doctor.core.lazy_regex import lazy_regex

_LOWER = bytes(range(256)).lower()
_DIGITS = b"0123456789"
_HEX_WORD = lazy_regex(rb"(?<![a-z])[a-f]+(?![a-z])")
_EDGE_HEAD = lazy_regex(rb"\A[a-f]+(?![a-z])|\A[a-f]+\Z")
_EDGE_TAIL = lazy_regex(rb"(?<![a-z])[a-f]+\Z")
_LETTERS_ONLY = bytes(c if 97 <= c <= 122 else 32 for c in range(256))

SHORTEST = 3  # bytes that a literal must have to be worth looking for


def level_one(raw: bytes) -> bytes:
    """Lower case without digits: one C pass over any amount of text; line ends are kept."""
    return raw.translate(_LOWER, _DIGITS)


def level_two(level_one_text: bytes) -> bytes:
    """The skeleton proper: without words made of a-f only."""
    return _HEX_WORD.sub(b"", level_one_text)


def skeleton(raw: bytes) -> bytes:
    return level_two(level_one(raw))


def required_literals(regex: str) -> tuple[str, ...] | None:
    """Literals of which each match of `regex` contains at least one; None if there is nothing to go by."""
    best = _best(_requirements(sre_parser.parse(regex)))
    return tuple(sorted(best)) if best else None


def required_skeletons(regex: str) -> tuple[str, ...]:
    """`required_literals` as a line's skeleton holds them; empty if there is nothing to go by."""
    return tuple(sorted({_literal(text).decode() for text in required_literals(regex) or ()}))


def _literal(text: str) -> bytes:
    """A literal in skeleton spelling, cut where its edge could be part of a removed word."""
    reduced = level_one(text.encode())
    reduced = _EDGE_TAIL.sub(b"", _EDGE_HEAD.sub(b"", reduced))
    return level_two(reduced)


def _score(requirement: frozenset[str]) -> int:
    return min((len(_literal(text)) for text in requirement), default=0)


def _best(requirements: Sequence[frozenset[str]]) -> frozenset[str]:
    best = max(requirements, key=_score, default=frozenset[str]())
    return best if _score(best) >= SHORTEST else frozenset()


def _requirements(parsed: Iterable[Any]) -> list[frozenset[str]]:
    """All requirements of a parsed sequence: runs of literals in it, and what its mandatory parts require."""
    found: list[frozenset[str]] = []
    run: list[str] = []

    def end_run() -> None:
        if run:
            found.append(frozenset(("".join(run),)))
            run.clear()

    for opcode, argument in parsed:
        if opcode is sre.LITERAL:
            run.append(chr(argument))
        elif opcode is sre.SUBPATTERN:
            inner = argument[3]
            if all(part[0] is sre.LITERAL for part in inner):
                run.extend(chr(part[1]) for part in inner)
            else:
                end_run()
                found.extend(_requirements(inner))
        elif opcode in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            end_run()
            if argument[0] >= 1:
                found.extend(_requirements(argument[2]))
        elif opcode is sre.ATOMIC_GROUP:
            end_run()
            found.extend(_requirements(argument))
        elif opcode is sre.BRANCH:
            end_run()
            choices = [_best(_requirements(choice)) for choice in argument[1]]
            if all(choices):
                found.append(frozenset().union(*choices))
        elif opcode not in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):  # those take no text
            end_run()
    end_run()
    return found


class Index:
    """Finds the regexes (by their number) whose requirement a skeleton meets."""

    def __init__(self, requirements: Sequence[Sequence[str]]) -> None:
        """The `required_skeletons` of each regex, in the order of their numbers."""
        self._by_word: dict[bytes, list[tuple[bytes, int]]] = {}
        self._texts: list[tuple[bytes, int]] = []
        # without a requirement: to be tried on every line
        self.always = tuple(number for number, literals in enumerate(requirements) if not literals)
        for number, literals in enumerate(requirements):
            for text in literals:
                self._add(text.encode(), number)

    def _add(self, literal: bytes, number: int) -> None:
        # A word with a non-letter on both sides inside the literal is a whole word of the line.
        spaced = literal.translate(_LETTERS_ONLY)
        words = spaced.split()
        if words and not spaced.startswith(b" "):
            words = words[1:]
        if words and not spaced.endswith(b" "):
            words = words[:-1]
        if words:
            self._by_word.setdefault(max(words, key=len), []).append((literal, number))
        else:
            self._texts.append((literal, number))

    def candidates(self, skeleton_text: bytes) -> tuple[int, ...]:
        """Numbers of the regexes that may match, ascending."""
        hits = {number for literal, number in self._texts if literal in skeleton_text}
        for word in self._by_word.keys() & set(skeleton_text.translate(_LETTERS_ONLY).split()):
            for literal, number in self._by_word[word]:
                if literal in skeleton_text:
                    hits.add(number)
        hits.update(self.always)
        return tuple(sorted(hits))
