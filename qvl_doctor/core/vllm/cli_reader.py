"""Reads the options of `vllm serve` and of the API server module out of a source tree."""

from __future__ import annotations

import ast
import re
from typing import Any

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record, replace
from qvl_doctor.core.vllm.field_arguments import dialect_of, get_field, make_get_kwargs
from qvl_doctor.core.vllm.interpreter import Interpreter, OutOfBudgetError
from qvl_doctor.core.vllm.knowledge import FlagFact, Nargs, ParserTraits, negations_of
from qvl_doctor.core.vllm.source_tree import Module, Program
from qvl_doctor.core.vllm.static_values import (
    UNKNOWN,
    Argument,
    CallValue,
    ClassValue,
    EnumMember,
    External,
    FuncValue,
    Hint,
    Instance,
    LambdaValue,
    ParserValue,
)

ENTRIES = {
    "serve": ("vllm.entrypoints.cli.serve", "vllm.scripts"),
    "api_server": ("vllm.entrypoints.openai.api_server",),
}
_KINDS = {
    "int": "int",
    "float": "float",
    "str": "str",
    "bool": "str",
    "loads": "json",
    "from_cli": "json",
    "from_json": "json",
    "json_or_pairs": "json-or-pairs",
    "json_config": "json-config",
    "json_config_short": "json-config-short",
    "nullable_kvs": "pairs",
    "union_dict_and_str": "json-or-text",
    "human_readable_int": "human-int",
    "human_readable_int_or_auto": "human-int-or-auto",
    "nullable_str": "str",
    "optional_str": "str",
    "optional_int": "int",
    "optional_float": "float",
    "parse_reasoning_parser": "str",
}
_NULLABLE = frozenset({"nullable_str", "nullable_kvs", "optional_str", "optional_int", "optional_float"})
_DEPRECATION = lazy_regex(r"deprecated\b", re.IGNORECASE)
MAX_NOTE = 240


@record
class CommandLine:
    """Everything read about the command line of a tree."""

    flags: tuple[FlagFact, ...]
    traits: ParserTraits
    config_keys: dict[str, tuple[str, ...]]  # of the flags whose JSON must not hold others


def read_command_line(program: Program) -> CommandLine | None:
    """The options of both front ends; None where the tree has no parser that can be followed."""
    arg_utils = program.module("vllm.engine.arg_utils")
    if arg_utils is None:
        return None
    interpreter = Interpreter(program, {"get_field": get_field})
    interpreter.natives["get_kwargs"] = make_get_kwargs(dialect_of(arg_utils, program.module("vllm.config.utils")))
    parsers: dict[str, ParserValue] = {}
    try:
        for server, modules in ENTRIES.items():
            parser = next((p for m in modules if (p := _parser_of(interpreter, m, server)) is not None), None)
            if parser is not None and len(parser.arguments) > 10:
                parsers[server] = parser
    except OutOfBudgetError:
        return None
    if not parsers:
        return None
    traits = _traits(interpreter, next(iter(parsers.values())).kind)
    return CommandLine(_facts(parsers, traits), traits, _config_keys(parsers))


def _config_keys(parsers: dict[str, ParserValue]) -> dict[str, tuple[str, ...]]:
    return {
        argument.options[0]: tuple(argument.kwargs["keys"])
        for parser in parsers.values()
        for argument in parser.arguments
        if argument.options and isinstance(argument.kwargs.get("keys"), list)
    }


def _parser_of(interpreter: Interpreter, module_name: str, server: str) -> ParserValue | None:
    """Follow the entry point of one front end to the parser that it fills."""
    module = interpreter.program.module(module_name)
    if module is None:
        return None
    kind = _parser_class(interpreter, module)
    root = ParserValue(kind)
    for node in module.tree.body:
        if server == "serve" and isinstance(node, ast.ClassDef):
            cls = ClassValue(module, node)
            method = interpreter.class_attribute(cls, "subparser_init", Instance(cls))
            if isinstance(method, FuncValue):
                interpreter.run(method, [root], {})
    if "serve" in root.commands:
        return root.commands["serve"]
    started: dict[str, Any] = {}
    if server == "serve":
        function = module.bindings.get("main")
        if not isinstance(function, ast.FunctionDef):
            return None
        interpreter.execute(function.body, started, module)
        parsers = [v for v in started.values() if isinstance(v, ParserValue)]
        return next((p.commands["serve"] for p in parsers if "serve" in p.commands), None)
    return _module_parser(interpreter, module, started)


