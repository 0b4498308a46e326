"""YAML nodes with their place in the text. ruamel.yaml locates; nothing is ever written by it.

Bounded: documents above `MAX_YAML_CHARACTERS` are refused, aliases are never expanded into copies, nesting that
exhausts the parser is an error like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from qvl_doctor.core.launch.values import Escape, Layer, YamlSupportMissing
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

MAX_YAML_CHARACTERS = 200_000  # of one document; the parser takes some 17 µs a character
_MAX_DEPTH = 60

_PROPERTIES = lazy_regex(r"(?:[&!][^\s,\[\]{}]{0,200}[ \t\r\n]+)+")
_BLOCK_HEADER = lazy_regex(r"[|>](?:(?P<chomp1>[+-])\d?|\d(?P<chomp2>[+-])?)?[ \t]*(?:#[^\n]*)?\r?\n")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "_": "\xa0", "N": "\x85"}
_HEX = {"x": 2, "u": 4, "U": 8}


class YamlError(Exception):
    """Not YAML, or too large; the message is one line."""


@record
class Node:
    """A node of a YAML text: `start:end` are positions in the layer that was parsed."""

    raw: Any  # ruamel's node: the library has no types for it
    layer: Layer

    @property
    def start(self) -> int:
        return int(self.raw.start_mark.index)

    @property
    def end(self) -> int:
        return int(self.raw.end_mark.index)

    @property
    def kind(self) -> str:
        return str(self.raw.id)

    @property
    def flow(self) -> bool:
        return bool(getattr(self.raw, "flow_style", False))

    @property
    def text(self) -> str | None:
        """A scalar's value as text."""
        return str(self.raw.value) if self.kind == "scalar" else None

    @property
    def style(self) -> str:
        """A scalar's quote or block mark; "" for a plain one."""
        return str(getattr(self.raw, "style", None) or "")

    @property
    def body(self) -> int:
        """Where a scalar begins behind its anchor and tag."""
        match = _PROPERTIES.match(self.layer.text, self.start, self.end)
        return match.end() if match else self.start

    def items(self) -> list[Node]:
        return [Node(raw, self.layer) for raw in self.raw.value] if self.kind == "sequence" else []

    def pairs(self) -> list[tuple[Node, Node]]:
        """Of a mapping, in order; merged ones (`<<`) first, as far as one level of them goes."""
        if self.kind != "mapping":
            return []
        own = [(Node(key, self.layer), Node(value, self.layer)) for key, value in self.raw.value]
        merged: list[tuple[Node, Node]] = []
        for key, value in own:
            if key.text == "<<":
                for source in value.items() or [value]:
                    merged += [pair for pair in source.own_pairs() if pair[0].text != "<<"]
        return [*merged, *(pair for pair in own if pair[0].text != "<<")]

    def own_pairs(self) -> list[tuple[Node, Node]]:
        """A mapping's own pairs, nothing merged."""
        if self.kind != "mapping":
            return []
        return [(Node(key, self.layer), Node(value, self.layer)) for key, value in self.raw.value]

    def get(self, *path: str) -> Node | None:
        """The node at a path of keys."""
        node: Node | None = self
        for name in path:
            assert node is not None  # the loop leaves as soon as it is
            node = next((value for key, value in reversed(node.pairs()) if key.text == name), None)
            if node is None:
                return None
        return node

    def text_at(self, *path: str) -> str | None:
        node = self.get(*path)
        return node.text if node else None

    def data(self, depth: int = 0) -> object:
        """The value as JSON would hold it; None below the depth that is looked into."""
        if depth > _MAX_DEPTH:
            return None
        if self.kind == "mapping":
            return {key.text or "": value.data(depth + 1) for key, value in self.pairs()[:1000]}
        if self.kind == "sequence":
            return [item.data(depth + 1) for item in self.items()[:1000]]
        return plain_value(self.text or "", self.style)


def plain_value(text: str, style: str) -> object:
    """A scalar by YAML's core rules: null, booleans and numbers where it is not quoted."""
    if style:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"[-+]?(?:\d{1,18}\.\d{0,18}|\.\d{1,18})(?:[eE][-+]?\d{1,3})?", text):
        return float(text)
    return text


