"""Clauses: one comparison of a fact with a literal or another fact, three-valued (true, false, unknown)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from qvl_doctor.core.facts import Value, View, as_number, as_version, shown
from qvl_doctor.core.findings import Evidence
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

ClauseOp = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in", "~", "!~", "present", "absent"]

_CLAUSE = lazy_regex(r"^\s*(==|!=|<=|>=|<|>|not in\b|in\b|!~|~|present\b|absent\b)\s*(.*?)\s*$", re.DOTALL)
_FACT_NAME = lazy_regex(r"^[a-z_][a-z0-9_]*(\.[A-Za-z0-9_]+)+$")
# Literals that TOML reads as they stand.
_NUMBER = lazy_regex(r"-?(?:0|[1-9][0-9]{0,15})(?P<fraction>\.[0-9]{1,15})?\Z")
_TEXT = lazy_regex(r"""'[^'\x00-\x1f\x7f]*'\Z|"[^"\\\x00-\x1f\x7f]*"\Z""")
_SEARCHED_CHARACTERS = 4000  # bounds the time of a pattern over a fact's text

NAMESPACES = frozenset(
    {"launch", "effective", "log", "match", "item", "gpu", "host", "env", "version", "model", "plan", "derived"}
)


if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


class ClauseError(ValueError):
    """A clause that cannot be understood; the text says what is wrong with it."""


@record
class Clause:
    """`fact op literal-or-fact`; exactly one of `literal` and `other` is set for the comparing operators."""

    fact: str
    op: ClauseOp
    literal: Value | tuple[Value, ...] | None = None
    other: str | None = None

    def holds(self, view: View) -> bool | None:
        """True or False where the facts decide it, None where one of them is unknown."""
        if self.op == "present":
            absent = view.is_absent(self.fact)
            return None if absent is None else not absent
        if self.op == "absent":
            return view.is_absent(self.fact)
        left = view.value(self.fact)
        right = view.value(self.other) if self.other is not None else self.literal
        if left is None or right is None:
            return None
        if self.op in ("~", "!~"):
            # compiled when first asked for, and kept by `re` itself
            found = re.search(str(right), shown(left)[:_SEARCHED_CHARACTERS]) is not None
            return found == (self.op == "~")
        if self.op in ("in", "not in"):
            options = right if isinstance(right, tuple) else (right,)
            return any(_same(left, option) for option in options) == (self.op == "in")
        return _compared(self.fact, self.op, left, right)

    def unknown_facts(self, view: View) -> tuple[str, ...]:
        """Names of the facts that would decide this clause."""
        wanted = (self.fact,) if self.other is None else (self.fact, self.other)
        return tuple(name for name in wanted if view.value(name) is None)

    def evidence(self, view: View) -> tuple[Evidence, ...]:
        """What shows that the clause holds: the lines or flags behind its facts, else the comparison itself."""
        if self.op == "absent":
            return (
                Evidence("launch" if self.fact.startswith(("launch", "env")) else "plan", "command", self.spelled()),
            )
        names = (self.fact,) if self.other is None else (self.fact, self.other)
        shown_by = [known.evidence for name in names if (known := view.known(name)) and known.evidence]
        if shown_by:
            return tuple(shown_by)
        left = view.text(self.fact) or "?"
        right = "" if self.other is None else f" {self.op} {self.other} {view.text(self.other)}"
        return (Evidence("plan", self.fact.partition(".")[0], f"{self.fact} {left}{right}"),)

    def spelled(self) -> str:
        """The clause as a person reads it."""
        if self.op == "absent" and self.fact.startswith("launch."):
            return f"--{self.fact.removeprefix('launch.').replace('_', '-')} is not given"
        right = self.other or (repr(self.literal) if self.literal is not None else "")
        return f"{self.fact} {self.op} {right}".strip()


