"""Arguments as the items of a list: YAML sequences (block and flow), JSON arrays."""

from __future__ import annotations

from collections.abc import Sequence

from qvl_doctor.core.launch.places import Place, Splices
from qvl_doctor.core.launch.values import Flag, Layer, Splice, Word
from qvl_doctor.core.launch.yaml_nodes import (
    Node,
    indent_of,
    line_end,
    newline_of,
    scalar_layer,
    written_scalar,
)
from qvl_doctor.core.records import record


@record
class Item:
    """One argument and the span of its node in the layer that holds the list."""

    word: Word
    start: int
    end: int
    block: bool  # a | or > scalar


def items_of(node: Node) -> tuple[Item, ...]:
    """The scalar items of a sequence; what is no scalar is left out."""
    found: list[Item] = []
    for item in node.items():
        if item.text is None:
            continue
        found.append(Item(scalar_word(item, in_flow=node.flow), item.body, item.end, item.style in ("|", ">")))
    return tuple(found)


def scalar_word(node: Node, *, in_flow: bool = False) -> Word:
    """A scalar as one argument; where its text can't be followed, each character stands for all of it."""
    layer = scalar_layer(node, in_flow=in_flow)
    text = node.text or ""
    if layer is None:
        outer = node.layer
        start, end = outer.begin(node.body), outer.finish(node.end)
        layer = Layer(text, [start] * len(text), [end] * len(text), lambda _text: None, outer.origin)
    if not text:  # an empty scalar still has a place
        start = node.layer.begin(node.body)
        layer = Layer("", [start], [node.layer.finish(node.end)], layer.escape, node.layer.origin)
    return Word(text, layer, 0, len(text))


@record
class ItemPlace:
    """A list's arguments. `flow`: [a, b]; else one to a line behind a dash."""

    layer: Layer  # that holds the list
    items: tuple[Item, ...]
    flow: bool
    program: int  # how many items start the server
    positional_model: bool
    flags: tuple[Flag, ...]

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        if flag is None:
            return self._insert(len(self.items), self._arguments(spelled, value))
        span = self._span(flag.words)
        if span is None:
            return None
        first, last = span
        texts = [f"{spelled}={value}"] if flag.joined and value is not None else self._parts(spelled, value)
        like = self._raw(self.items[last])
        written = [written_scalar(text, like) for text in texts]
        separator = self._separator(first)
        start, end = self.items[first].start, self.items[last].end
        return [self._splice(start, end, separator.join(written))]

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        if flag.joined or len(flag.words) != 2:
            return self.write(flag, flag.spelled, value)
        item = self._item(flag.words[1])
        if item is None or item.block:
            return None
        raw = self._raw(item)
        return [self._splice(item.start, item.end, written_scalar(value, raw, text=not raw[:1].isdigit()))]

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        item = self._item(flag.words[0])
        if item is None:
            return None
        text = f"{spelled}={flag.value}" if flag.joined else spelled
        return [self._splice(item.start, item.end, written_scalar(text, self._raw(item)))]

    def remove(self, flag: Flag) -> Splices | None:
        span = self._span(flag.words)
        if span is None:
            return None
        first, last = span
        text = self.layer.text
        if not self.flow:
            begin = text.rfind("\n", 0, self.items[first].start) + 1
            end = text.find("\n", max(self.items[last].end - 1, self.items[last].start))
            return [self._splice(begin, len(text) if end < 0 else end + 1, "")]
        if first:
            return [self._splice(self.items[first - 1].end, self.items[last].end, "")]
        if last + 1 < len(self.items):
            return [self._splice(self.items[0].start, self.items[last + 1].start, "")]
        return [self._splice(self.items[0].start, self.items[last].end, "")]

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        if word is not None:
            item = self._item(word)
            if item is None:
                return None
            return [self._splice(item.start, item.end, written_scalar(model, self._raw(item)))]
        if self.positional_model and self.program:
            return self._insert(self.program, [model])
        return self._insert(len(self.items), self._arguments("--model", model))

    # --- parts

    def _item(self, word: Word) -> Item | None:
        return next((item for item in self.items if item.word is word), None)

    def _span(self, words: Sequence[Word]) -> tuple[int, int] | None:
        indices = [index for index, item in enumerate(self.items) if any(item.word is word for word in words)]
        return (indices[0], indices[-1]) if len(indices) == len(words) else None

    def _raw(self, item: Item) -> str:
        return self.layer.text[item.start : item.end]

    def _parts(self, spelled: str, value: str | None) -> list[str]:
        return [spelled] if value is None else [spelled, value]

    def _arguments(self, spelled: str, value: str | None) -> list[str]:
        valued = [flag for flag in self.flags if flag.value is not None]
        if value is not None and valued and all(flag.joined for flag in valued):
            return [f"{spelled}={value}"]
        return self._parts(spelled, value)

    def _separator(self, index: int) -> str:
        """What stands between items around `index`."""
        if not self.flow:
            return f"{newline_of(self.layer)}{self._dash_indent()}- "
        for at in (index, len(self.items) - 1):
            if 0 < at < len(self.items):
                between = self.layer.text[self.items[at - 1].end : self.items[at].start]
                if "#" not in between:
                    return between
        return ", "

    def _dash_indent(self) -> str:
        position = self.items[0].start
        line_start = self.layer.text.rfind("\n", 0, position) + 1
        dash = self.layer.text.rfind("-", line_start, position)
        return indent_of(self.layer, dash if dash >= 0 else position)

    def _insert(self, index: int, texts: list[str]) -> Splices | None:
        if not self.items or self.items[index - 1].block:
            return None
        before = self.items[index - 1]
        raw = self._raw(before)
        like = raw if raw[:1] in ("'", '"') else ""
        separator = self._separator(index)
        written = "".join(separator + written_scalar(text, like) for text in texts)
        at = before.end if self.flow else line_end(self.layer, before.end)
        return [self._splice(at, at, written)]

    def _splice(self, start: int, end: int, text: str) -> Splice:
        layer = self.layer
        begin = layer.begin(start) if end > start else layer.finish(start)
        return Splice(begin, layer.finish(end) if end > start else begin, text)


@record
class PartsPlace:
    """Arguments spread over several nodes: an entry point and a command. New ones go to the last."""

    parts: tuple[tuple[tuple[Word, ...], Place], ...]  # never empty

    def _of(self, word: Word) -> Place:
        for words, place in self.parts:
            if any(own is word for own in words):
                return place
        return self.parts[-1][1]

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        place = self._of(flag.words[0]) if flag else self.parts[-1][1]
        return place.write(flag, spelled, value)

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        return self._of(flag.words[0]).rewrite_value(flag, value)

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        return self._of(flag.words[0]).respell(flag, spelled)

    def remove(self, flag: Flag) -> Splices | None:
        return self._of(flag.words[0]).remove(flag)

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        place = self._of(word) if word else self.parts[-1][1]
        return place.write_model(word, model)
