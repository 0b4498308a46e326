"""The values that the static reader computes with, beside Python's own literals."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Final

from qvl_doctor.core.vllm.source_tree import Module


class Unknown:
    """What can't be told without running the program. There is one: `UNKNOWN`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class External:
    """Something that vLLM did not define: "int", "json.loads", "typing.Literal"."""

    name: str

    @property
    def tail(self) -> str:
        """The last part of the name: where it was imported from does not matter here."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Hint:
    """A subscripted or joined type: Hint("Literal", ("a", "b")), Hint("Union", (int, None))."""

    origin: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClassValue:
    """A class of the tree."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The name it is defined under."""
        return self.node.name


@dataclass(frozen=True, slots=True, eq=False)
class FuncValue:
    """A function of the tree; `owner` is the class whose body holds it, `bound` what it is called on."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: ClassValue | None = None
    bound: Any = None
    closure: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name it is defined under."""
        return self.node.name


@dataclass(frozen=True, slots=True, eq=False)
class LambdaValue:
    """A lambda with the names around it."""

    module: Module
    node: ast.Lambda
    closure: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class CallValue:
    """A call that was not carried out: `optional_type(str)`, `CompilationConfig()`."""

    func: Any
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member of an enumeration of the tree."""

    owner: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object of a class of the tree, of which only the class is known."""

    of: ClassValue


@dataclass(frozen=True, slots=True, eq=False)
class BoundMethod:
    """A method of a plain Python value (dict, list, str) or of a parser."""

    owner: Any
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class SuperValue:
    """`super()` in a method of `owner`, called on `bound`."""

    owner: ClassValue
    bound: Any


class Kwargs(dict[str, Any]):
    """Keyword arguments for `add_argument` made from a field; `source` is the file of the field."""

    source: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """One recorded `add_argument` call."""

    options: tuple[str, ...]
    kwargs: dict[str, Any]
    source: str


@dataclass(slots=True, eq=False)
class ParserValue:
    """An argument parser (or a group of one); every group shares the list of its parser."""

    kind: Any  # ClassValue or External
    arguments: list[Argument] = field(default_factory=list)
    commands: dict[str, ParserValue] = field(default_factory=dict)
