"""Evaluates expressions of a source tree: names, attributes, containers, and the calls that have to do with parsers.

Nothing of the tree is imported or run. What can't be told is `UNKNOWN`; a budget of steps bounds what a hostile tree
can cost.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final

from qvl_doctor.core.vllm.plain_operations import (
    BINARY,
    MAX_TEXT,
    is_plain,
    is_small,
    is_type,
    plain_method,
    type_arguments,
)
from qvl_doctor.core.vllm.source_tree import Imported, Module, Program
from qvl_doctor.core.vllm.static_values import (
    UNKNOWN,
    Argument,
    BoundMethod,
    CallValue,
    ClassValue,
    EnumMember,
    External,
    FuncValue,
    Hint,
    Instance,
    Kwargs,
    LambdaValue,
    ParserValue,
    SuperValue,
)

STEP_BUDGET = 250_000  # the newest release needs about 35,000
MAX_DEPTH = 60
MAX_ITEMS = 5_000

_ENUM_BASES: Final = frozenset({"Enum", "IntEnum", "StrEnum", "IntFlag", "Flag"})
_ENTRY_NAMES: Final = frozenset({"make_arg_parser", "parse_args", "main"})
_BUILTINS: Final = frozenset(
    {"int", "float", "str", "bool", "list", "dict", "tuple", "set", "frozenset", "type", "object", "bytes", "len",
     "sorted", "isinstance", "hasattr", "getattr", "property", "staticmethod", "classmethod", "range", "super", "any"}
)  # fmt: skip


class OutOfBudgetError(Exception):
    """The tree asks for more steps than any real release needs."""


Scope = dict[str, Any]
Native = Callable[["Evaluator", list[Any], dict[str, Any]], Any]


class Evaluator(ABC):
    """Evaluates the expressions of one program.

    `natives` replaces functions of the tree, by name, with functions of ours (`get_kwargs`).
    """

    def __init__(self, program: Program, natives: dict[str, Native]) -> None:
        self.program = program
        self.natives = natives
        self.steps = 0
        self.depth = 0
        self._globals: dict[tuple[str, str], Any] = {}
        self._resolving: set[tuple[str, str]] = set()

    @abstractmethod
    def run(self, func: FuncValue, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Walk the body of a function with these arguments; its return value."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Any, scope: Scope, module: Module) -> None:
        """Bind what stands on the left of an assignment."""

    # ---- names

    def lookup(self, module: Module, name: str) -> Any:
        """What a global name of a module is bound to; UNKNOWN where nothing in sight binds it."""
        key = (module.name, name)
        if key in self._globals:
            return self._globals[key]
        if key in self._resolving:
            return UNKNOWN
        self._resolving.add(key)
        try:
            value = self._resolve(module, name)
        finally:
            self._resolving.discard(key)
        self._globals[key] = value
        return value

    def _resolve(self, module: Module, name: str) -> Any:
        binding = module.bindings.get(name)
        match binding:
            case None:
                return self._unbound(module, name)
            case Imported(module=target, attribute=attribute):
                return self.imported(target, attribute)
            case ast.ClassDef():
                return ClassValue(module, binding)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return FuncValue(module, binding)
            case _:
                return self.evaluate(binding, {}, module)

    def _unbound(self, module: Module, name: str) -> Any:
        for star in module.stars:
            source = self.program.module(star)
            if source is not None and name in source.bindings:
                return self.lookup(source, name)
        if name in _BUILTINS:
            return External(name)
        return UNKNOWN

    def imported(self, target: str, attribute: str | None) -> Any:
        """The value of `import target` or `from target import attribute`."""
        module = self.program.module(target)
        if attribute is None:
            return module if module is not None else External(target)
        if module is not None:
            value = self.lookup(module, attribute)
            if value is not UNKNOWN:
                return value
        submodule = self.program.module(f"{target}.{attribute}")
        if submodule is not None:
            return submodule
        return UNKNOWN if module is not None else External(f"{target}.{attribute}")

    # ---- classes

    def mro(self, cls: ClassValue) -> list[ClassValue]:
        """The class and its ancestors of the tree, nearest first (depth first: good enough without diamonds)."""
        order: list[ClassValue] = []
        pending = [cls]
        while pending and len(order) < MAX_DEPTH:
            current = pending.pop(0)
            if any(current.node is seen.node for seen in order):
                continue
            order.append(current)
            bases = [self.evaluate(base, {}, current.module) for base in current.node.bases]
            pending = [base for base in bases if isinstance(base, ClassValue)] + pending
        return order

    def is_enum(self, cls: ClassValue) -> bool:
        """Whether the class (or an ancestor) derives from one of the standard enumerations."""
        for ancestor in self.mro(cls):
            for base in ancestor.node.bases:
                value = self.evaluate(base, {}, ancestor.module)
                if isinstance(value, External) and value.tail in _ENUM_BASES:
                    return True
        return False

    def enum_members(self, cls: ClassValue) -> list[EnumMember]:
        """The members in the order in which they are written."""
        members = []
        for statement in cls.node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = self.evaluate(statement.value, {}, cls.module)
                name = statement.targets[0].id
                members.append(EnumMember(cls.name, name, name.lower() if isinstance(value, CallValue) else value))
        return members

    def class_attribute(self, cls: ClassValue, name: str, bound: Any = None) -> Any:
        """An attribute of a class or of its ancestors: a method, an enumeration member, a plain value, a default."""
        for owner in self.mro(cls):
            for statement in reversed(owner.node.body):
                match statement:
                    case ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == name:
                        return FuncValue(owner.module, statement, owner, cls if bound is None else bound)
                    case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                        if self.is_enum(owner):
                            return next((m for m in self.enum_members(owner) if m.name == name), UNKNOWN)
                        return self.evaluate(value, {}, owner.module)
                    case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                        return self.default_of(value, owner.module)
                    case _:
                        pass
        return UNKNOWN

    def default_of(self, value: ast.expr, module: Module) -> Any:
        """The default that the right side of a dataclass field stands for: plain, `field(...)` or `Field(...)`."""
        return self.unwrap_field(self.evaluate(value, {}, module))

    def unwrap_field(self, value: Any) -> Any:
        """`field(default_factory=list)` gives []; a value that is no field stands for itself."""
        if not (isinstance(value, CallValue) and isinstance(value.func, External)):
            return value
        if value.func.tail not in {"field", "Field", "PydanticField"}:
            return value
        keywords = value.args[-1] if value.args and isinstance(value.args[-1], dict) else {}
        if "default" in keywords:
            return keywords["default"]
        if "default_factory" in keywords:
            return self.call(keywords["default_factory"], [], {})
        positional = [a for a in value.args if not isinstance(a, dict)]
        return positional[0] if positional else UNKNOWN

    # ---- expressions

    def evaluate(self, node: ast.expr, scope: Scope, module: Module) -> Any:
        """The value of an expression; UNKNOWN for whatever is not understood."""
        self.step()
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH * 4:
                return UNKNOWN
            method = getattr(self, f"_on_{type(node).__name__}", None)
            return UNKNOWN if method is None else method(node, scope, module)
        finally:
            self.depth -= 1

    def step(self) -> None:
        """Count one step. Raises OutOfBudgetError where there were too many."""
        self.steps += 1
        if self.steps > STEP_BUDGET:
            raise OutOfBudgetError

    def _on_Constant(self, node: ast.Constant, scope: Scope, module: Module) -> Any:  # noqa: N802, ARG002
        return node.value

    def _on_Name(self, node: ast.Name, scope: Scope, module: Module) -> Any:  # noqa: N802
        return scope[node.id] if node.id in scope else self.lookup(module, node.id)

    def _on_Attribute(self, node: ast.Attribute, scope: Scope, module: Module) -> Any:  # noqa: N802
        return self.attribute(self.evaluate(node.value, scope, module), node.attr)

    def attribute(self, owner: Any, name: str) -> Any:  # noqa: PLR0912 # one case a kind of value
        """`owner.name`."""
        match owner:
            case Module():
                value = self.lookup(owner, name)
                if value is UNKNOWN:
                    value = self.program.module(f"{owner.name}.{name}") or UNKNOWN
                return value
            case External(name=base):
                return External(f"{base}.{name}")
            case ClassValue() if name == "__name__":
                return owner.name
            case ClassValue():
                return self.class_attribute(owner, name)
            case Instance(of=cls):
                return self.class_attribute(cls, name, owner)
            case EnumMember():
                return {"value": owner.value, "name": owner.name}.get(name, UNKNOWN)
            case SuperValue(owner=cls, bound=bound):
                for ancestor in self.mro(cls)[1:]:
                    value = self.class_attribute(ancestor, name, bound)
                    if value is not UNKNOWN:
                        return value
                return UNKNOWN
            case ParserValue():
                return BoundMethod(owner, name)
            case dict() | list() | tuple() | set() | str():
                return BoundMethod(owner, name)
            case _:
                return UNKNOWN

    def _on_Subscript(self, node: ast.Subscript, scope: Scope, module: Module) -> Any:  # noqa: N802
        owner = self.evaluate(node.value, scope, module)
        index = self.evaluate(node.slice, scope, module) if not isinstance(node.slice, ast.Slice) else UNKNOWN
        if isinstance(owner, External | ClassValue):
            args = index if isinstance(index, tuple) else (index,)
            return Hint(owner.tail if isinstance(owner, External) else owner.name, args)
        if isinstance(owner, dict | list | tuple | str) and isinstance(index, str | int | EnumMember):
            try:
                return owner[index]  # type: ignore[index] # a wrong kind of key is one of the errors below
            except (KeyError, IndexError, TypeError):
                return UNKNOWN
        return UNKNOWN

    def _on_Tuple(self, node: ast.Tuple, scope: Scope, module: Module) -> Any:  # noqa: N802
        return tuple(self._items(node.elts, scope, module))

    def _on_List(self, node: ast.List, scope: Scope, module: Module) -> Any:  # noqa: N802
        return self._items(node.elts, scope, module)

    def _on_Set(self, node: ast.Set, scope: Scope, module: Module) -> Any:  # noqa: N802
        items = self._items(node.elts, scope, module)
        return set(items) if all(isinstance(i, str | int | External | EnumMember) for i in items) else UNKNOWN

    def _items(self, nodes: Iterable[ast.expr], scope: Scope, module: Module) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self.iterate(self.evaluate(node.value, scope, module)))
            else:
                items.append(self.evaluate(node, scope, module))
        return items

    def iterate(self, value: Any) -> list[Any]:
        """The items that a loop over the value would see; none for what is not known."""
        if isinstance(value, dict | list | tuple | set | frozenset):
            return list(value)[:MAX_ITEMS]
        if isinstance(value, ClassValue) and self.is_enum(value):
            return list(self.enum_members(value))
        return []

    def _on_Dict(self, node: ast.Dict, scope: Scope, module: Module) -> Any:  # noqa: N802
        result = Kwargs()
        for key, value_node in zip(node.keys, node.values, strict=True):
            value = self.evaluate(value_node, scope, module)
            if key is None:
                if isinstance(value, dict):
                    result.update(value)
                    result.source = getattr(value, "source", "") or result.source
                continue
            name = self.evaluate(key, scope, module)
            if isinstance(name, str | int | EnumMember):
                result[name] = value  # type: ignore[index] # dictionaries of the tree may have other keys
        return result

    def _on_JoinedStr(self, node: ast.JoinedStr, scope: Scope, module: Module) -> Any:  # noqa: N802
        parts = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.evaluate(inner, scope, module)
            if not isinstance(value, str | int | float):
                return UNKNOWN
            parts.append(str(value)[:MAX_TEXT])
        return "".join(parts)[:MAX_TEXT]

    def _on_BinOp(self, node: ast.BinOp, scope: Scope, module: Module) -> Any:  # noqa: N802
        left, right = self.evaluate(node.left, scope, module), self.evaluate(node.right, scope, module)
        if isinstance(node.op, ast.BitOr) and (is_type(left) or is_type(right)):
            return Hint("Union", (left, right))
        if left is UNKNOWN or right is UNKNOWN or not is_small(node.op, left, right):
            return UNKNOWN
        apply = BINARY.get(type(node.op))
        try:
            return UNKNOWN if apply is None else apply(left, right)
        except (TypeError, ValueError, ArithmeticError):
            return UNKNOWN

    def _on_UnaryOp(self, node: ast.UnaryOp, scope: Scope, module: Module) -> Any:  # noqa: N802
        value = self.evaluate(node.operand, scope, module)
        if isinstance(node.op, ast.Not):
            truth = self.truth(value)
            return UNKNOWN if truth is None else not truth
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return UNKNOWN

    def _on_BoolOp(self, node: ast.BoolOp, scope: Scope, module: Module) -> Any:  # noqa: N802
        decisive = isinstance(node.op, ast.Or)
        unknown, value = False, UNKNOWN
        for item in node.values:
            value = self.evaluate(item, scope, module)
            truth = self.truth(value)
            if truth is decisive:
                return value
            unknown = unknown or truth is None
        return UNKNOWN if unknown else value

    def _on_Compare(self, node: ast.Compare, scope: Scope, module: Module) -> Any:  # noqa: N802
        if len(node.ops) != 1:
            return UNKNOWN
        left = self.evaluate(node.left, scope, module)
        right = self.evaluate(node.comparators[0], scope, module)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        match node.ops[0]:
            case ast.In() | ast.NotIn() if isinstance(right, dict | list | tuple | set | str):
                try:
                    return (left in right) is isinstance(node.ops[0], ast.In)
                except TypeError:
                    return UNKNOWN
            case ast.Eq() | ast.Is():
                return left == right if is_plain(left) and is_plain(right) else UNKNOWN
            case ast.NotEq() | ast.IsNot():
                return left != right if is_plain(left) and is_plain(right) else UNKNOWN
            case _:
                return UNKNOWN

    def _on_IfExp(self, node: ast.IfExp, scope: Scope, module: Module) -> Any:  # noqa: N802
        truth = self.truth(self.evaluate(node.test, scope, module))
        if truth is None:
            return UNKNOWN
        return self.evaluate(node.body if truth else node.orelse, scope, module)

    def _on_Lambda(self, node: ast.Lambda, scope: Scope, module: Module) -> Any:  # noqa: N802
        return LambdaValue(module, node, scope)

    def _on_ListComp(self, node: ast.ListComp, scope: Scope, module: Module) -> Any:  # noqa: N802
        return self._comprehension(node.elt, node.generators, scope, module)

    def _on_GeneratorExp(self, node: ast.GeneratorExp, scope: Scope, module: Module) -> Any:  # noqa: N802
        return self._comprehension(node.elt, node.generators, scope, module)

    def _comprehension(
        self, element: ast.expr, generators: list[ast.comprehension], scope: Scope, module: Module
    ) -> list[Any]:
        if len(generators) != 1:
            return []
        results = []
        inner = dict(scope)
        for item in self.iterate(self.evaluate(generators[0].iter, scope, module)):
            self.assign(generators[0].target, item, inner, module)
            if all(self.truth(self.evaluate(test, inner, module)) is True for test in generators[0].ifs):
                results.append(self.evaluate(element, inner, module))
        return results

    def truth(self, value: Any) -> bool | None:
        """Whether a value counts as true; None where that is not known."""
        if value is None or isinstance(value, bool | int | float | str | dict | list | tuple | set):
            return bool(value)
        if isinstance(value, ClassValue | FuncValue | External | LambdaValue | ParserValue):
            return True if not isinstance(value, External) else None
        return None

    # ---- calls

    def _on_Call(self, node: ast.Call, scope: Scope, module: Module) -> Any:  # noqa: N802
        func = self.evaluate(node.func, scope, module)
        if isinstance(func, External) and func.name == "super":
            return scope.get("__super__", UNKNOWN)
        args = self._items(node.args, scope, module)
        kwargs = Kwargs()
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope, module)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update(value)
                kwargs.source = getattr(value, "source", "") or kwargs.source
        if isinstance(func, BoundMethod) and isinstance(func.owner, ParserValue):
            return self._parser_method(func.owner, func.name, args, kwargs, module)
        return self.call(func, args, kwargs)

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Carry out a call if it is plain or has to do with parsers; else keep it as a CallValue."""
        match func:
            case BoundMethod(owner=owner, name=name):
                return plain_method(owner, name, args, kwargs)
            case External() if func.tail.endswith("ArgumentParser"):
                return ParserValue(func)
            case External():
                return self._external_call(func, args, kwargs)
            case ClassValue() if func.name.endswith("ArgumentParser"):
                return ParserValue(func)
            case ClassValue():
                return CallValue(func, (*args, kwargs))
            case LambdaValue(module=module, node=node, closure=closure):
                names = [a.arg for a in node.args.args]
                return self.evaluate(node.body, {**closure, **dict(zip(names, args, strict=False))}, module)
            case FuncValue(name=name) if name in self.natives:
                return self.natives[name](self, args, kwargs)
            case FuncValue() if self._concerns_parsers(func, args):
                return self.run(func, args, kwargs)
            case FuncValue():
                return CallValue(func, (*args, kwargs))
            case _:
                return UNKNOWN

    def _concerns_parsers(self, func: FuncValue, args: list[Any]) -> bool:
        return func.name in _ENTRY_NAMES or any(
            isinstance(a, ParserValue) or (isinstance(a, Kwargs) and a.source) for a in args
        )

    def _external_call(self, func: External, args: list[Any], kwargs: dict[str, Any]) -> Any:
        first = args[0] if args else None
        match func.tail, first:
            case "get_args", Hint():
                return type_arguments(first)
            case ("list" | "tuple" | "sorted" | "set" | "frozenset") as name, _ if args:
                items = self.iterate(first)
                if name == "sorted":
                    return sorted(items, key=str)
                return {"list": list, "tuple": tuple}.get(name, list)(items)
            case (("list" | "dict" | "tuple" | "set"), None):
                return {"list": [], "dict": Kwargs(kwargs), "tuple": (), "set": set()}[func.tail]
            case ("int" | "float" | "str" | "bool") as name, bool() | int() | float() | str() if len(args) == 1:
                try:
                    return {"int": int, "float": float, "str": str, "bool": bool}[name](first)
                except ValueError:
                    return UNKNOWN
            case (("deepcopy" | "copy" | "cast"), _) if args:
                return args[-1]
            case _:
                return CallValue(func, (*args, kwargs))

    def _parser_method(self, parser: ParserValue, name: str, args: list[Any], kwargs: Kwargs, module: Module) -> Any:
        match name:
            case "add_argument":
                options = tuple(a for a in args if isinstance(a, str))
                parser.arguments.append(Argument(options, dict(kwargs), kwargs.source or module.path))
                return UNKNOWN
            case "add_argument_group" | "add_mutually_exclusive_group" | "add_subparsers":
                return parser
            case "add_parser":
                child = ParserValue(parser.kind)
                parser.commands[str(args[0]) if args and isinstance(args[0], str) else "?"] = child
                return child
            case _:
                return UNKNOWN
