"""What vLLM's own `get_kwargs` makes of the fields of a configuration class (releases from 0.8.4 on).

Its body is not interpreted; the few ways in which it differs between releases are recognised in its text.
"""

from __future__ import annotations

import ast
from typing import Any

from qvl_doctor.core.records import record
from qvl_doctor.core.vllm.evaluator import Evaluator
from qvl_doctor.core.vllm.source_tree import Module
from qvl_doctor.core.vllm.static_values import (
    UNKNOWN,
    CallValue,
    ClassValue,
    External,
    FuncValue,
    Hint,
    Kwargs,
)

_LISTS = {"list": "list", "List": "list", "tuple": "tuple", "Tuple": "tuple", "set": "set", "Set": "set",
          "Sequence": "other"}  # fmt: skip
_DICTS = frozenset({"dict", "Dict"})
_UNIONS = frozenset({"Union", "Optional", "UnionType"})


@record
class Field:
    """One field of a configuration dataclass: its type, its default (UNKNOWN if it needs running), its docstring."""

    name: str
    hint: Any
    default: Any
    doc: str
    source: str


@record
class Dialect:
    """How this release's `get_kwargs` treats types."""

    dataclass_as_json: bool
    open_literals: bool  # Literal | str: shown, but not enforced
    optional_switch: bool  # bool | str | None: a switch with an optional value
    pairs: bool  # a dictionary may also be KEY=VALUE,KEY=VALUE
    dict_or_text: bool
    sets: bool
    from_cli: bool  # a configuration class may read the text itself, and then takes more than an object
    forbids: bool  # unknown keys of a configuration are an error
    short_numbers: bool  # 80m and 1k are taken inside the JSON of a configuration
    dict_classes: bool  # a subclass of dict counts as a dict, not as a foreign class
    numbers: dict[str, str]  # field name -> function that reads "32k"


def dialect_of(arg_utils: Module, config_utils: Module | None) -> Dialect:
    """Read the dialect out of the text of `get_kwargs` and of the functions beside it; `config_utils` has the decorator
    of configuration classes, where the release has one of its own.
    """
    decorator = None if config_utils is None else config_utils.bindings.get("config")
    forbids = config_utils is not None and isinstance(decorator, ast.AST) and "forbid" in config_utils.source(decorator)
    functions = {
        name: arg_utils.source(node) for name, node in arg_utils.bindings.items() if isinstance(node, ast.FunctionDef)
    }
    body_name = "_compute_kwargs" if "_compute_kwargs" in functions else "get_kwargs"
    body = functions.get(body_name, "")
    node = arg_utils.bindings.get(body_name)
    parse_json = functions.get("parse_type", "") + functions.get("optional_type", "")
    return Dialect(
        dataclass_as_json="dataclass_cls" in body,
        open_literals="metavar" in functions.get("literal_to_kwargs", ""),
        optional_switch='"?"' in body and "const" in body,
        pairs="nullable_kvs" in parse_json,
        dict_or_text="union_dict_and_str" in body,
        sets="set)" in body and "type_hints, set" in body,
        from_cli="from_cli" in body,
        forbids=forbids,
        short_numbers="_expand_json_human_readable_numbers" in body,
        dict_classes="is_dict_subclass" in body,
        numbers=_number_readers(node) if isinstance(node, ast.FunctionDef) else {},
    )


def _number_readers(function: ast.FunctionDef) -> dict[str, str]:
    """Which fields take "32k": from `if name in {...}: kwargs[name]["type"] = human_readable_int`."""
    named: dict[str, set[str]] = {}
    readers: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = _strings(node.value)
    for node in ast.walk(function):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
            continue
        if not (isinstance(node.test.left, ast.Name) and node.test.left.id == "name"):
            continue
        compared = node.test.comparators[0]
        names = named.get(compared.id, set()) if isinstance(compared, ast.Name) else _strings(compared)
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
                for name in names:
                    readers.setdefault(name, statement.value.id)
    return readers


def _strings(node: ast.expr) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def fields_of(interpreter: Evaluator, cls: ClassValue, *, init_only: bool = False) -> list[Field]:
    """The dataclass fields in the order that `dataclasses.fields` gives: those of ancestors first.

    `init_only`: what the constructor takes instead: pseudo-fields for it too, none that are left out of it.
    """
    found: dict[str, Field] = {}
    for owner in reversed(interpreter.mro(cls)):
        body = owner.node.body
        for index, statement in enumerate(body):
            if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
                continue
            hint = _hint(interpreter, statement.annotation, owner.module)
            if _origin(hint) == "ClassVar" or (_origin(hint) == "InitVar" and not init_only):
                continue
            if init_only and _left_out(statement.value):
                continue
            default = UNKNOWN
            if statement.value is not None:
                default = interpreter.default_of(statement.value, owner.module)
            following = body[index + 1] if index + 1 < len(body) else None
            name = statement.target.id
            found[name] = Field(name, hint, default, _docstring(following), owner.module.path)
    return list(found.values())


def _left_out(value: ast.expr | None) -> bool:
    """field(init=False): set by the class itself."""
    return isinstance(value, ast.Call) and any(
        k.arg == "init" and isinstance(k.value, ast.Constant) and k.value.value is False for k in value.keywords
    )


