"""Any text to a document with its launch commands. Never fails on any text."""

from __future__ import annotations

import re

from qvl_doctor.core.launch.command import Document, LaunchCommand
from qvl_doctor.core.launch.grammar import DEFAULT_GRAMMAR, FlagGrammar
from qvl_doctor.core.launch.reader import Context, ShellReader
from qvl_doctor.core.launch.values import Layer, LineIndex, Problem

MAX_CHARACTERS = 4 * 1024 * 1024

_PSEUDO_CALL = re.compile(r"\s*(?:Async)?LLM(?:Engine)?(\([\w -]{0,40}\))(?=\s+-|\s*$)")


def parse_text(text: str, *, name: str = "command", grammar: FlagGrammar | None = None) -> Document:
    """The commands of a text; `name` is the file's, and tells the kind where the text does not."""
    grammar = grammar or DEFAULT_GRAMMAR
    if len(text) > MAX_CHARACTERS:
        problem = Problem("too-large", f"{len(text)} characters", 1)
        return Document(text, "shell", (), name, (problem,), grammar)
    context = Context(text, name, grammar, LineIndex(text))
    return Document(text, "shell", tuple(_shell(text, context)), name, (), grammar)


def _shell(text: str, context: Context) -> list[LaunchCommand]:
    layer = Layer.of(text)
    pseudo = _PSEUDO_CALL.match(text)
    if pseudo:
        start, end = pseudo.span(1)
        masked = text[:start] + "_" + text[start + 1 : end - 1].replace(" ", "_") + "_" + text[end:]
        layer = Layer(masked, layer.starts, layer.ends)
    reader = ShellReader(layer, context)
    return reader.read() or reader.others[:1]
