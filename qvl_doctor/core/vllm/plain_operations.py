"""Operations on plain values that the static reader carries out: a fixed list, none of which can produce much."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from qvl_doctor.core.vllm.static_values import UNKNOWN, ClassValue, External, Hint

MAX_TEXT = 100_000

_PLAIN_METHODS: Final = {
    dict: frozenset({"keys", "items", "values", "get", "pop", "update", "copy", "setdefault"}),
    list: frozenset({"append", "extend", "remove", "copy", "index", "pop"}),
    tuple: frozenset({"index", "count"}),
    set: frozenset({"add", "update", "discard", "copy", "union"}),
    frozenset: frozenset({"union"}),
    str: frozenset(
        {"join", "replace", "removeprefix", "removesuffix", "lower", "upper", "startswith", "endswith", "split",
         "strip", "title"}
    ),
}  # fmt: skip
BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}


def type_arguments(hint: Hint) -> tuple[Any, ...]:
    """`typing.get_args`: nested Literals and unions are flat there."""
    flat: list[Any] = []
    for arg in hint.args:
        nested = isinstance(arg, Hint) and arg.origin == hint.origin and hint.origin in {"Literal", "Union"}
        flat.extend(type_arguments(arg) if nested else (arg,))
    return tuple(flat)


def plain_method(owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A method of a dict, list, set or text; UNKNOWN for all that are not on the list."""
    allowed = next((names for kind, names in _PLAIN_METHODS.items() if isinstance(owner, kind)), frozenset())
    if name not in allowed or kwargs or any(is_huge(value) for value in (owner, *args)):
        return UNKNOWN
    if isinstance(owner, str) and not all(is_plain(a) or isinstance(a, list | tuple | dict) for a in args):
        return UNKNOWN
    try:
        result = getattr(owner, name)(*args)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, LookupError):
        return UNKNOWN
    if isinstance(owner, dict) and name in {"keys", "items", "values"}:
        return list(result)
    return result


def is_huge(value: Any) -> bool:
    """Whether a value is too large to go on with."""
    return isinstance(value, str | list | tuple | dict | set) and len(value) > MAX_TEXT


def is_type(value: Any) -> bool:
    """Whether a value stands for a type."""
    return isinstance(value, External | ClassValue | Hint)


def is_plain(value: Any) -> bool:
    """Whether a value is one that `==` compares like Python does."""
    return value is None or isinstance(value, bool | int | float | str)


def is_small(op: ast.operator, left: Any, right: Any) -> bool:
    """Whether an operation on two values can't produce something huge."""
    if isinstance(op, ast.Pow | ast.LShift):
        return isinstance(left, int) and isinstance(right, int) and abs(left) <= 2**16 and abs(right) <= 64
    if isinstance(op, ast.Mult):
        return isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(op, ast.Mod):
        return isinstance(left, int | float)
    return all(not isinstance(v, str | list | tuple) or len(v) <= MAX_TEXT for v in (left, right))