def _module_parser(interpreter: Interpreter, module: Module, scope: dict[str, Any]) -> ParserValue | None:
    for node in module.tree.body:
        if isinstance(node, ast.If) and "__main__" in module.source(node.test):
            functions = [n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
            bodies = [node.body]
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom) and statement.module:
                    target = interpreter.program.module(statement.module)
                    main = target.bindings.get("main") if target else None
                    if target is not None and isinstance(main, ast.FunctionDef):
                        interpreter.execute(main.body, scope, target)
            for name in functions:
                function = module.bindings.get(name)
                if isinstance(function, ast.FunctionDef) and "parser" in module.source(function)[:2000]:
                    bodies.append([s for s in function.body if not isinstance(s, ast.Return)])
            for body in bodies:
                interpreter.execute(body, scope, module)
    return next((v for v in scope.values() if isinstance(v, ParserValue)), None)


def _parser_class(interpreter: Interpreter, module: Module) -> Any:
    for name in ("FlexibleArgumentParser", "argparse"):
        value = interpreter.lookup(module, name)
        if isinstance(value, ClassValue):
            return value
    return External("argparse.ArgumentParser")


def _traits(interpreter: Interpreter, kind: Any) -> ParserTraits:
    """What the parser's class does beyond argparse, from the text of its methods."""
    if not isinstance(kind, ClassValue):
        return ParserTraits(False, False, False, "plain", "", (), "vllm/entrypoints/openai/cli_args.py")
    text = kind.module.source(kind.node)
    parse = next((n for n in kind.node.body if isinstance(n, ast.FunctionDef) and n.name == "parse_args"), None)
    body = kind.module.source(parse) if parse is not None else ""
    model = "plain"
    if "--model" in body:
        model = "moved" if "model_tag" in body and "args[model_idx" in body.replace(" ", "") else "error"
    level = ""
    if '"-O' in body or "'-O" in body:
        level = "--optimization-level" if "--optimization-level" in body else "--compilation-config"
    return ParserTraits(
        underscores="replace('_', '-')" in body or 'replace("_", "-")' in body,
        dotted="create_nested_dict" in body,
        config="--config" in body,
        model_option=model,
        level=level,
        inverse=_inverse_prefixes(interpreter, kind, text),
        source=kind.module.path,
    )


def _inverse_prefixes(interpreter: Interpreter, kind: ClassValue, text: str) -> tuple[tuple[str, str], ...]:
    """Prefix pairs of the action that the parser registers in place of BooleanOptionalAction, if it does."""
    match = re.search(r"register\(\s*\"action\",\s*BooleanOptionalAction,\s*(\w+)", text)
    action = interpreter.lookup(kind.module, match.group(1)) if match else None
    if not isinstance(action, ClassValue):
        return ()
    prefixes = interpreter.class_attribute(action, "_inverse_prefixes")
    return tuple((str(k), str(v)) for k, v in prefixes.items()) if isinstance(prefixes, dict) else ()


def _facts(parsers: dict[str, ParserValue], traits: ParserTraits) -> tuple[FlagFact, ...]:
    found: dict[str, FlagFact] = {}
    for server, parser in parsers.items():
        for argument in parser.arguments:
            fact = _fact(argument, traits, server)
            if fact is None:
                continue
            earlier = found.get(fact.name)
            if earlier is None:
                found[fact.name] = fact
            elif server not in earlier.servers:
                found[fact.name] = _with_server(earlier, server)
    return tuple(sorted(found.values(), key=lambda f: f.name))