def _docstring(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value.strip() if isinstance(statement.value.value, str) else ""
    return ""


def _hint(interpreter: Evaluator, node: ast.expr, module: Module) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return UNKNOWN
    return interpreter.evaluate(node, {}, module)


def _origin(hint: Any) -> str:
    if isinstance(hint, Hint):
        return hint.origin
    return hint.tail if isinstance(hint, External) else ""


def flatten(hint: Any) -> list[Any]:
    """The members of a union, `Annotated` taken off."""
    if isinstance(hint, Hint):
        if hint.origin == "Annotated" and hint.args:
            return flatten(hint.args[0])
        if hint.origin in {"SkipValidation"} and hint.args:
            return flatten(hint.args[0])
        if hint.origin in _UNIONS:
            members = [m for arg in hint.args for m in flatten(arg)]
            return [*members, None] if hint.origin == "Optional" else members
    return [hint]


def make_get_kwargs(dialect: Dialect) -> Any:
    """The replacement of the tree's `get_kwargs` for the interpreter."""

    def get_kwargs(interpreter: Evaluator, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
        cls = args[0] if args else None
        if not isinstance(cls, ClassValue):
            return UNKNOWN
        result = Kwargs()
        result.source = cls.module.path
        for field in fields_of(interpreter, cls):
            result[field.name] = field_kwargs(interpreter, field, dialect)
        return result

    return get_kwargs


def field_kwargs(interpreter: Evaluator, field: Field, dialect: Dialect) -> Kwargs:
    """The keyword arguments that `add_argument` gets for one field."""
    members = flatten(field.hint)
    kwargs = Kwargs(default=field.default, help=field.doc)
    kwargs.source = field.source
    origins = {_origin(m) for m in members}
    literal = next((m for m in members if _origin(m) == "Literal" and isinstance(m, Hint)), None)
    sequence = next((m for m in members if _LISTS.get(_origin(m), "other") != "other"), None)
    is_set = _LISTS.get(_origin(sequence), "") == "set"
    configuration = next((m for m in members if _is_dataclass(interpreter, m)), None)
    if dialect.dataclass_as_json and configuration is not None:
        kwargs.update(_configuration(interpreter, configuration, dialect))
    elif dialect.optional_switch and origins == {"bool", "str", ""} and None in members:
        kwargs.update(type=External("str"), nargs="?", const=True)
    elif "bool" in origins:
        kwargs["action"] = External("argparse.BooleanOptionalAction")
    elif literal is not None:
        kwargs.update(_literal(literal, open_ended=dialect.open_literals and "str" in origins))
    elif sequence is not None and (dialect.sets or not is_set):
        kwargs.update(_sequence(sequence))
    elif "int" in origins:
        kwargs["type"] = External(dialect.numbers.get(field.name, "int"))
    elif "float" in origins:
        kwargs["type"] = External("float")
    elif origins & _DICTS or (dialect.dict_classes and any(_is_dict_class(interpreter, m) for m in members)):
        others = [
            m
            for m in members
            if m is not None
            and _origin(m) not in _DICTS
            and not (dialect.dict_classes and _is_dict_class(interpreter, m))
        ]
        text_too = dialect.dict_or_text and bool(others)
        kwargs["type"] = External("union_dict_and_str" if text_too else "json.loads")
        if dialect.pairs and not text_too:
            kwargs["type"] = External("json_or_pairs")
    else:
        kwargs["type"] = External("str")
    if None in members and "action" not in kwargs:
        kwargs["type"] = CallValue(External("optional_type"), (kwargs["type"],))
        if isinstance(kwargs.get("choices"), list):
            kwargs["choices"].append(None)
    return kwargs


def _configuration(interpreter: Evaluator, cls: ClassValue, dialect: Dialect) -> dict[str, Any]:
    """Of a field that is a configuration class itself: how its text is read, and which keys it has."""
    if dialect.from_cli and isinstance(interpreter.class_attribute(cls, "from_cli"), FuncValue):
        return {"type": External("json.loads")}
    kind = External("json_config_short" if dialect.short_numbers else "json_config")
    if not dialect.forbids:
        return {"type": kind}
    return {"type": kind, "keys": [f.name for f in fields_of(interpreter, cls, init_only=True)]}


def literal_values(literal: Hint) -> list[Any]:
    """The values of a Literal, those of nested ones included: Literal["auto", RunnerType]."""
    values: list[Any] = []
    for member in literal.args:
        values.extend(literal_values(member) if isinstance(member, Hint) else [member])
    return values


def _literal(literal: Hint, *, open_ended: bool) -> dict[str, Any]:
    options = [o for o in literal_values(literal) if isinstance(o, str | int)]
    kind = "int" if options and isinstance(options[0], int) else "str"
    return {"type": External(kind), "metavar" if open_ended else "choices": sorted(options, key=str)}


def _sequence(sequence: Any) -> dict[str, Any]:
    args = sequence.args if isinstance(sequence, Hint) else (External("str"),)
    element = args[0] if args else External("str")
    if isinstance(element, Hint) and element.origin == "Literal":
        kwargs = _literal(element, open_ended=False)
    elif isinstance(element, Hint):
        kwargs = {"type": External("str")}
    else:
        kwargs = {"type": element}
    fixed = _LISTS.get(_origin(sequence)) == "tuple" and Ellipsis not in args
    return {**kwargs, "nargs": len(args) if fixed else "+"}


def _is_dataclass(interpreter: Evaluator, member: Any) -> bool:
    if not isinstance(member, ClassValue) or interpreter.is_enum(member):
        return False
    for decorator in member.node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        if name in {"dataclass", "config"}:
            return True
    return False


def _is_dict_class(interpreter: Evaluator, member: Any) -> bool:
    if not isinstance(member, ClassValue):
        return False
    return any(
        _origin(interpreter.evaluate(base, {}, owner.module)) in _DICTS
        for owner in interpreter.mro(member)
        for base in owner.node.bases
    )


def get_field(interpreter: Evaluator, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
    """The tree's `get_field(Class, "name")`: the default of that field."""
    cls, name = [*args, None, None][:2]
    if isinstance(cls, ClassValue) and isinstance(name, str):
        return interpreter.class_attribute(cls, name)
    return UNKNOWN
