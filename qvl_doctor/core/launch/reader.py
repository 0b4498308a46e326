"""Shell text to launch commands: statement by statement, with what earlier ones assign and export."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from types import MappingProxyType

from qvl_doctor.core.launch import docker
from qvl_doctor.core.launch.argv import ArgumentReader, is_flag
from qvl_doctor.core.launch.assemble import Context, Surroundings, assemble, read_arguments
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.expand import Variables, assign, assigned, assignment, expand_all, value_part
from qvl_doctor.core.launch.places import EnvPlace, EnvSlot, ShellPlace, removal, splice
from qvl_doctor.core.launch.quoting import quoted
from qvl_doctor.core.launch.recognise import (
    ENV_WORD,
    Program,
    basename,
    command_cuts,
    find_container,
    find_nested,
    find_server,
    only_speaks,
)
from qvl_doctor.core.launch.shell import SH, Dialect, Lexer, Note, Statement, Token, statements
from qvl_doctor.core.launch.values import Escape, Flag, Layer, LostLine, Problem, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record, replace

_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{"))
_CALL = lazy_regex(r"(?:Async)?LLM(?:Engine)?[(_]")
MAX_COMMANDS = 2_000  # of one document
MAX_EXPORTED = 500  # variables that a command's environment shows
MAX_LOST = 200  # lines behind a broken one that are shown
MAX_NESTING = 4  # bash -c within bash -c


@record
class EnvEntry:
    """An assignment in force for the command: `value` alone, and the token that holds it."""

    name: str
    value: Word
    layer: Layer
    start: int  # layer span of NAME=value
    end: int
    sole: tuple[int, int] | None = None  # span of the export statement, if it holds nothing else


@record(frozen=False)
class _Session:
    """What the shell knows when it comes to a statement."""

    variables: Variables = field(default_factory=Variables)
    exported: dict[str, EnvEntry] = field(default_factory=dict)
    assigned: dict[str, EnvEntry] = field(default_factory=dict)
    export_all: bool = False
    run_start: int | None = None  # layer position of the first of the assignments directly before
    run_end: int = 0


def is_call(words: Sequence[Word]) -> bool:
    """`LLM(offline)`: an engine's call written as a command."""
    return bool(words) and _CALL.match(words[0].value) is not None


