"""Dockerfiles: CMD and ENTRYPOINT, as a JSON list or as shell text."""

from __future__ import annotations

import json
import re

from qvl_doctor.core.launch.assemble import Context, Surroundings, assemble, read_arguments
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.docker import is_server_image
from qvl_doctor.core.launch.items import Item, ItemPlace, PartsPlace
from qvl_doctor.core.launch.places import EnvPlace
from qvl_doctor.core.launch.reader import ShellReader, implied_program
from qvl_doctor.core.launch.recognise import find_server
from qvl_doctor.core.launch.values import ContainerFacts, Layer, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import replace

_INSTRUCTION = lazy_regex(r"^[ \t]*(?P<name>FROM|ENV|CMD|ENTRYPOINT)[ \t]+", re.MULTILINE | re.IGNORECASE)
_STRING = lazy_regex(r'"(?:[^"\\\n]|\\.)*"')
_ENV = lazy_regex(r"(?P<name>[A-Za-z_]\w*)(?:=(?P<quote>[\"']?)(?P<value>[^\s\"']*)(?P=quote)|[ \t]+(?P<rest>[^\n]+))")


def dockerfile_commands(layer: Layer, context: Context) -> list[LaunchCommand]:
    """The command of the last stage that has one; entry point and CMD lists together."""
    image: str | None = None
    env: dict[str, str] = {}
    lists: list[tuple[Item, ...]] = []
    found: list[LaunchCommand] = []
    for match in _INSTRUCTION.finditer(layer.text):
        name, start = match["name"].upper(), match.end()
        end = _end(layer.text, start)
        body = layer.text[start:end]
        if name == "FROM":
            image, env, lists = (body.split() or [""])[0], {}, []
        elif name == "ENV":
            for entry in _ENV.finditer(body):
                env[entry["name"]] = entry["value"] or entry["rest"] or ""
        elif body.lstrip().startswith("["):
            lists.append(_items(layer, start, end))
        else:
            reader = ShellReader(layer.part(start, end), context)
            found.extend(reader.read())
    facts = ContainerFacts(image=image, kind="dockerfile")
    listed = _listed(layer, lists, image, context)
    commands = [*found, *([listed] if listed else [])]
    return [
        replace(command, container=facts, env={**env, **command.env}, version=command.version or _version(facts))
        for command in commands
    ]


def _version(facts: ContainerFacts) -> str | None:
    from qvl_doctor.core.launch.docker import image_version  # noqa: PLC0415 - one use

    return image_version(facts.image)


def _end(text: str, position: int) -> int:
    """The end of an instruction, its continuation lines included."""
    while True:
        newline = text.find("\n", position)
        stop = len(text) if newline < 0 else newline
        if newline < 0 or not text[position:stop].rstrip("\r").endswith("\\"):
            return stop - 1 if text[position:stop].endswith("\r") else stop
        position = newline + 1


def _items(layer: Layer, start: int, end: int) -> tuple[Item, ...]:
    """The strings of a JSON list, each with its own layer."""
    found: list[Item] = []
    for match in _STRING.finditer(layer.text, start, end):
        try:
            value = json.loads(match[0])
        except ValueError:
            continue
        inner = layer.part(match.start() + 1, match.end() - 1)
        if inner.text != value:  # escapes: the text can't be followed character by character
            first, last = layer.begin(match.start() + 1), layer.finish(match.end() - 1)
            inner = Layer(value, [first] * len(value), [last] * len(value), lambda _text: None, layer.origin)
        found.append(Item(Word(value, inner, 0, len(value)), match.start(), match.end(), False))
    return tuple(found)


def _listed(layer: Layer, lists: list[tuple[Item, ...]], image: str | None, context: Context) -> LaunchCommand | None:
    if not lists or not lists[-1]:
        return None
    lists = [items for items in lists if items]
    words = [item.word for items in lists for item in items]
    program = find_server(words)
    if program is None:
        if not image or not is_server_image(image):
            return None
        program = implied_program(words)
    read = read_arguments(context, words[program.end :], program.server)
    start, end = layer.begin(lists[0][0].start - 1), layer.finish(lists[-1][-1].end + 1)
    around = Surroundings(start, end, env_place=EnvPlace((), _no_env))
    places: list[tuple[tuple[Word, ...], ItemPlace]] = []
    before = 0
    for items in lists:
        own = min(max(program.end - before, 0), len(items))
        positional = program.server == "serve" and own > 0
        texts = tuple(item.word for item in items)
        places.append((texts, ItemPlace(layer, items, True, own, positional, read.flags)))
        before += len(items)
    return replace(assemble(context, words, program, read, around), place=PartsPlace(tuple(places)))


def _no_env(_name: str, _value: str) -> Splice | None:
    return None