def documents(layer: Layer) -> Iterator[Node]:
    """The root nodes of a YAML stream. Raises YamlError, YamlSupportMissing."""
    try:
        from ruamel.yaml import YAML  # noqa: PLC0415 - an extra, and slow to import
        from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above
    except ImportError as error:
        raise YamlSupportMissing("reading YAML needs the extra qvl-doctor[deploy]") from error
    if len(layer.text) > MAX_YAML_CHARACTERS:
        raise YamlError(f"a YAML document of {len(layer.text)} characters")
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True
    try:
        for raw in yaml.compose_all(layer.text):
            if raw is not None:
                yield Node(raw, layer)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark is not None else ""
        raise YamlError(f"{at}{getattr(error, 'problem', None) or type(error).__name__}") from error
    except (ValueError, RecursionError, IndexError, AttributeError, TypeError, AssertionError, KeyError) as error:
        raise YamlError(f"not readable as YAML: {type(error).__name__}") from error


@record(frozen=False)
class _Characters:
    """Decoded text with the layer span of each character."""

    text: list[str]
    spans: list[tuple[int, int]]

    def add(self, character: str, start: int, end: int) -> None:
        self.text.append(character)
        self.spans.append((start, end))


def scalar_layer(node: Node, *, in_flow: bool = False) -> Layer | None:
    """A scalar's value with the way back to the document; None where the two can't be brought into step."""
    out = _Characters([], [])
    raw = node.layer.text
    start, end = node.body, node.end
    if node.style in ("|", ">"):
        indent = _block(raw, start, end, out, folded=node.style == ">")
        escape: Escape = _block_escape(" " * indent)
    elif node.style == '"':
        _flow(raw, start + 1, end - 1, out, double=True)
        escape = _double_escape
    elif node.style == "'":
        _flow(raw, start + 1, end - 1, out, double=False)
        escape = _single_escape
    else:
        _flow(raw, start, end, out, double=None)
        escape = _plain_flow_escape if in_flow else _plain_escape
    if "".join(out.text) != node.text:
        return None
    outer = node.layer
    starts = [outer.begin(first) for first, _ in out.spans]
    ends = [outer.finish(last) for _, last in out.spans]
    return Layer("".join(out.text), starts, ends, lambda text: _then(escape(text), outer), outer.origin)


def _then(text: str | None, outer: Layer) -> str | None:
    return None if text is None else outer.escape(text)


def _block_escape(indent: str) -> Escape:
    return lambda text: text.replace("\n", "\n" + indent)


def _double_escape(text: str) -> str | None:
    return None if "\n" in text else text.replace("\\", "\\\\").replace('"', '\\"')


def _single_escape(text: str) -> str | None:
    return None if "\n" in text else text.replace("'", "''")


def _plain_escape(text: str) -> str | None:
    return None if "\n" in text or ": " in text or " #" in text or text.endswith(":") else text


def _plain_flow_escape(text: str) -> str | None:
    return None if re.search(r"[\[\]{},]", text) else _plain_escape(text)


