"""What compose files and Kubernetes manifests have in common: commands and variables as YAML nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qvl_doctor.core.launch.assemble import Context, Surroundings, assemble, read_arguments
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.docker import is_server_image
from qvl_doctor.core.launch.items import Item, ItemPlace, PartsPlace, items_of, scalar_word
from qvl_doctor.core.launch.places import EnvSlot, Place, ShellPlace
from qvl_doctor.core.launch.reader import MAX_NESTING, ShellReader, implied_program, nested_layer
from qvl_doctor.core.launch.recognise import Program, find_nested, find_server
from qvl_doctor.core.launch.shell import ARGUMENTS, Lexer
from qvl_doctor.core.launch.values import Flag, Layer, Splice, Word
from qvl_doctor.core.launch.yaml_nodes import Node, indent_of, line_end, newline_of, scalar_layer, written_scalar
from qvl_doctor.core.records import record, replace


@record
class Part:
    """The words of one node: an entry point, a command, arguments."""

    node: Node
    words: tuple[Word, ...]
    items: tuple[Item, ...]  # of a list
    layer: Layer | None  # of a string


def part_of(node: Node | None) -> Part | None:
    """A list's items, or a string split into arguments; None for anything else."""
    if node is None:
        return None
    if node.kind == "sequence":
        items = items_of(node)
        return Part(node, tuple(item.word for item in items), items, None)
    layer = scalar_layer(node) if node.kind == "scalar" else None
    if layer is None:
        word = scalar_word(node) if node.text else None
        return Part(node, (word,), (), None) if word else None
    from qvl_doctor.core.launch.expand import literal_word  # noqa: PLC0415 - one use

    words = [literal_word(token, layer) for token in Lexer(layer, ARGUMENTS).tokens() if token.kind == "word"]
    return Part(node, tuple(word for word in words if word.value.strip()), (), layer)


def command_of(
    context: Context, parts: Sequence[Part | None], image: str | None, around: Surroundings
) -> LaunchCommand | None:
    """The command that entry point and arguments make up; None if it starts no vLLM server."""
    given = [part for part in parts if part is not None and part.words]
    words = [word for part in given for word in part.words]
    program = find_server(words)
    if program is None:
        nested = find_nested(words)
        if nested is not None:
            return _nested(context, words, nested, around)
        if not image or not is_server_image(image):
            return None
        program = implied_program(words)
    read = read_arguments(context, words[program.end :], program.server)
    command = assemble(context, words, program, read, around)
    if not given:
        return command
    places = tuple(
        (part.words, place)
        for number, part in enumerate(given)
        if (place := _place(part, _before(given, number), program, read.flags)) is not None
    )
    return replace(command, place=PartsPlace(places) if places else None)


def _before(given: Sequence[Part], number: int) -> int:
    """How many words stand in the parts before one."""
    return sum(len(part.words) for part in given[:number])


def _place(part: Part, before: int, program: Program, flags: tuple[Flag, ...]) -> Place | None:
    own = min(max(program.end - before, 0), len(part.words))  # of the program's words, those in this part
    positional = program.server == "serve" and own > 0
    if part.items:
        words = {id(word) for word in part.words}
        own_flags = tuple(flag for flag in flags if id(flag.words[0]) in words)
        return ItemPlace(part.node.layer, part.items, part.node.flow, own, positional, own_flags)
    if part.layer is None:
        return None
    program_end = part.words[own - 1].lend if own else part.words[0].lstart
    return ShellPlace(part.layer, program_end, part.words[-1].lend, flags, positional)


def _nested(context: Context, words: Sequence[Word], at: int, around: Surroundings) -> LaunchCommand | None:
    """sh -c TEXT: the text is shell."""
    word = words[at]
    layer = word.layer if word.raw == word.value else nested_layer(word)
    reader = ShellReader(layer, context, depth=MAX_NESTING - 1)
    found = reader.read()
    if not found:
        return None
    inner = found[0]
    env = {**around.env, **inner.env}
    slots = (*(around.env_place.slots if around.env_place else ()), *(inner.env_place.slots if inner.env_place else ()))
    place = replace(around.env_place, slots=slots) if around.env_place else inner.env_place
    outer = assemble(context, words, Program(0, 0, inner.server), read_arguments(context, [], "serve"), around)
    return replace(
        inner,
        start=around.start,
        end=around.end,
        text=outer.text,
        env=env,
        env_unresolved=inner.env_unresolved | around.env_unresolved,
        env_place=place,
        option_place=around.option_place,
        container=around.container,
        version=outer.version,
        wrappers=("sh", "-c", *inner.wrappers),
        editable=inner.editable and outer.editable,
        not_editable_reason=inner.not_editable_reason or outer.not_editable_reason,
    )


# --- nodes as text


def replaced(node: Node, value: str, *, text: bool = True) -> Splice:
    """A scalar's value, in its quoting style."""
    layer = node.layer
    raw = layer.text[node.body : node.end]
    written = written_scalar(value, raw, text=text)
    if node.end == node.body:
        return Splice(layer.finish(node.body), layer.finish(node.body), " " + written)
    return Splice(layer.begin(node.body), layer.finish(node.end), written)


def lines_gone(layer: Layer, start: int, end: int) -> Splice:
    """The lines from that of `start` to that of `end` (positions in the layer)."""
    begin = layer.text.rfind("\n", 0, start) + 1
    if layer.text[begin:start].strip(" \t-"):  # something else stands before it on the line
        begin = start
    stop = layer.text.find("\n", max(end - 1, start))
    stop = len(layer.text) if stop < 0 else stop + 1
    return Splice(layer.begin(begin), layer.finish(stop), "")


def line_behind(node: Node, lines: Sequence[str], indent: str) -> Splice:
    """New lines behind the last line of a node."""
    layer = node.layer
    newline = newline_of(layer)
    if node.style in ("|", ">") or (node.kind in ("mapping", "sequence") and not node.flow):
        stop = len(layer.text[: node.end].rstrip())
    else:
        stop = node.end
    at = layer.finish(line_end(layer, stop))
    return Splice(at, at, "".join(f"{newline}{indent}{line}" for line in lines))


def line_before(node: Node, lines: Sequence[str]) -> Splice:
    """New lines before that of a key, in its column."""
    layer = node.layer
    indent, newline = indent_of(layer, node.start), newline_of(layer)
    at = layer.begin(node.start)
    return Splice(at, at, "".join(f"{line}{newline}{indent}" for line in lines))


def value_slot(name: str, node: Node, gone: Callable[[], Splice | None]) -> EnvSlot:
    """A variable whose value is a scalar of its own."""
    return EnvSlot(name, node.text or "", lambda value: replaced(node, value), gone)


def key_node(mapping: Node, name: str) -> Node | None:
    """The key itself, in the mapping's own text."""
    return next((key for key, _ in mapping.own_pairs() if key.text == name), None)
