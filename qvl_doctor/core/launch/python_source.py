"""Python that builds an engine: LLM(…), EngineArgs(…), AsyncEngineArgs(…). Parsed with `ast`, never run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import warnings
from collections.abc import Mapping

from qvl_doctor.core.launch.argv import Arguments, canonical
from qvl_doctor.core.launch.assemble import Context, Surroundings, assemble
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.detect import CALL
from qvl_doctor.core.launch.places import EnvPlace, EnvSlot, Splices
from qvl_doctor.core.launch.reader import ShellReader
from qvl_doctor.core.launch.recognise import Program
from qvl_doctor.core.launch.values import Flag, Layer, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record, replace

MAX_PYTHON_CHARACTERS = 1_000_000
MAX_CALLS = 500
CALLS = ("LLM", "EngineArgs", "AsyncEngineArgs", "AsyncLLM")
_ELLIPSIS = lazy_regex(r"\.\.\.[ \t]{0,8},?")
_STARTS_SERVER = lazy_regex(r"\bvllm\s{1,4}serve\b|\bvllm\.entrypoints\.")
_UNKNOWN = object()


def parse_python(text: str) -> ast.Module | None:
    """The syntax tree; None if it is not Python (or nested beyond the parser's limits)."""
    if len(text) > MAX_PYTHON_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings are not our output
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Positions:
    """Character positions of ast's line and UTF-8 byte column."""

    def __init__(self, text: str) -> None:
        # ast counts \n, \r\n and \r as line ends, and nothing else
        self.starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]
        self.text = text

    def of(self, line: int, column: int) -> int:
        start = self.starts[min(line, len(self.starts)) - 1]
        stop = self.starts[line] if line < len(self.starts) else len(self.text)
        row = self.text[start:stop]
        if row.isascii():
            return start + column
        return start + len(row.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        return (
            self.of(node.lineno, node.col_offset),
            self.of(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
        )


@record(frozen=False)
class _Names:
    """What the module assigns plainly."""

    values: dict[str, object] = field(default_factory=dict)
    dicts: dict[str, ast.Dict | ast.Call] = field(default_factory=dict)


def _literal(node: ast.expr, names: Mapping[str, object]) -> object:
    """The value of a literal or of a name that is one; `_UNKNOWN` else."""
    try:
        return _folded(node, names, 0)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ZeroDivisionError):
        return _UNKNOWN


def _folded(node: ast.expr, names: Mapping[str, object], depth: int) -> object:
    """Literals, with sums and products of whole numbers in them worked out (28 * 28); ValueError for the rest."""
    if depth > 20:
        raise ValueError("nested too deeply")
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Dict) and None not in node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return {ast.literal_eval(key): _folded(value, names, depth + 1) for key, value in pairs if key is not None}
    if isinstance(node, ast.List | ast.Tuple):
        return [_folded(item, names, depth + 1) for item in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _folded(node.left, names, depth + 1), _folded(node.right, names, depth + 1)
        if not (isinstance(left, int) and isinstance(right, int)) or max(abs(left), abs(right)) > 1 << 62:
            raise ValueError("not whole numbers")
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.FloorDiv):
            return left // right
        raise ValueError("another operator")
    return ast.literal_eval(node)


def python_commands(layer: Layer, context: Context) -> list[LaunchCommand]:
    """The engine calls of a module, in order; where it is not whole Python, those calls that are."""
    tree = parse_python(layer.text)
    if tree is not None:
        return _calls(tree, layer, context)
    found: list[LaunchCommand] = []
    for match in list(CALL.finditer(layer.text))[:50]:
        end = closing(layer.text, match.end() - 1)
        start = match.start()
        snippet = (parse_python(layer.text[start:end]) or _without_ellipses(layer.text[start:end])) if end else None
        if snippet is not None:
            found.extend(_calls(snippet, layer.part(start, end), context))
    return found


def _without_ellipses(text: str) -> ast.Module | None:
    """A call as people shorten it, LLM(model=m, ..., x=1), with the same positions."""
    return parse_python(_ELLIPSIS.sub(lambda match: " " * len(match[0]), text))


