"""Launch commands: parse, look up, edit by span, render."""

from qvl_doctor.core.launch.command import Document, Kind, LaunchCommand, Server
from qvl_doctor.core.launch.edits import edited_command
from qvl_doctor.core.launch.grammar import DEFAULT_GRAMMAR, FlagGrammar, KnowsNegations
from qvl_doctor.core.launch.parse import MAX_CHARACTERS, parse_text
from qvl_doctor.core.launch.values import (
    Arity,
    ContainerFacts,
    Flag,
    LostLine,
    Mount,
    Problem,
    Word,
    YamlSupportMissing,
)

__all__ = [
    "DEFAULT_GRAMMAR",
    "MAX_CHARACTERS",
    "Arity",
    "ContainerFacts",
    "Document",
    "Flag",
    "FlagGrammar",
    "Kind",
    "KnowsNegations",
    "LaunchCommand",
    "LostLine",
    "Mount",
    "Problem",
    "Server",
    "Word",
    "YamlSupportMissing",
    "edited_command",
    "parse_text",
]