def _with_server(fact: FlagFact, server: str) -> FlagFact:
    return replace(fact, servers=(*fact.servers, server))


def _fact(argument: Argument, traits: ParserTraits, server: str) -> FlagFact | None:
    """The flag that one `add_argument` call makes; None for a positional."""
    options = [o for o in argument.options if o.startswith("-")]
    long = [o for o in options if o.startswith("--")]
    if not options:
        return None
    name = (long or options)[0]
    kwargs = argument.kwargs
    action = kwargs.get("action")
    negations: tuple[str, ...] = ()
    value, nullable = kind_of(kwargs.get("type", External("str")))
    nargs: Nargs = _nargs(kwargs.get("nargs"))
    if isinstance(action, External) and action.tail == "BooleanOptionalAction":
        value, nargs, negations = "bool", "switch", negations_of(long[0], tuple(long[1:]), traits.inverse)
    elif action in {"store_true", "store_false", "store_const"}:
        value, nargs = "bool", "switch"
    note = _note(kwargs.get("help"))
    deprecated = kwargs.get("deprecated") is True or note != ""
    return FlagFact(
        name=name,
        aliases=tuple(o for o in options if o != name),
        negations=negations,
        value=value,
        nargs=nargs,
        choices=_choices(kwargs.get("choices")),
        default=plain(kwargs.get("default", False if action == "store_true" else None)),
        nullable=nullable,
        deprecated=deprecated,
        note=note,
        source=argument.source,
        servers=(server,),
    )


def _nargs(value: Any) -> Nargs:
    if value == "?":
        return "optional"
    return "one" if value is None or value is UNKNOWN else "many"


def kind_of(value: Any) -> tuple[str, bool]:
    """The kind of value that a `type=` stands for, and whether "None" or "" is taken for no value."""
    match value:
        case External():
            return _KINDS.get(value.tail, "str"), value.tail in _NULLABLE
        case FuncValue(name=name):
            return _KINDS.get(name, "str"), name in _NULLABLE
        case CallValue(func=func, args=args) if args:
            inner, nullable = kind_of(args[0])
            return inner, nullable or _name(func) == "optional_type"
        case Hint(origin="Literal", args=args) if args:
            return ("int" if isinstance(args[0], int) else "str"), False
        case LambdaValue():
            return "str", False
        case _:
            return "str", False


def _name(value: Any) -> str:
    if isinstance(value, External):
        return value.tail
    return value.name if isinstance(value, FuncValue | ClassValue) else ""


def _choices(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, list | tuple | set):
        return None
    items = [plain(v) for v in value if v is not None]
    if not items or not all(isinstance(i, str | int | float) for i in items):
        return None
    ordered = [*dict.fromkeys(items)]
    return tuple(sorted(ordered, key=str) if isinstance(value, set) else ordered)


def plain(value: Any) -> Any:
    """The JSON form of a default: plain values stand for themselves, everything else for None."""
    match value:
        case None | bool() | int() | str():
            return value if not isinstance(value, str) or len(value) <= 200 else None
        case float():
            return value
        case EnumMember(value=inner):
            return plain(inner)
        case list() | tuple() if len(value) <= 50:
            items = [plain(v) for v in value]
            return items if all(isinstance(i, str | int | float) for i in items) else None
        case dict() if not value:
            return {}
        case _:
            return None


def _note(text: Any) -> str:
    """The sentence of a help text that says that the option is deprecated, "" where none does."""
    if not isinstance(text, str) or not _DEPRECATION.search(text):
        return ""
    flat = " ".join(text.split())
    sentences = re.split(r"(?<=[.!])\s+", flat)
    for index, sentence in enumerate(sentences):
        if re.search(r"^\W*deprecated\b|(?:is|are|has been|and|this (?:flag|option|argument)) deprecated\b", sentence,
                     re.IGNORECASE):  # fmt: skip
            return " ".join(sentences[index : index + 2])[:MAX_NOTE]
    return ""