def closing(text: str, position: int) -> int:
    """Behind the parenthesis that closes the one at `position`; 0 if none does within 8 000 characters."""
    depth = 0
    quote = ""
    for at in range(position, min(position + 8_000, len(text))):
        character = text[at]
        if quote:
            quote = "" if character == quote and text[at - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1
    return 0


def _calls(tree: ast.Module, layer: Layer, context: Context) -> list[LaunchCommand]:
    positions = _Positions(layer.text)
    names = _Names()
    slots: list[EnvSlot] = []
    calls: list[ast.Call] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _assign(node.targets[0], node.value, names, slots, layer, positions)
        elif isinstance(node, ast.Call):
            if _called(node) in CALLS:
                calls.append(node)
            elif _called(node) in ("setdefault", "putenv") and len(node.args) == 2:
                _environ(node.args[0], node.args[1], slots, layer, positions)
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    found = [_command(call, names, tuple(slots), layer, positions, context) for call in calls[:MAX_CALLS]]
    return found or _spawned(tree, layer, positions, context)


def _spawned(tree: ast.Module, layer: Layer, positions: _Positions, context: Context) -> list[LaunchCommand]:
    """Servers that a program starts as a process: ["vllm", "serve", …] or the same as one string. Shown, not edited."""
    found: list[LaunchCommand] = []
    for node in ast.walk(tree):
        text: object = None
        if isinstance(node, ast.List | ast.Tuple):
            words = [_literal(item, {}) for item in node.elts[:500]]
            known = [word if isinstance(word, str) else "$UNKNOWN" for word in words]
            text = shlex.join(known) if words[:1] and isinstance(words[0], str) else None
        elif isinstance(node, ast.Constant):
            text = node.value
        if not isinstance(node, ast.expr) or not isinstance(text, str) or not _STARTS_SERVER.search(text):
            continue
        start, end = positions.span(node)
        begin, finish = layer.begin(start), layer.finish(end)
        inner = Layer(text, [begin] * len(text), [finish] * len(text), lambda _text: None, layer.origin)
        for command in ShellReader(inner, context).read()[:MAX_CALLS]:
            if command.flags or command.model:
                found.append(replace(command, editable=False, not_editable_reason=Phrase("locked_program")))
        if len(found) >= MAX_CALLS:
            break
    return found


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _assign(
    target: ast.expr, value: ast.expr, names: _Names, slots: list[EnvSlot], layer: Layer, positions: _Positions
) -> None:
    if isinstance(target, ast.Name):
        known = _literal(value, {})
        if isinstance(known, str | int | float):
            names.values[target.id] = known
        if isinstance(value, ast.Dict) or (isinstance(value, ast.Call) and _called(value) == "dict"):
            names.dicts[target.id] = value
    elif (
        isinstance(target, ast.Subscript) and isinstance(target.value, ast.Attribute) and target.value.attr == "environ"
    ):
        _environ(target.slice, value, slots, layer, positions)


def _environ(name: ast.expr, value: ast.expr, slots: list[EnvSlot], layer: Layer, positions: _Positions) -> None:
    known, given = _literal(name, {}), _literal(value, {})
    if isinstance(known, str) and isinstance(given, str):
        slots.append(_slot(known, given, positions.span(value), layer))


def _slot(name: str, value: str, span: tuple[int, int], layer: Layer) -> EnvSlot:
    def write(text: str) -> Splice | None:
        made = layer.escape(_string(text, layer.text[span[0]]))
        return None if made is None else Splice(layer.begin(span[0]), layer.finish(span[1]), made)

    return EnvSlot(name, value, write, lambda: None)


@record
class Argument:
    """One keyword: its own layer span and that of its value."""

    flag: Flag
    start: int
    end: int
    value: tuple[int, int]
    in_dict: bool  # "name": value of a dict that is passed as **name


def _command(
    call: ast.Call, names: _Names, slots: tuple[EnvSlot, ...], layer: Layer, positions: _Positions, context: Context
) -> LaunchCommand:
    start, end = positions.span(call)
    arguments: list[Argument] = []
    unknown = False
    for keyword in call.keywords:
        if keyword.arg is not None:
            arguments.append(_keyword(keyword, names, layer, positions, context))
            continue
        inner = names.dicts.get(keyword.value.id) if isinstance(keyword.value, ast.Name) else keyword.value
        spread = _spread(inner, names, layer, positions, context)
        unknown = unknown or spread is None
        arguments.extend(spread or [])
    model_word, model = _model(call, names, layer, positions)
    flags = tuple(argument.flag for argument in arguments)
    around = Surroundings(
        layer.begin(start),
        layer.finish(end),
        {slot.name: slot.value for slot in slots},
        env_place=EnvPlace(slots, lambda _name, _value: None),
        reason=Phrase("locked_elsewhere") if unknown else None,
    )
    command = assemble(context, [], Program(0, 0, "llm"), Arguments(flags, (), ()), around)
    opening = _opening(call, layer, positions)
    place = CallPlace(layer, opening, _last_end(call, positions), tuple(arguments), bool(call.args))
    return replace(
        command,
        line=context.lines.line(around.start),
        program=_called(call),
        model=model if model is not None else command.model,
        model_word=model_word,
        place=place,
    )


def _opening(call: ast.Call, layer: Layer, positions: _Positions) -> int:
    """Behind the call's opening parenthesis."""
    return layer.text.find("(", positions.span(call.func)[1]) + 1


def _last_end(call: ast.Call, positions: _Positions) -> int | None:
    ends = [positions.span(node)[1] for node in _arguments(call)]
    return max(ends) if ends else None


def _arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    return [*call.args, *call.keywords]


def _model(call: ast.Call, names: _Names, layer: Layer, positions: _Positions) -> tuple[Word | None, str | None]:
    if not call.args or isinstance(call.args[0], ast.Starred):
        return None, None
    value = _literal(call.args[0], names.values)
    start, end = positions.span(call.args[0])
    text = value if isinstance(value, str) else layer.text[start:end]
    return Word(text, layer, start, end), text if isinstance(value, str) else None


def _keyword(keyword: ast.keyword, names: _Names, layer: Layer, positions: _Positions, context: Context) -> Argument:
    start, end = positions.span(keyword)
    return _argument(keyword.arg or "", keyword.value, (start, end), names, layer, positions, context, in_dict=False)


def _spread(
    node: ast.expr | None, names: _Names, layer: Layer, positions: _Positions, context: Context
) -> list[Argument] | None:
    """The arguments of **{…} or **name; None if they are not written out."""
    if isinstance(node, ast.Call) and _called(node) == "dict" and not node.args:
        return [_keyword(keyword, names, layer, positions, context) for keyword in node.keywords if keyword.arg]
    if not isinstance(node, ast.Dict):
        return None
    found: list[Argument] = []
    for key, value in zip(node.keys, node.values, strict=True):
        name = _literal(key, {}) if key is not None else _UNKNOWN
        if key is None or not isinstance(name, str):
            return None
        span = (positions.span(key)[0], positions.span(value)[1])
        found.append(_argument(name, value, span, names, layer, positions, context, in_dict=True))
    return found


def _argument(
    name: str,
    value: ast.expr,
    span: tuple[int, int],
    names: _Names,
    layer: Layer,
    positions: _Positions,
    context: Context,
    *,
    in_dict: bool,
) -> Argument:
    at = positions.span(value)
    known = _literal(value, names.values)
    text, negated = _text(known, layer.text[at[0] : at[1]])
    long = canonical("--" + name, context.grammar)
    flag = Flag(
        name=long.name,
        path=(),
        negated=negated != long.negated,
        spelled=name,
        value=text,
        line=context.lines.line(layer.begin(span[0])),
        start=layer.begin(span[0]),
        end=layer.finish(span[1]),
        values=(text,) if text is not None else (),
        joined=True,
        unresolved=known is _UNKNOWN,
        words=(Word(name, layer, span[0], span[0] + len(name)),),
    )
    return Argument(flag, span[0], span[1], at, in_dict)


def _text(value: object, source: str) -> tuple[str | None, bool]:
    """A flag's value and whether it is turned off."""
    if value is _UNKNOWN:
        return source, False
    if isinstance(value, bool):
        return None, not value
    if isinstance(value, str):
        return value, False
    try:
        return json.dumps(value, ensure_ascii=False), False
    except (TypeError, ValueError, RecursionError):
        return source, False


def _string(text: str, like: str) -> str:
    """A string literal in the quotes of `like`."""
    made = repr(text)
    if like == '"' and made[0] == "'" and '"' not in text:
        return '"' + made[1:-1].replace("\\'", "'") + '"'
    return made


def literal_text(value: str | None, *, off: bool, like: str) -> str:
    """A flag's value as Python: JSON becomes a dict or list, numbers and booleans stay such, the rest is text."""
    if value is None:
        return "False" if off else "True"
    if value.lower() in ("true", "false"):
        return value.capitalize()
    if value[:1] in ("{", "[") or re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?", value):
        try:
            made = repr(json.loads(value))
            return made.replace("'", '"') if '"' not in made and like == '"' else made
        except (ValueError, RecursionError):
            pass
    return _string(value, like)


@record
class CallPlace:
    """Keyword arguments of a call."""

    layer: Layer
    opening: int
    last: int | None  # behind the last argument
    arguments: tuple[Argument, ...]
    positional: bool

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        name = spelled.removeprefix("--no-").lstrip("-").replace("-", "_")
        text = literal_text(value, off=spelled.startswith("--no-"), like=self._quote())
        argument = self._find(flag)
        if flag is None or argument is None:
            return self._append(name, text)
        if flag.spelled == name:
            return self._splice(*argument.value, text)
        if argument.in_dict:
            quote = self.layer.text[argument.start]
            return self._splice(argument.start, argument.end, f"{quote}{name}{quote}: {text}")
        return self._splice(argument.start, argument.end, f"{name}={text}")

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        argument = self._find(flag)
        if argument is None:
            return None
        old = self.layer.text[argument.value[0]]
        like = old if old in "'\"" else self._quote()
        return self._splice(*argument.value, literal_text(value, off=False, like=like))

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        argument = self._find(flag)
        if argument is None:
            return None
        start = argument.start + (1 if argument.in_dict else 0)
        name = spelled.removeprefix("--no-").lstrip("-").replace("-", "_")
        return self._splice(start, start + len(flag.spelled), name)

    def remove(self, flag: Flag) -> Splices | None:
        argument = self._find(flag)
        if argument is None:
            return None
        text = self.layer.text
        before = re.compile(r"[ \t]*").match(text, text.rfind("\n", 0, argument.start) + 1)
        own_line = re.compile(r"[ \t]*,?[ \t]*(?:#[^\n]*)?(?:\r?\n)").match(text, argument.end)
        if before and before.end() == argument.start and own_line:
            return self._splice(before.start(), own_line.end(), "")
        behind = re.compile(r"[ \t]*,\s*").match(text, argument.end)
        if behind:
            return self._splice(argument.start, behind.end(), "")
        start = len(text[: argument.start].rstrip())
        return self._splice(start - 1 if text[start - 1 : start] == "," else argument.start, argument.end, "")

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        if word is None:
            return self._append("model", _string(model, self._quote()))
        return self._splice(word.lstart, word.lend, _string(model, self.layer.text[word.lstart]))

    def _find(self, flag: Flag | None) -> Argument | None:
        return next((argument for argument in self.arguments if argument.flag is flag), None)

    def _quote(self) -> str:
        """The quotes that the call's strings use."""
        text = self.layer.text[self.opening : self.last or self.opening]
        return "'" if "'" in text and '"' not in text else '"'

    def _append(self, name: str, text: str) -> Splices | None:
        if self.last is None:
            return self._splice(self.opening, self.opening, f"{name}={text}")
        own = [argument for argument in self.arguments if not argument.in_dict]
        separator = ", "
        if own:
            start = own[-1].start
            line = self.layer.text.rfind("\n", 0, start) + 1
            if line > self.opening - 1 and not self.layer.text[line:start].strip():
                newline = "\r\n" if self.layer.text[line - 2 : line] == "\r\n" else "\n"
                separator = "," + newline + self.layer.text[line:start]
        return self._splice(self.last, self.last, f"{separator}{name}={text}")

    def _splice(self, start: int, end: int, text: str) -> Splices | None:
        written = self.layer.escape(text) if text else ""
        if written is None:
            return None
        begin = self.layer.begin(start) if end > start else self.layer.finish(start)
        return [Splice(begin, self.layer.finish(end) if end > start else begin, written)]