class ShellReader:
    """All commands of one layer. `fallback` keeps the first other command where no vLLM server is started."""

    def __init__(
        self, layer: Layer, context: Context, *, dialect: Dialect = SH, depth: int = 0, implied: bool = False
    ) -> None:
        self.layer = layer
        self.context = context
        self.dialect = dialect
        self.depth = depth
        self.implied = implied  # the words are a server's arguments, its program stands elsewhere
        self.found: list[LaunchCommand] = []
        self.others: list[LaunchCommand] = []
        self._session = _Session()
        self._last_statement: Statement | None = None
        self._notes: list[Note] = []

    def read(self) -> list[LaunchCommand]:
        lexer = Lexer(self.layer, self.dialect)
        tokens = lexer.tokens()
        self._notes = lexer.notes
        for statement in statements(tokens):
            if len(self.found) >= MAX_COMMANDS:
                break
            self._statement(statement)
        if self.depth < MAX_NESTING:
            for start, end in lexer.heredocs[:100]:
                inner = ShellReader(self.layer.part(start, end), self.context, depth=self.depth + 1)
                self.found.extend(_locked(command, Phrase("locked_in_heredoc")) for command in inner.read())
        self.found.sort(key=lambda command: command.start)
        return self.found

    def read_any(self) -> list[LaunchCommand]:
        """The vLLM servers started; where there is none, the first other command."""
        return self.read() or self.others[:1]

    # --- statements that set something

    def _statement(self, statement: Statement) -> None:
        tokens = statement.tokens
        while tokens and tokens[0].text in _KEYWORDS:
            tokens = tokens[1:]
        if not tokens:
            return
        first = tokens[0].text
        if self._continues_lost(statement, tokens):
            return
        if all(assignment(token) for token in tokens):
            self._assign(statement, tokens, export=self._session.export_all)
        elif first in ("export", "declare", "typeset", "local", "readonly"):
            self._assign(statement, tokens[1:], export=first == "export" or any("x" in t.text for t in tokens[1:2]))
        elif first == "unset":
            for token in tokens[1:]:
                self._session.exported.pop(token.text, None)
                self._session.variables.plain.pop(token.text, None)
        elif first == "set" and len(tokens) == 2 and assignment(tokens[1]):  # cmd.exe
            self._assign(statement, tokens[1:], export=True)
        elif first == "set":
            self._session.export_all = self._session.export_all or any(token.text == "-a" for token in tokens[1:])
        else:
            self._command(statement, tokens)
            self._session.run_start = None
            self._last_statement = statement
            return
        self._extend_run(statement)
        self._last_statement = None

    def _extend_run(self, statement: Statement) -> None:
        session = self._session
        if session.run_start is None or not self._only_blank(session.run_end, statement.start):
            session.run_start = statement.start
        session.run_end = statement.closed or statement.end

    def _only_blank(self, start: int, end: int) -> bool:
        """Nothing but blanks, operators and comments between two statements, and not much of those."""
        between = self.layer.text[start : min(end, start + 2_000)]
        return end - start < 2_000 and all(
            not line.strip(" \t\r;&\\") or line.lstrip().startswith("#") for line in between.split("\n")
        )

    def _assign(self, statement: Statement, tokens: Sequence[Token], *, export: bool) -> None:
        skipped = len(statement.tokens) - len(tokens)
        for index, token in enumerate(tokens):
            session = self._session
            if assignment(token) is None:
                if export and token.text in session.assigned and len(session.exported) < MAX_EXPORTED:
                    session.exported[token.text] = session.assigned[token.text]
                continue
            name, value = assign(token, statement.arrays.get(index + skipped), self.layer, session.variables)
            sole = (statement.start, statement.end) if len(tokens) == 1 else None
            entry = EnvEntry(name, value, self.layer, token.start, token.end, sole)
            session.assigned[name] = entry
            if name in session.exported or (export and len(session.exported) < MAX_EXPORTED):
                session.exported[name] = entry

    def _continues_lost(self, statement: Statement, tokens: Sequence[Token]) -> bool:
        """A line that begins with a flag, right behind a vLLM command: its flags are lost."""
        before = self._last_statement
        if before is None or before.terminator != "\n" or not self.found or self.found[-1].server == "other":
            return False
        if not is_flag(tokens[0].text):
            return False
        if len(self.found[-1].lost_lines) < MAX_LOST:
            self._lose(statement, tokens, before)
        self._last_statement = statement
        return True

    def _lose(self, statement: Statement, tokens: Sequence[Token], before: Statement) -> None:
        command, context = self.found[-1], self.context
        words = expand_all(tokens, self.layer, self._session.variables)
        arguments = ArgumentReader(words, context.grammar, context.lines).read(model_expected=False)
        first = context.lines.line(self.layer.begin(statement.start))
        text = self.layer.text[statement.start : statement.closed or statement.end]
        rows = list(enumerate(text.split("\n")))[:MAX_LOST]
        lines = tuple(LostLine(first + at, line.strip()) for at, line in rows if line.strip())
        problems = command.problems
        if not command.lost_lines:
            problems = (*problems, self._break(before))
        end = self.layer.finish(statement.closed or statement.end)
        self.found[-1] = replace(
            command,
            lost_lines=(*command.lost_lines, *lines),
            lost_flags=(*command.lost_flags, *arguments.flags),
            joints=(*command.joints, *self._joint(before, statement)),
            problems=problems,
            end=max(command.end, end),
            text=context.document[command.start : max(command.end, end)],
        )

    def _joint(self, before: Statement, statement: Statement) -> tuple[Splice, ...]:
        """What puts a lost line back: the comment or blank behind the backslash gone, or the backslash added."""
        words = [token for token in before.tokens if any(piece.text.strip() for piece in token.pieces)]
        end = max(token.end for token in (*words, *before.redirections))
        start = self.layer.text.rfind("\n", end, statement.start) + 1
        newline = "\r\n" if self.layer.text[start - 2 : start] == "\r\n" else "\n"
        made = splice(self.layer, end, start, " \\" + newline)
        return (made,) if made is not None and start else ()

    def _break(self, before: Statement) -> Problem:
        """Why the line before does not continue."""
        line = self.context.lines.line(self.layer.finish(before.end))
        for note in self.notes_between(before.start, before.end + 1):
            if note.kind == "space-after-backslash":
                return Problem(
                    "space-after-backslash", note.text, self.context.lines.line(self.layer.begin(note.position))
                )
        comment = before.comment
        if comment is not None:
            return Problem(
                "comment-in-continuation", comment.text[:200], self.context.lines.line(self.layer.begin(comment.start))
            )
        text = self.layer.text[max(before.end - 200, before.start) : before.end].rsplit("\n", 1)[-1]
        return Problem("missing-backslash", text.strip(), line)

    # --- commands

    def _command(self, statement: Statement, tokens: Sequence[Token]) -> None:
        prefix: list[EnvEntry] = []
        index = 0
        while index < len(tokens) and assignment(tokens[index]):
            token = tokens[index]
            name, value = assigned(token, self.layer, self._session.variables)
            prefix.append(EnvEntry(name, value, self.layer, token.start, token.end))
            index += 1
        words = expand_all(tokens[index:], self.layer, self._session.variables)
        cuts = command_cuts(words)
        for begin, end in pairwise((0, *cuts, len(words))):
            first, own = begin, prefix if begin == 0 else []
            while begin and first < end - 1 and ENV_WORD.match(words[first].value):
                own.append(_entry(words[first]))
                first += 1
            start = words[begin].lstart if begin else statement.start
            last = words[end - 1].lend if end < len(words) else None
            self._one(CommandBuilder(self, statement, start, last, own, words[first:end]))

    def _one(self, builder: CommandBuilder) -> None:
        """One command of a line."""
        words = builder.words
        if only_speaks(words):
            return
        run_at = find_container(words)
        if run_at is not None:
            builder.container(run_at)
            return
        program = find_server(words)
        nested = find_nested(words) if program is None else None
        if program is not None:
            builder.server(program)
        elif nested is not None and self.depth < MAX_NESTING:
            builder.nested(nested)
        elif self.implied:
            builder.server(implied_program(words))
        elif not self.others or is_call(words):
            builder.other()

    @property
    def session(self) -> _Session:
        return self._session

    def notes_between(self, start: int, end: int) -> list[Note]:
        """The lexer's notes on a span of the layer."""
        first = bisect_left(self._notes, start, key=_note_position)
        return self._notes[first : bisect_left(self._notes, end, key=_note_position)]


