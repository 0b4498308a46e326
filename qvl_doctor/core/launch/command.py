"""A launch command and the document it stands in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from qvl_doctor.core.findings import Edit
from qvl_doctor.core.launch.argv import canonical
from qvl_doctor.core.launch.grammar import DEFAULT_GRAMMAR, FlagGrammar
from qvl_doctor.core.launch.places import EnvPlace, OptionPlace, Place
from qvl_doctor.core.launch.values import ContainerFacts, Flag, LostLine, Problem, Splice, Word
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record

Server = Literal["serve", "api_server", "legacy", "llm", "config", "other"]
Kind = Literal["shell", "article", "python", "compose", "kubernetes", "systemd", "config", "dockerfile", "yaml"]


def _no_env() -> Mapping[str, str]:
    return MappingProxyType({})


@record
class LaunchCommand:
    """One way a server is started, with the place of each part in the document."""

    where: str  # "command:1"
    line: int
    text: str  # its own slice of the document
    start: int
    end: int
    server: Server
    program: str  # the words that start it: "vllm serve", "xinference launch"
    model: str | None
    flags: tuple[Flag, ...]
    env: Mapping[str, str] = field(default_factory=_no_env)
    env_unresolved: frozenset[str] = frozenset()  # names whose value holds what is not known here
    version: str | None = None  # vLLM's, from an image tag
    container: ContainerFacts | None = None
    lost_lines: tuple[LostLine, ...] = ()
    lost_flags: tuple[Flag, ...] = ()  # those on the lost lines
    joints: tuple[Splice, ...] = field(default=(), aside=True)  # that put the lost lines back
    problems: tuple[Problem, ...] = ()
    strays: tuple[str, ...] = ()  # positional arguments beyond the model
    wrappers: tuple[str, ...] = ()  # "nohup", "numactl", "docker", "bash -c"
    editable: bool = True
    not_editable_reason: Phrase | None = None
    document: str = field(default="", aside=True)
    place: Place | None = field(default=None, aside=True)
    env_place: EnvPlace | None = field(default=None, aside=True)
    option_place: OptionPlace | None = field(default=None, aside=True)  # docker's own options
    model_word: Word | None = field(default=None, aside=True)
    grammar: FlagGrammar = field(default=DEFAULT_GRAMMAR, aside=True)

    def find(self, name: str) -> tuple[Flag, ...]:
        """All flags of that name, however spelled; a dotted name finds that key only."""
        wanted = canonical(name, self.grammar)
        return tuple(
            flag for flag in self.flags if flag.name == wanted.name and (not wanted.path or flag.path == wanted.path)
        )

    def has(self, name: str) -> bool:
        return bool(self.find(name))

    def get(self, name: str) -> str | None:
        """The last value given; a switch gives "true" or "false"; None if absent or without the value it needs.

        Of a flag given by dotted keys alone, the JSON text that vLLM makes of them.
        """
        wanted = canonical(name, self.grammar)
        found = self.find(name)
        if not found:
            return None
        if not wanted.path and any(flag.path for flag in found):
            value = self.json_value(name)
            return None if value is None else json.dumps(value, ensure_ascii=False)
        return _value(found[-1], self.grammar)

    def json_value(self, name: str) -> object | None:
        """The value as JSON. Dotted keys, where there are any, are all that vLLM keeps of the flag: it gathers them
        into one JSON argument behind the others (`FlexibleArgumentParser.parse_args`), and the last one wins.
        """
        found = self.find(name)
        dotted = [flag for flag in found if flag.path]
        if dotted:
            merged: dict[str, object] = {}
            for flag in dotted:
                _put(merged, flag.path, _loads(flag.value), extend=flag.spelled.endswith("+"))
            return merged
        for flag in reversed(found):
            if flag.value is None:
                return None
            try:
                return json.loads(flag.value)  # type: ignore[no-any-return] # whatever JSON holds is an object
            except (ValueError, RecursionError):
                return None
        return None


def _value(flag: Flag, grammar: FlagGrammar) -> str | None:
    if flag.negated:
        return "true" if (flag.value or "").lower() == "false" else "false"
    if flag.value is not None:
        return flag.value.lower() if flag.value.lower() in ("true", "false") else flag.value
    return None if grammar.arity(flag.name) in ("one", "many") else "true"


def _loads(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _put(target: dict[str, object], path: Sequence[str], value: object, *, extend: bool) -> None:
    for key in path[:-1]:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = target[key] = {}
        target = inner
    before = target.get(path[-1])
    if extend:
        items = value.split(",") if isinstance(value, str) else [value]
        target[path[-1]] = [*before, *items] if isinstance(before, list) else items
    elif isinstance(before, dict) and isinstance(value, dict):
        before.update(value)
    else:
        target[path[-1]] = value


@record
class Document:
    """A text with the launch commands found in it. Rendering it gives the text back, byte for byte."""

    text: str
    kind: Kind
    commands: tuple[LaunchCommand, ...]
    name: str = "command"
    problems: tuple[Problem, ...] = ()
    grammar: FlagGrammar = field(default=DEFAULT_GRAMMAR, aside=True)

    def render(self) -> str:
        """The whole text, untouched."""
        return self.text

    def edited(self, command_index: int, edits: Sequence[Edit]) -> str:
        """The whole text with one command changed; the same text where nothing applies or it can't be edited safely."""
        from qvl_doctor.core.launch.edits import edited_document  # noqa: PLC0415 - parses again between rounds

        return edited_document(self, command_index, edits)
