"""Words to a LaunchCommand, whatever they stood in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qvl_doctor.core.launch import docker
from qvl_doctor.core.launch.argv import ArgumentReader, Arguments
from qvl_doctor.core.launch.command import LaunchCommand, Server
from qvl_doctor.core.launch.grammar import FlagGrammar
from qvl_doctor.core.launch.places import EnvPlace, OptionPlace
from qvl_doctor.core.launch.recognise import Program, wrappers_of
from qvl_doctor.core.launch.values import ContainerFacts, LineIndex, Problem, Word
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record


@record
class Context:
    """What every reader of one document shares."""

    document: str
    name: str
    grammar: FlagGrammar
    lines: LineIndex

    def where(self, line: int) -> str:
        return f"{self.name}:{line}"


@record
class Surroundings:
    """What stands around the arguments; `start:end` is the command's own slice of the document."""

    start: int
    end: int
    env: Mapping[str, str] = field(default_factory=dict)
    env_unresolved: frozenset[str] = frozenset()
    container: ContainerFacts | None = None
    env_place: EnvPlace | None = None
    option_place: OptionPlace | None = None
    problems: tuple[Problem, ...] = ()
    reason: Phrase | None = None  # why it can't be edited


def read_arguments(context: Context, words: Sequence[Word], server: Server) -> Arguments:
    """The flags and positional arguments behind the program's words."""
    reader = ArgumentReader(words, context.grammar, context.lines)
    return reader.read(model_expected=server == "serve")


def model_of(read: Arguments, server: Server) -> tuple[Word | None, str | None]:
    """The model's word (None where `--model` gives it) and name."""
    if server == "serve" and read.positionals:
        return read.positionals[0], read.positionals[0].value
    for flag in reversed(read.flags):
        if flag.name == "--model" and not flag.path:
            return None, flag.value
    return None, None


def assemble(
    context: Context, words: Sequence[Word], program: Program, read: Arguments, around: Surroundings
) -> LaunchCommand:
    """The command without its place, which depends on what it stands in."""
    arguments = [word for flag in read.flags for word in flag.words] + list(read.positionals)
    dynamic = next((word for word in arguments if word.dynamic), None)
    reason = around.reason
    if reason is None and dynamic is not None:
        reason = Phrase("locked_dynamic", {"text": dynamic.raw[:80]})
    model_word, model = model_of(read, program.server)
    line = context.lines.line(words[min(program.start, len(words) - 1)].start if words else around.start)
    facts = around.container
    return LaunchCommand(
        where=context.where(line),
        line=line,
        text=context.document[around.start : around.end],
        start=around.start,
        end=around.end,
        server=program.server,
        program=" ".join(word.value for word in words[program.start : program.end])[:200],
        model=model,
        flags=read.flags,
        env=MappingProxyType(dict(around.env)),
        env_unresolved=around.env_unresolved,
        version=docker.image_version(facts.image) if facts else None,
        container=facts,
        problems=(*read.problems, *around.problems),
        strays=tuple(word.value for word in read.positionals if word is not model_word),
        wrappers=wrappers_of(words[: program.start]),
        editable=reason is None,
        not_editable_reason=reason,
        document=context.document,
        env_place=around.env_place,
        option_place=around.option_place,
        model_word=model_word,
        grammar=context.grammar,
    )