def _note_position(note: Note) -> int:
    return note.position


def _locked(command: LaunchCommand, reason: Phrase) -> LaunchCommand:
    return replace(command, editable=False, not_editable_reason=command.not_editable_reason or reason)


def _entry(word: Word) -> EnvEntry:
    index = word.value.index("=") + 1
    return EnvEntry(word.value[: index - 1], value_part(word, index), word.layer, word.lstart, word.lend)


@record(frozen=False)
class CommandBuilder:
    """One command out of one statement's words."""

    reader: ShellReader
    statement: Statement
    start: int  # layer position
    last: int | None  # layer position of its end, where another command follows on the line
    prefix: list[EnvEntry]
    words: list[Word]

    def server(self, program: Program, run: docker.ContainerRun | None = None) -> None:
        """A vLLM entry point found among the words."""
        self._inline_env(program.start)
        self._emit(program, self.words[program.end :], run)

    def container(self, run_at: int) -> None:
        """`docker run`: what is behind the image is a command or an image's arguments."""
        run = docker.read_run(self.words, run_at)
        rest = self.words[run.arguments :]
        image = run.image.value if run.image else ""
        entrypoint = run.value("--entrypoint") or ""
        inner = find_server(rest) if rest else None
        if inner is not None and (inner.start == 0 or not is_flag(rest[0].value)):
            at = run.arguments
            self.server(Program(inner.start + at, inner.end + at, inner.server), run)
            return
        nested = find_nested(self.words, run.arguments - 1)
        if nested is None and rest and basename(entrypoint) in ("bash", "sh") and rest[0].value in ("-c", "-lc"):
            nested = run.arguments + 1 if len(rest) > 1 else None
        if nested is not None and self.reader.depth < MAX_NESTING:
            self.nested(nested, run)
            return
        if basename(entrypoint) == "vllm" and rest and rest[0].value == "serve":
            self.server(Program(run.arguments - 1, run.arguments + 1, "serve"), run)
            return
        python = basename(entrypoint).startswith("python") and len(rest) > 1 and rest[0].value == "-m"
        if python and rest[1].value.startswith("vllm.entrypoints"):
            self.server(Program(run.arguments - 1, run.arguments + 2, "api_server"), run)
            return
        if docker.is_server_image(image) and not entrypoint:
            implied = implied_program(rest)
            self.server(Program(run.arguments - 1, run.arguments + implied.end, implied.server), run)
            return
        if not self.reader.others:
            self._emit(Program(0, run.arguments, "other"), rest, run)

    def nested(self, at: int, run: docker.ContainerRun | None = None) -> None:
        """bash -c "…": the text is a layer of its own."""
        word = self.words[at]
        inner = nested_layer(word)
        reader = ShellReader(inner, self.reader.context, depth=self.reader.depth + 1)
        session = self.reader.session
        reader.session.exported.update(session.exported)
        reader.session.exported.update({entry.name: entry for entry in self.prefix})
        commands = reader.read()
        if not commands:
            if not self.reader.others:
                self._emit(Program(0, at, "other"), self.words[at:], run)
            return
        for command in commands:
            self.reader.found.append(self._outer(command, run, literal=inner.escape("'\"") is not None))

    def _outer(self, command: LaunchCommand, run: docker.ContainerRun | None, *, literal: bool) -> LaunchCommand:
        layer, document = self.reader.layer, self.reader.context.document
        start, end = layer.begin(self.start), layer.finish(self.statement.closed or self.statement.end)
        wrappers = tuple(basename(word.value) for word in self.words[:1])
        command = replace(
            command, start=start, end=end, text=document[start:end], wrappers=(*wrappers, "-c", *command.wrappers)
        )
        if not literal:
            command = _locked(command, Phrase("locked_quoting"))
        if self.words[0].value == "eval":
            command = _locked(command, Phrase("locked_eval"))
        if run is None:
            return command
        env = {name: word.value.partition("=")[2] for name, word in docker.environment(run).items()}
        facts = docker.facts_of(run)
        return replace(
            command,
            container=facts,
            version=docker.image_version(facts.image),
            env=MappingProxyType({**env, **command.env}),
            env_place=_joined(docker.env_place(run), command.env_place),
            option_place=docker.option_place(run),
        )

    def other(self) -> None:
        """Not vLLM: flags and environment are kept."""
        call = is_call(self.words)
        end = next((at for at, word in enumerate(self.words) if is_flag(word.value)), len(self.words))
        self._inline_env(0)
        self._emit(Program(0, max(end, 1), "llm" if call else "other"), self.words[max(end, 1) :], None)

    # --- the parts of the value

    def _inline_env(self, program_start: int) -> None:
        """Assignments behind `env` and `sudo`."""
        for word in self.words[:program_start]:
            if re.match(r"[A-Za-z_]\w*=", word.value) and not word.inserted:
                self.prefix.append(_entry(word))

    def _emit(self, program: Program, arguments: list[Word], run: docker.ContainerRun | None) -> None:
        context = self.reader.context
        start, end = self._span()
        env, unresolved = self._environment(run)
        read = read_arguments(context, arguments, program.server)
        around = Surroundings(
            start,
            end,
            env,
            frozenset(unresolved),
            docker.facts_of(run) if run else None,
            docker.env_place(run) if run else self._env_place(),
            docker.option_place(run) if run else None,
            self._problems(),
            self._reason(),
        )
        command = replace(
            assemble(context, self.words, program, read, around), place=self._place(program, arguments, read.flags)
        )
        keep = program.server != "other"
        (self.reader.found if keep else self.reader.others).append(command)

    def _reason(self) -> Phrase | None:
        if self.statement.heredoc:
            return Phrase("locked_heredoc")
        return Phrase("locked_eval") if self.words[0].value == "eval" else None

    def _span(self) -> tuple[int, int]:
        """The document span: with the assignments directly before, and a closing &."""
        layer, session = self.reader.layer, self.reader.session
        start = self.start
        before = session.run_start
        if before is not None and start == self.statement.start and self.reader._only_blank(session.run_end, start):
            start = before
        end = self.last or self.statement.closed or self.statement.end
        return layer.begin(start), layer.finish(end)

    def _environment(self, run: docker.ContainerRun | None) -> tuple[dict[str, str], set[str]]:
        entries = {} if run else {**self.reader.session.exported, **{entry.name: entry for entry in self.prefix}}
        env = {name: entry.value.value for name, entry in entries.items()}
        unresolved = {name for name, entry in entries.items() if entry.value.unresolved or entry.value.dynamic}
        if run:
            for name, word in docker.environment(run).items():
                env[name] = word.value.partition("=")[2]
                if word.unresolved or word.dynamic:
                    unresolved.add(name)
        return env, unresolved

    def _problems(self) -> tuple[Problem, ...]:
        lines, layer = self.reader.context.lines, self.reader.layer
        notes = self.reader.notes_between(self.start, self.last or self.statement.end)
        found = [
            Problem(note.kind, note.text, lines.line(layer.begin(note.position)))
            for note in notes
            if note.kind != "space-after-backslash"
        ]
        return tuple(found[:50])

    def _place(self, program: Program, arguments: Sequence[Word], flags: tuple[Flag, ...]) -> ShellPlace:
        layer = self.reader.layer
        own = [word for word in self.words[program.start : program.end] if word.layer is layer and not word.inserted]
        program_end = max((word.lend for word in own), default=self.start)
        ends = [word.lend for word in arguments if word.layer is layer and not word.inserted and word.value.strip()]
        positional = program.server == "serve" and program.end > program.start
        return ShellPlace(layer, program_end, max([program_end, *ends]), flags, positional)

    def _env_place(self) -> EnvPlace:
        entries = {**self.reader.session.exported, **{entry.name: entry for entry in self.prefix}}
        slots = tuple(_slot(entry) for entry in entries.values())
        layer = self.reader.layer
        first = self.words[0]
        if basename(first.value) in ("sudo", "env") and len(self.words) > 1:
            first = next((word for word in self.words[1:] if not word.value.startswith("-")), first)
        at = first.lstart if first.layer is layer and not first.inserted else self.start

        def add(name: str, value: str) -> Splice | None:
            made = splice(layer, at, at, f"{name}={quoted(value)} ")
            return None if made is None else Splice(layer.begin(at), layer.begin(at), made.text)

        return EnvPlace(slots, add)


