"""Any text to a document with its launch commands. Never fails on any text, save for YAML without its extra."""

from __future__ import annotations

import itertools
import re

from qvl_doctor.core.launch.article import HINT, article_commands, without_prompts
from qvl_doctor.core.launch.assemble import Context
from qvl_doctor.core.launch.command import Document, Kind, LaunchCommand
from qvl_doctor.core.launch.compose import compose_commands
from qvl_doctor.core.launch.config_file import config_command, is_config
from qvl_doctor.core.launch.detect import kind_by_content, kind_of
from qvl_doctor.core.launch.dockerfile import dockerfile_commands
from qvl_doctor.core.launch.grammar import DEFAULT_GRAMMAR, FlagGrammar
from qvl_doctor.core.launch.kubernetes import kubernetes_commands
from qvl_doctor.core.launch.python_source import python_commands
from qvl_doctor.core.launch.reader import ShellReader
from qvl_doctor.core.launch.systemd import systemd_commands
from qvl_doctor.core.launch.values import Layer, LineIndex, Problem, YamlSupportMissing
from qvl_doctor.core.launch.yaml_nodes import YamlError, documents
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import replace

MAX_CHARACTERS = 2 * 1024 * 1024  # some 10 s of the densest hostile text; an article of that size takes far less
_PSEUDO_CALL = lazy_regex(r"\s*(?:Async)?LLM(?:Engine)?(\([\w -]{0,40}\))(?=\s+-|\s*$)")
_SEPARATOR = lazy_regex(r"^---(?:[ \t][^\n]*)?(?:\r?\n|$)", re.MULTILINE)
_YAML_KINDS = ("yaml", "compose", "kubernetes", "config")
_LANGUAGES: dict[str, Kind] = {
    "python": "python",
    "py": "python",
    "yaml": "yaml",
    "yml": "yaml",
    "ini": "systemd",
    "systemd": "systemd",
    "dockerfile": "dockerfile",
    "docker": "dockerfile",
    "bash": "shell",
    "sh": "shell",
    "shell": "shell",
    "console": "shell",
    "zsh": "shell",
}


def parse_text(text: str, *, name: str = "command", grammar: FlagGrammar | None = None) -> Document:
    """The commands of a text; `name` is the file's, and tells the kind where the text does not.

    Raises YamlSupportMissing for a YAML file if the extra `deploy` is not installed; nothing else, on any text.
    """
    grammar = grammar or DEFAULT_GRAMMAR
    if len(text) > MAX_CHARACTERS:
        problem = Problem("too-large", f"{len(text)} characters", 1)
        return Document(text, "shell", (), name, (problem,), grammar)
    context = Context(text, name, grammar, LineIndex(text))
    layer = Layer.of(text)
    if _PSEUDO_CALL.match(text):
        return Document(text, "shell", tuple(_pseudo(layer, context)), name, (), grammar)
    kind = kind_of(text, name)
    kind, commands, problems = _read(layer, kind, context)
    if kind != "article" and not any(command.server != "other" for command in commands) and HINT.search(text):
        again = article_commands(layer, context, _block)
        if again:  # what its name or look promised is not in it, but commands are
            locked = bool(problems)
            commands = [_locked(command, problems[0].text) for command in again] if locked else again
            kind = kind if locked else "article"
    return Document(text, kind, tuple(commands), name, tuple(problems), grammar)


def _read(layer: Layer, kind: Kind, context: Context) -> tuple[Kind, list[LaunchCommand], list[Problem]]:
    if kind in _YAML_KINDS:
        return _yaml(layer, kind, context)
    if kind == "python":
        return kind, python_commands(layer, context) or ShellReader(layer, context).read_any(), []
    if kind == "systemd":
        return kind, systemd_commands(layer, context), []
    if kind == "dockerfile":
        return kind, dockerfile_commands(layer, context), []
    if kind == "article":
        return kind, article_commands(layer, context, _block), []
    reader = ShellReader(without_prompts(layer), context)
    return "shell", reader.read_any(), []


def _locked(command: LaunchCommand, reason: str) -> LaunchCommand:
    return replace(command, editable=False, not_editable_reason=command.not_editable_reason or reason)


def _pseudo(layer: Layer, context: Context) -> list[LaunchCommand]:
    """`LLM(offline) --flag …`: an offline engine's arguments, written as a command."""
    match = _PSEUDO_CALL.match(layer.text)
    assert match is not None  # the caller looked
    start, end = match.span(1)
    inside = layer.text[start + 1 : end - 1].replace(" ", "_")
    text = f"{layer.text[:start]}_{inside}_{layer.text[end:]}"
    return ShellReader(replace(layer, text=text), context).read_any()


def _block(layer: Layer, language: str, context: Context) -> list[LaunchCommand]:
    """A fenced block of an article; of YAML that can't be read, what else is found in it."""
    kind = _LANGUAGES.get(language) or kind_by_content(layer.text)
    if kind in ("article", "dockerfile") and language not in ("dockerfile", "docker"):
        kind = "shell"
    try:
        _, commands, _ = _read(layer, kind, context)
    except YamlSupportMissing:
        commands = []
    found = [command for command in commands if command.server not in ("other", "config")]
    if not found and kind != "shell" and HINT.search(layer.text) and kind not in _YAML_KINDS:
        return ShellReader(layer, context).read()
    if kind in _YAML_KINDS:
        found += [command for command in commands if command.server == "config"]
    return found


def _yaml(layer: Layer, kind: Kind, context: Context) -> tuple[Kind, list[LaunchCommand], list[Problem]]:
    """The documents of a YAML stream, one by one: those without a word of vLLM are not even parsed."""
    commands: list[LaunchCommand] = []
    problems: list[Problem] = []
    for start, end in _yaml_parts(layer.text):
        part = layer.part(start, end)
        lowered = part.text.lower()
        if kind in ("compose", "kubernetes") and "vllm" not in lowered:
            continue
        try:
            for root in documents(part):
                if root.get("services") is not None:
                    kind = "compose" if kind == "yaml" else kind
                    commands.extend(compose_commands(root, context))
                elif root.get("apiVersion") is not None or root.get("spec") is not None or root.get("kind") is not None:
                    kind = "kubernetes" if kind == "yaml" else kind
                    commands.extend(kubernetes_commands(root, context))
                elif root.kind == "mapping" and is_config(root):
                    kind = "config" if kind == "yaml" else kind
                    command = config_command(root, context)
                    commands.extend([command] if command else [])
        except YamlError as error:
            line = context.lines.line(part.begin(0))
            problems.append(Problem("unreadable", f"not readable as YAML: {error}", line))
    return kind, commands, problems


def _yaml_parts(text: str) -> list[tuple[int, int]]:
    """The spans of a stream's documents."""
    cuts = [match.end() for match in _SEPARATOR.finditer(text)][:1000]
    bounds = [0, *cuts, len(text)]
    return [(start, end) for start, end in itertools.pairwise(bounds) if text[start:end].strip()]
