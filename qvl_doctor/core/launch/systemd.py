"""systemd units: ExecStart with its continuations, Environment= lines."""

from __future__ import annotations

import re

from qvl_doctor.core.launch.assemble import Context
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.expand import literal_word
from qvl_doctor.core.launch.places import EnvPlace, EnvSlot, removal, splice
from qvl_doctor.core.launch.reader import ShellReader
from qvl_doctor.core.launch.shell import ARGUMENTS, Lexer
from qvl_doctor.core.launch.values import Layer, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record, replace

_LINE = lazy_regex(r"^[ \t]*(?P<key>[A-Za-z]+)[ \t]*=[ \t]*", re.MULTILINE)
_SECTION = lazy_regex(r"^\[(?P<name>[^\]\n]{1,80})\]", re.MULTILINE)
_NAME = lazy_regex(r"[A-Za-z_]\w*=")


@record
class Setting:
    """KEY=value with its continuation lines; layer spans."""

    key: str
    start: int
    value: int
    end: int


def settings(text: str) -> list[Setting]:
    """The unit's settings in order; a comment line within a continuation belongs to it."""
    found: list[Setting] = []
    position = 0
    while (match := _LINE.search(text, position)) is not None:
        end = _value_end(text, match.end())
        found.append(Setting(match["key"], match.start("key"), match.end(), end))
        position = max(end, match.end())
    return found


def _value_end(text: str, position: int) -> int:
    """The end of the value: lines that end in a backslash go on, comment lines among them are skipped."""
    while True:
        newline = text.find("\n", position)
        stop = len(text) if newline < 0 else newline
        line = text[position:stop].rstrip("\r")
        comment = line.lstrip().startswith(("#", ";"))
        if newline < 0 or not (line.endswith("\\") or comment):
            return position + len(line)
        position = newline + 1


def _value_layer(layer: Layer, setting: Setting) -> Layer:
    """The value without comment lines."""
    starts: list[int] = []
    position = setting.value
    while position < setting.end:
        newline = layer.text.find("\n", position, setting.end)
        stop = setting.end if newline < 0 else newline + 1
        line = layer.text[position:stop]
        if position == setting.value or not line.lstrip().startswith(("#", ";")):
            starts.extend(range(position, stop))
        position = stop
    text = "".join(layer.text[at] for at in starts)
    begins = [layer.begin(at) for at in starts]
    return Layer(text, begins, [layer.finish(at + 1) for at in starts], _one_line, layer.origin)


def _one_line(text: str) -> str | None:
    return None if "\n" in text.replace("\\\n", "") else text.replace("%", "%%")


def systemd_commands(layer: Layer, context: Context) -> list[LaunchCommand]:
    """Each ExecStart that starts vLLM, with the variables of its unit."""
    found: list[LaunchCommand] = []
    known = settings(layer.text)
    for setting in known:
        if setting.key != "ExecStart":
            continue
        value = _value_layer(layer, setting)
        skip = len(value.text) - len(value.text.lstrip("-@:+!"))
        reader = ShellReader(value.part(skip, len(value.text)), context, dialect=ARGUMENTS)
        slots, unresolved = _slots(layer, known)
        for command in reader.read():
            start, end = _section(layer, setting)
            env = {**{slot.name: slot.value for slot in slots}, **command.env}
            inner = command.env_place.slots if command.env_place else ()
            place = EnvPlace((*slots, *inner), _adder(layer, known, setting))
            found.append(
                replace(
                    command,
                    start=start,
                    end=end,
                    text=context.document[start:end],
                    env=env,
                    env_unresolved=command.env_unresolved | unresolved,
                    env_place=place,
                )
            )
    return found


def _section(layer: Layer, setting: Setting) -> tuple[int, int]:
    """The span of the section that the setting stands in."""
    start, end = 0, len(layer.text)
    for match in _SECTION.finditer(layer.text):
        if match.start() <= setting.start:
            start = match.start()
        elif match.start() >= setting.end:
            end = match.start()
            break
    return layer.begin(start), layer.finish(len(layer.text[:end].rstrip()))


def _words(layer: Layer, setting: Setting) -> list[Word]:
    value = _value_layer(layer, setting)
    return [literal_word(token, value) for token in Lexer(value, ARGUMENTS).tokens() if token.kind == "word"]


def _slots(layer: Layer, known: list[Setting]) -> tuple[tuple[EnvSlot, ...], frozenset[str]]:
    slots: dict[str, EnvSlot] = {}
    unresolved: set[str] = set()
    for setting in known:
        if setting.key != "Environment":
            continue
        words = _words(layer, setting)
        for word in words:
            if _NAME.match(word.value):
                name, _, value = word.value.partition("=")
                slots[name] = _slot(layer, setting, word, name, value, sole=len(words) == 1)
                if "$" in value or "%" in value:
                    unresolved.add(name)
    return tuple(slots.values()), frozenset(unresolved)


def _slot(layer: Layer, setting: Setting, word: Word, name: str, value: str, *, sole: bool) -> EnvSlot:
    def write(text: str) -> Splice | None:
        return splice(word.layer, word.lstart, word.lend, _assignment(name, text, word.raw))

    def remove() -> Splice | None:
        if not sole:
            return removal(word.layer, word.lstart, word.lend)
        start = layer.text.rfind("\n", 0, setting.start) + 1
        newline = layer.text.find("\n", setting.end)
        end = len(layer.text) if newline < 0 else newline + 1
        return Splice(layer.begin(start), layer.finish(end), "")

    return EnvSlot(name, value, write, remove)


def _assignment(name: str, value: str, like: str = "") -> str:
    """NAME=value for a unit; quoted as a whole, as systemd wants it."""
    if like[:1] == "'" and "'" not in value:
        return f"'{name}={value}'"
    if like[:1] in ("'", '"') or re.search(r"[\s'\"\\]", value):
        return '"' + f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name}={value}"


def _adder(layer: Layer, known: list[Setting], target: Setting):  # type: ignore[no-untyped-def] # see places.EnvPlace.add
    def add(name: str, value: str) -> Splice | None:
        given = [setting for setting in known if setting.key == "Environment"]
        newline = "\r\n" if "\r\n" in layer.text else "\n"
        line = f"Environment={_assignment(name, value.replace('%', '%%'))}"
        if given:
            at = layer.finish(given[-1].end)
            return Splice(at, at, newline + line)
        at = layer.begin(target.start)
        return Splice(at, at, line + newline)

    return add