def _slot(entry: EnvEntry) -> EnvSlot:
    value = entry.value

    def write(text: str) -> Splice | None:
        raw = value.layer.text[value.lstart : value.lend]
        return splice(value.layer, value.lstart, value.lend, quoted(text, raw))

    def remove() -> Splice | None:
        layer = entry.layer
        if entry.sole is None:
            behind = re.compile(r"(?:[ \t]|\\\r?\n)+").match(layer.text, entry.end)
            if layer.text[max(entry.start - 7, 0) : entry.start].endswith("export ") and not behind:
                return None
            return splice(layer, entry.start, behind.end(), "") if behind else removal(layer, entry.start, entry.end)
        start, end = entry.sole
        tail = re.compile(r"[ \t]*(?:;[ \t]*|&&[ \t]*)?(?:\r?\n)?").match(layer.text, end)
        return splice(layer, start, tail.end() if tail else end, "")

    return EnvSlot(entry.name, value.value, write, remove)


def implied_program(words: Sequence[Word]) -> Program:
    """Arguments alone, behind an image's own entry point: with `--model` the API server's, else `vllm serve`'s."""
    by_flag = any(word.value.partition("=")[0] == "--model" for word in words)
    return Program(0, 1 if words and words[0].value == "serve" else 0, "api_server" if by_flag else "serve")