def _block(raw: str, start: int, end: int, out: _Characters, *, folded: bool) -> int:
    """A literal or folded block; its indentation."""
    header = _BLOCK_HEADER.match(raw, start, end)
    if header is None:
        return 0
    lines = _lines(raw, header.end(), end)
    first = next((raw[at:stop] for at, stop, _ in lines if raw[at:stop].strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    breaks: list[tuple[int, int]] = []
    more_before, seen = False, False
    for at, stop, after in lines:
        content = raw[at + indent : stop] if stop - at > indent else ""
        if content:
            more = content[0] in " \t"
            _breaks(out, breaks, fold=folded and seen and not more and not more_before)
            for offset, character in enumerate(content):
                out.add(character, at + indent + offset, at + indent + offset + 1)
            breaks, more_before, seen = [], more, True
        if after > stop:
            breaks.append((stop, after))
    chomp = header["chomp1"] or header["chomp2"] or ""
    if chomp == "+":
        _breaks(out, breaks, fold=False)
    elif chomp == "" and seen and breaks:
        out.add("\n", *breaks[0])
    return indent


def _breaks(out: _Characters, breaks: list[tuple[int, int]], *, fold: bool) -> None:
    if fold and len(breaks) == 1:
        out.add(" ", *breaks[0])
        return
    for span in breaks[1:] if fold else breaks:
        out.add("\n", *span)


def _lines(raw: str, start: int, end: int) -> list[tuple[int, int, int]]:
    """(start, end of the content, start of the next line) of each line."""
    found: list[tuple[int, int, int]] = []
    while start < end:
        newline = raw.find("\n", start, end)
        after = end if newline < 0 else newline + 1
        stop = end if newline < 0 else newline
        if newline > start and raw[newline - 1] == "\r":
            stop -= 1
        found.append((start, stop, after))
        start = after
    return found


def _flow(raw: str, start: int, end: int, out: _Characters, *, double: bool | None) -> None:
    """A quoted (double or single) or plain (None) scalar: escapes, and lines folded into one."""
    position = start
    while position < end:
        character = raw[position]
        if character in " \t\r\n":
            position = _fold(raw, position, end, out)
        elif double and character == "\\":
            position = _escape(raw, position, end, out)
        elif double is False and raw.startswith("''", position):
            out.add("'", position, position + 2)
            position += 2
        else:
            out.add(character, position, position + 1)
            position += 1


def _fold(raw: str, position: int, end: int, out: _Characters) -> int:
    stop = position
    while stop < end and raw[stop] in " \t\r\n":
        stop += 1
    breaks = raw.count("\n", position, stop)
    if breaks == 0:
        for at in range(position, stop):
            out.add(raw[at], at, at + 1)
    elif breaks == 1:
        out.add(" ", position, stop)
    else:
        for at in range(breaks - 1):
            out.add("\n", position, stop if at == breaks - 2 else position)
    return stop


def _escape(raw: str, position: int, end: int, out: _Characters) -> int:
    letter = raw[position + 1 : position + 2]
    if letter in ("\n", "\r"):
        stop = position + 1
        while stop < end and raw[stop] in " \t\r\n":
            stop += 1
        return stop
    if letter in _HEX:
        stop = position + 2 + _HEX[letter]
        try:
            out.add(chr(int(raw[position + 2 : stop], 16)), position, stop)
        except (ValueError, OverflowError):
            out.add(letter, position, stop)
        return stop
    out.add(_ESCAPES.get(letter, letter), position, position + 2)
    return position + 2


_SAFE_PLAIN = lazy_regex(
    r"[A-Za-z_./~][A-Za-z0-9_./@%+=~-]*(?::[A-Za-z0-9_./@%+=~-]+)*|--?[A-Za-z][A-Za-z0-9_./@%+=,:-]*[\w/.]"
)
_RESERVED = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n", "~", "."))


def written_scalar(value: str, like: str = "", *, text: bool = True) -> str:
    """`value` as a YAML scalar in the quoting style of `like`; `text`: numbers must stay text, so they are quoted."""
    style = like[:1]
    if style == "'" and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    number = not isinstance(plain_value(value, ""), str)
    plain = _SAFE_PLAIN.fullmatch(value) is not None and value.lower() not in _RESERVED
    if style != '"' and (plain or (number and not text and value)):
        return value
    if style != '"' and '"' in value and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def indent_of(layer: Layer, position: int) -> str:
    """The blanks at the start of the line, if nothing else stands before `position`; else as many as its column."""
    line_start = layer.text.rfind("\n", 0, position) + 1
    before = layer.text[line_start:position]
    return before if not before.strip() else re.sub(r"[^ \t]", " ", before)


def line_end(layer: Layer, position: int) -> int:
    """The end of the line's content (before \\r\\n or \\n)."""
    newline = layer.text.find("\n", position)
    newline = len(layer.text) if newline < 0 else newline
    return newline - 1 if newline > position and layer.text[newline - 1] == "\r" else newline


def newline_of(layer: Layer) -> str:
    """The line end that the text uses."""
    return "\r\n" if "\r\n" in layer.text[:4000] else "\n"
