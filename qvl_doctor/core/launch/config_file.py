"""vLLM's own YAML config (`vllm serve --config FILE`): keys are flag names, read as `load_config_file` does."""

from __future__ import annotations

import json

from qvl_doctor.core.launch.argv import Arguments, canonical
from qvl_doctor.core.launch.assemble import Context, Surroundings, assemble
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.detect import KNOWN_KEYS
from qvl_doctor.core.launch.manifest import line_behind, lines_gone, replaced
from qvl_doctor.core.launch.places import Splices
from qvl_doctor.core.launch.recognise import Program
from qvl_doctor.core.launch.values import Flag, Splice, Word
from qvl_doctor.core.launch.yaml_nodes import Node, indent_of, plain_value, written_scalar
from qvl_doctor.core.records import record, replace


def is_config(root: Node) -> bool:
    """Whether a mapping's keys are flags."""
    keys = [(key.text or "").replace("_", "-").split(".")[0] for key, _ in root.own_pairs()]
    return bool(keys) and any(key in KNOWN_KEYS for key in keys) and "services" not in keys and "apiVersion" not in keys


def config_command(root: Node, context: Context) -> LaunchCommand | None:
    """The whole file as one command; None if it is no mapping."""
    if root.kind != "mapping":
        return None
    entries: list[tuple[Flag, Node, Node]] = []
    for key, value in root.own_pairs():
        if key.text and key.text != "<<":
            entries.append((_flag(key, value, context), key, value))
    flags = tuple(flag for flag, _, _ in entries)
    start, end = 0, len(context.document)
    command = assemble(context, [], Program(0, 0, "config"), Arguments(flags, (), ()), Surroundings(start, end))
    return replace(command, place=ConfigPlace(root, tuple(entries)))


def _flag(key: Node, value: Node, context: Context) -> Flag:
    layer = key.layer
    name = canonical("--" + (key.text or ""), context.grammar)
    data = value.data()
    negated, text, values = name.negated, value.text, tuple[str, ...]()
    if isinstance(data, bool):
        negated, text = (not data) != name.negated, None
    elif isinstance(data, list):
        values = tuple(item if isinstance(item, str) else json.dumps(item) for item in data)
        text = " ".join(values)
    elif isinstance(data, dict):
        text = json.dumps(data, ensure_ascii=False)
    end = len(layer.text[: value.end].rstrip()) if value.kind != "scalar" else value.end
    start, stop = layer.begin(key.start), layer.finish(max(end, key.end))
    word = Word(key.text or "", layer, key.start, key.end)
    return Flag(
        name=name.name,
        path=name.path,
        negated=negated,
        spelled=key.text or "",
        value=text,
        line=context.lines.line(start),
        start=start,
        end=stop,
        values=values or ((text,) if text is not None else ()),
        joined=True,
        words=(word,),
    )


@record
class ConfigPlace:
    """Lines `flag: value`."""

    root: Node
    entries: tuple[tuple[Flag, Node, Node], ...]

    def write(self, flag: Flag | None, spelled: str, value: str | None) -> Splices | None:
        key_text, text = _line(spelled, value)
        if flag is None:
            if not self.entries or self.root.flow:
                return None
            _, key, last = self.entries[-1]
            return [line_behind(last, [f"{key_text}: {text}"], indent_of(self.root.layer, key.start))]
        entry = self._entry(flag)
        if entry is None:
            return None
        key, node = entry
        layer = self.root.layer
        same = canonical_key(key.text or "") == canonical_key(key_text)
        changed = [] if same else [Splice(layer.begin(key.start), layer.finish(key.end), key_text)]
        return [*changed, self._value(node, text)]

    def rewrite_value(self, flag: Flag, value: str) -> Splices | None:
        entry = self._entry(flag)
        if entry is None:
            return None
        if entry[1].kind == "scalar" and not value.startswith(("{", "[")):
            return [replaced(entry[1], value, text=False)]
        return [self._value(entry[1], _line("", value)[1])]

    def respell(self, flag: Flag, spelled: str) -> Splices | None:
        entry = self._entry(flag)
        if entry is None:
            return None
        key = entry[0]
        return [Splice(key.layer.begin(key.start), key.layer.finish(key.end), spelled.lstrip("-"))]

    def remove(self, flag: Flag) -> Splices | None:
        entry = self._entry(flag)
        if entry is None or self.root.flow:
            return None
        key, value = entry
        end = value.end if value.kind == "scalar" and value.style not in ("|", ">") else _trimmed(value)
        return [lines_gone(key.layer, key.start, max(end, key.end))]

    def write_model(self, word: Word | None, model: str) -> Splices | None:
        del word  # a config names its model by the key alone
        return self.write(None, "--model", model)

    def _entry(self, flag: Flag) -> tuple[Node, Node] | None:
        return next(((key, value) for own, key, value in self.entries if own is flag), None)

    def _value(self, node: Node, text: str) -> Splice:
        layer = node.layer
        start, end = node.start, _trimmed(node)
        if node.kind != "scalar" and not node.flow:  # a block: its first line follows the key's
            colon = layer.text.rfind(":", 0, start)
            return Splice(layer.finish(colon + 1), layer.finish(end), " " + text)
        if end <= start:
            return Splice(layer.finish(start), layer.finish(start), " " + text)
        return Splice(layer.begin(start), layer.finish(end), text)


def _trimmed(node: Node) -> int:
    return max(len(node.layer.text[: node.end].rstrip()), node.start)


def canonical_key(text: str) -> str:
    return text.replace("_", "-").lstrip("-")


def _line(spelled: str, value: str | None) -> tuple[str, str]:
    """Key and value text of a flag: switches are booleans; JSON is text, which every release takes."""
    if value is None:
        negated = spelled.startswith("--no-")
        return (spelled[5:] if negated else spelled.lstrip("-")), "false" if negated else "true"
    if value.startswith(("{", "[")):
        return spelled.lstrip("-"), "'" + value.replace("'", "''") + "'"
    number = not isinstance(plain_value(value, ""), str)
    return spelled.lstrip("-"), value if number else written_scalar(value, text=False)