def _joined(outer: EnvPlace, inner: EnvPlace | None) -> EnvPlace:
    """Docker's -e, and what the inner shell assigns itself."""
    return EnvPlace((*outer.slots, *(inner.slots if inner else ())), outer.add)


def nested_layer(word: Word) -> Layer:
    """The text of one quoted word as the inner shell reads it."""
    layer, raw = word.layer, word.raw
    if not word.runs and word.value == raw:
        return layer.part(word.lstart, word.lend)
    positions = [word.locate(index) for index in range(len(word.value))]
    starts = [layer.begin(position) for position in positions]
    ends = [layer.finish(position + 1) for position in positions]
    escape: Escape = _nowhere
    if raw[:1] == "'" and raw[-1:] == "'" and raw.count("'") == 2:
        escape = _in_single(layer)
    elif raw[:1] == '"' and raw[-1:] == '"' and not word.unresolved:
        escape = _in_double(layer)
    return Layer(word.value, starts, ends, escape, layer.origin)


def _nowhere(_text: str) -> str | None:
    return None


def _in_single(layer: Layer) -> Escape:
    return lambda text: layer.escape(text.replace("'", "'\\''"))


def _in_double(layer: Layer) -> Escape:
    return lambda text: layer.escape(re.sub(r'(["\\$`])', r"\\\1", text))
