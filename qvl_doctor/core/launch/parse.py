"""Any text to a document with its launch commands. Never fails on any text, save for YAML without its extra."""

from __future__ import annotations

from qvl_doctor.core.launch.assemble import Context
from qvl_doctor.core.launch.command import Document, Kind, LaunchCommand
from qvl_doctor.core.launch.detect import HINT, kind_by_content, kind_of
from qvl_doctor.core.launch.grammar import DEFAULT_GRAMMAR, FlagGrammar
from qvl_doctor.core.launch.prompts import without_prompts
from qvl_doctor.core.launch.reader import ShellReader
from qvl_doctor.core.launch.values import Layer, LineIndex, Problem, YamlSupportMissing
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import replace

MAX_CHARACTERS = 2 * 1024 * 1024  # some 10 s of the densest hostile text; an article of that size takes far less
_PSEUDO_CALL = lazy_regex(r"\s*(?:Async)?LLM(?:Engine)?(\([\w -]{0,40}\))(?=\s+-|\s*$)")
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
        again = _article(layer, context)
        if again:  # what its name or look promised is not in it, but commands are
            locked = bool(problems)
            commands = (
                [_locked(command, Phrase("locked_unreadable", {"problem": problems[0].text})) for command in again]
                if locked
                else again
            )
            kind = kind if locked else "article"
    return Document(text, kind, tuple(commands), name, tuple(problems), grammar)


def _read(layer: Layer, kind: Kind, context: Context) -> tuple[Kind, list[LaunchCommand], list[Problem]]:
    # The reader of one kind of text is not needed for the others.
    if kind in _YAML_KINDS:
        from qvl_doctor.core.launch.yaml_stream import yaml_commands  # noqa: PLC0415

        return yaml_commands(layer, kind, context)
    if kind == "python":
        from qvl_doctor.core.launch.python_source import python_commands  # noqa: PLC0415

        return kind, python_commands(layer, context) or ShellReader(layer, context).read_any(), []
    if kind == "systemd":
        from qvl_doctor.core.launch.systemd import systemd_commands  # noqa: PLC0415

        return kind, systemd_commands(layer, context), []
    if kind == "dockerfile":
        from qvl_doctor.core.launch.dockerfile import dockerfile_commands  # noqa: PLC0415

        return kind, dockerfile_commands(layer, context), []
    if kind == "article":
        return kind, _article(layer, context), []
    reader = ShellReader(without_prompts(layer), context)
    return "shell", reader.read_any(), []


def _article(layer: Layer, context: Context) -> list[LaunchCommand]:
    from qvl_doctor.core.launch.article import article_commands  # noqa: PLC0415 - as above

    return article_commands(layer, context, _block)


def _locked(command: LaunchCommand, reason: Phrase) -> LaunchCommand:
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