def parse_clause(fact: str, text: str, *, compiles: bool = True) -> Clause:
    """A clause out of a rule file. Raises ClauseError with one sentence that says what is wrong.

    `compiles` = False takes a pattern as it is: it has been compiled before.
    """
    if fact.partition(".")[0] not in NAMESPACES or not _FACT_NAME.match(fact):
        raise ClauseError(f"{fact!r} is no fact name; it begins with one of {', '.join(sorted(NAMESPACES))}")
    parts = _CLAUSE.match(text)
    if parts is None:
        raise ClauseError(f"{text!r} has no operator; use one of == != < <= > >= in, not in, ~ !~ present absent")
    op: ClauseOp = parts[1]  # type: ignore[assignment]  # the pattern admits these words only
    operand = parts[2]
    if op in ("present", "absent"):
        if operand:
            raise ClauseError(f"{op!r} takes nothing after it, got {operand!r}")
        return Clause(fact, op)
    if not operand:
        raise ClauseError(f"{text!r} compares with nothing")
    if _FACT_NAME.match(operand) and operand.partition(".")[0] in NAMESPACES:
        return Clause(fact, op, other=operand)
    literal = _literal(operand)
    if op in ("~", "!~"):
        if not isinstance(literal, str):
            raise ClauseError(f"{op} takes a quoted pattern, got {operand!r}")
        if compiles:
            _check_pattern(literal)
        return Clause(fact, op, literal)
    if op in ("in", "not in") and not isinstance(literal, tuple):
        raise ClauseError(f"{op} takes a list, got {operand!r}")
    return Clause(fact, op, literal)


@lru_cache(maxsize=1024)
def parse_specifier(text: str) -> SpecifierSet:
    """A PEP 440 version range. Raises ClauseError."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - 5 ms, where a version is known

    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ClauseError(f'{text!r} is no version range (such as ">=0.9,<0.12")') from error


def version_holds(specifier: str | None, view: View) -> bool | None:
    """Whether the vLLM version at hand lies in a range that was checked before; None where it is unknown."""
    if specifier is None:
        return True
    version = view.version("version.vllm")
    return None if version is None else parse_specifier(specifier).contains(version, prereleases=True)


def _plain(text: str) -> bool | int | float | str | None:
    """A literal of the forms that nearly all of them have; None for any other."""
    if (number := _NUMBER.match(text)) is not None:
        return float(text) if number["fraction"] else int(text)
    if _TEXT.match(text):
        return text[1:-1]
    return text == "true" if text in ("true", "false") else None


def _literal(text: str) -> Value | tuple[Value, ...]:
    if (plain := _plain(text)) is not None:
        return plain
    if text.startswith("[") and text.endswith("]"):
        items = [_plain(item.strip(" ")) for item in text[1:-1].split(",")]
        if None not in items:
            return tuple(item for item in items if item is not None)
    import tomllib  # noqa: PLC0415 - it takes 5 ms to import

    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ClauseError(
            f"{text!r} is neither a fact nor a number, true/false, quoted text or a list of these"
        ) from None
    if isinstance(value, list):
        if not all(isinstance(item, bool | int | float | str) for item in value):
            raise ClauseError(f"{text!r} may hold numbers and quoted texts only")
        return tuple(value)
    if not isinstance(value, bool | int | float | str):
        raise ClauseError(f"{text!r} is no number, true/false, text or list")
    return value


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise ClauseError(f"pattern {text!r}: {error}") from None


def _same(left: Value, right: object) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold() == right.casefold()
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str) and isinstance(right, int | float):
        return as_number(left) == right
    if isinstance(right, str) and isinstance(left, int | float):
        return as_number(right) == left
    return left == right


def _compared(fact: str, op: ClauseOp, left: Value, right: object) -> bool | None:
    if op in ("==", "!="):
        same = _versions_equal(left, right) if fact.startswith("version.") else _same(left, right)
        return None if same is None else same == (op == "==")
    pair: tuple[Version, Version] | tuple[float, float] | None
    pair = _as_versions(left, right) if fact.startswith("version.") else _as_numbers(left, right)
    if pair is None:
        return None
    first, second = pair
    order = (first > second) - (first < second)  # type: ignore[operator]  # both are of one kind
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


def _as_numbers(left: Value, right: object) -> tuple[float, float] | None:
    first, second = (as_number(v) if isinstance(v, str) else v for v in (left, right))
    if isinstance(first, bool) or isinstance(second, bool):
        return None
    if not isinstance(first, int | float) or not isinstance(second, int | float):
        return None
    return float(first), float(second)


def _as_versions(left: Value, right: object) -> tuple[Version, Version] | None:
    first, second = as_version(str(left)), as_version(str(right))
    return None if first is None or second is None else (first, second)


def _versions_equal(left: Value, right: object) -> bool | None:
    pair = _as_versions(left, right)
    return None if pair is None else pair[0] == pair[1]
