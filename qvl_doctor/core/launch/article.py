"""Articles: Markdown, HTML and plain text with commands in fences, in code marks and in running text."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from qvl_doctor.core.launch.assemble import Context
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.detect import HINT, looks_like_html
from qvl_doctor.core.launch.prompts import without_prompts
from qvl_doctor.core.launch.python_source import closing, python_commands
from qvl_doctor.core.launch.reader import ShellReader
from qvl_doctor.core.launch.values import Layer
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

# What begins a command in running text.
_FENCE = lazy_regex(r"[ \t>]{0,40}(?P<mark>`{3,}|~{3,})[ \t]*\{?\.?(?P<language>[\w+-]{0,20})")
_TAG = lazy_regex(r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9]{0,15})(?:\s[^<>]{0,1000})?/?>|<!--")
_ENTITY = lazy_regex(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,10});")
_BREAKING = frozenset(("p", "div", "br", "li", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6", "tr", "td", "table"))
_OTHER_TAGS_TEXT = """
pre code span a b i em strong html body head title style script section article main header footer nav img blockquote
hr thead tbody th dl dt dd kbd samp tt sup sub u s button svg path figure link meta
"""
_OTHER_TAGS = frozenset(_OTHER_TAGS_TEXT.split())
_CJK = lazy_regex(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef\uac00-\ud7af]")
_WRAPPERS = frozenset(
    (
        "nohup",
        "sudo",
        "env",
        "exec",
        "time",
        "numactl",
        "taskset",
        "bash",
        "sh",
        "export",
        "python",
        "python3",
    )
)
_PLAUSIBLE_MODEL = lazy_regex(
    r"[\w.~$<{/-]*(?:/|\d|\$|<|-(?:VL|Instruct|AWQ|GPTQ|FP8|Int))[\w.:<>{}$/-]*", re.IGNORECASE
)
_SHELL_WORD = lazy_regex(r"(?:'[^'\n]{0,4000}'|\"[^\"\n]{0,4000}\"|[^\s'\"]|['\"])+")
_TALK_TEXT = "and then but or to with which so it on for in instead here as the is will would does gives that this but"
_TALK = frozenset(_TALK_TEXT.split())
MAX_LINE = 8_000  # characters of a line in running text that are looked at
MAX_CALLS = 50  # engine calls in running text that are tried
BlockReader = Callable[[Layer, str, Context], list[LaunchCommand]]


@record
class Block:
    """A fenced block: layer positions of what is in it."""

    language: str
    start: int
    end: int


def html_layer(layer: Layer) -> Layer:
    """HTML read as if it were Markdown: <pre> as a fence, <code> as code marks, entities decoded."""
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    in_pre = 0

    def put(piece: str, start: int, end: int) -> None:
        for character in piece:
            text.append(character)
            starts.append(layer.begin(start))
            ends.append(layer.finish(end))

    position, source = 0, layer.text
    while position < len(source):
        character = source[position]
        tag = _TAG.match(source, position) if character == "<" else None
        entity = _ENTITY.match(source, position) if character == "&" else None
        if tag is not None and tag["name"] is None:  # a comment
            stop = source.find("-->", tag.end())
            position = len(source) if stop < 0 else stop + 3
        elif tag is not None and _known_tag(tag["name"]):
            name = tag["name"].lower()
            if name == "pre":
                in_pre = 0 if tag["close"] else 1
                put("\n```\n", tag.start(), tag.end())
            elif name == "code" and not in_pre:
                put("`", tag.start(), tag.end())
            elif name in _BREAKING:
                put("\n", tag.start(), tag.end())
            position = tag.end()
        elif entity is not None:
            put(html.unescape(entity[0])[:1], position, entity.end())
            position = entity.end()
        else:
            stop = _plain_end(source, position)
            for at in range(position, stop):
                text.append(source[at])
                starts.append(layer.begin(at))
                ends.append(layer.finish(at + 1))
            position = stop
    return Layer("".join(text), starts, ends, lambda new: layer.escape(html.escape(new, quote=False)), layer.origin)


def _known_tag(name: str) -> bool:
    """Tags of HTML, not placeholders such as <model>."""
    return name.lower() in _BREAKING or name.lower() in _OTHER_TAGS


def _plain_end(source: str, position: int) -> int:
    stop = position + 1
    while stop < len(source) and source[stop] not in "<&":
        stop += 1
    return stop


def article_commands(layer: Layer, context: Context, read_block: BlockReader) -> list[LaunchCommand]:
    """Every vLLM command of an article, in order. `read_block` reads a fenced block of a language."""
    if looks_like_html(layer.text):
        layer = html_layer(layer)
    found: list[LaunchCommand] = []
    blocks, prose = _split(layer.text)
    for block in blocks:
        if HINT.search(layer.text, block.start, block.end) or block.language in ("yaml", "yml", "ini", "dockerfile"):
            part = without_prompts(layer.part(block.start, block.end))
            found.extend(read_block(part, block.language.lower(), context))
    for start, end in prose:
        if HINT.search(layer.text, start, end):
            found.extend(_prose(layer, start, end, context))
    found.sort(key=lambda command: command.start)
    return found


def _split(text: str) -> tuple[list[Block], list[tuple[int, int]]]:
    """Fenced blocks, and the spans between them."""
    blocks: list[Block] = []
    prose: list[tuple[int, int]] = []
    position = begin = 0
    opened: tuple[str, str, int] | None = None
    while position < len(text):
        newline = text.find("\n", position)
        after = len(text) if newline < 0 else newline + 1
        fence = _FENCE.match(text, position)
        if fence and opened is None and "`" not in text[fence.end() : min(after, fence.end() + 500)]:
            prose.append((begin, position))
            opened = (fence["mark"], fence["language"], after)
        elif fence and opened is not None and fence["mark"].startswith(opened[0]):
            blocks.append(Block(opened[1], opened[2], position))
            opened, begin = None, after
        position = after
    if opened is not None:
        blocks.append(Block(opened[1], opened[2], len(text)))
    else:
        prose.append((begin, len(text)))
    return blocks, prose


def _prose(layer: Layer, start: int, end: int, context: Context) -> Iterator[LaunchCommand]:
    """Commands of running text: within code marks, or from where they begin to the line's end."""
    text = layer.text
    position, calls = start, 0
    while (hint := HINT.search(text, position, end)) is not None:
        line = text.rfind("\n", start, hint.start()) + 1
        line = max(line, start, hint.start() - MAX_LINE)
        stop = _line_end(text, hint.start(), end)
        marks = _code_marks(text, line, stop, hint.start())
        if marks is not None:
            part, position = layer.part(*marks), max(marks[1], hint.end())
        else:
            first = _beginning(text, line, hint.start())
            last = _ending(text, hint.start(), stop, end)
            if text[line:first].strip(" \t>*-+$#.)0123456789") and last <= stop:
                last = _sentence(text, hint.end(), last)
            part, position = without_prompts(layer.part(first, last)), max(last, hint.end())
        if hint[0].rstrip().endswith("("):
            calls += 1
            if calls > MAX_CALLS:
                return
            end_of_call = closing(text, hint.end() - 1)
            found = python_commands(layer.part(hint.start(), end_of_call), context) if end_of_call else []
            position = max(end_of_call if found else 0, hint.end())
        else:
            found = ShellReader(part, context).read()
        yield from (command for command in found if _plausible(command))


def _line_end(text: str, position: int, end: int) -> int:
    newline = text.find("\n", position, end)
    return min(end if newline < 0 else newline, position + MAX_LINE)


def _code_marks(text: str, line: int, stop: int, at: int) -> tuple[int, int] | None:
    """The span within the `…` around a position, if there is one."""
    before = text.count("`", line, at)
    if before % 2 == 0:
        return None
    opened = text.rfind("`", line, at) + 1
    closed = text.find("`", at, stop)
    return (opened, closed) if closed >= 0 else None


def _beginning(text: str, line: int, hint: int) -> int:
    """Back over the assignments and wrappers before a command in running text."""
    low = max(line, hint - 400)
    words = list(re.finditer(r"\S+", text[low:hint]))
    begin = hint
    if words and low + words[-1].end() == hint:  # a path: /opt/venv/bin/
        begin = low + words.pop().start()
        begin += _prose_prefix(text[begin:hint])
    while words:
        word = words[-1][0]
        if not (re.match(r"[A-Z_][A-Z0-9_]*=\S", word) or word in _WRAPPERS or re.match(r"--?[a-z]", word)):
            break
        begin = low + words.pop().start()
    return begin


def _prose_prefix(word: str) -> int:
    """How much of what is written right before a command is not part of its path."""
    cut = 0
    for match in re.finditer(r"[^\x21-\x7e]|[:,;(\[`\"'*]", word):
        cut = match.end()
    return cut


def _ending(text: str, start: int, stop: int, end: int) -> int:
    """The end of a command in running text: over continuation lines, and lines of flags that lost theirs."""
    cut = _CJK.search(text, start, stop)
    while cut is None and stop < end:
        following = _line_end(text, stop + 1, end)
        continued = text[max(start, stop - 200) : stop].rstrip(" \t\r").endswith("\\")
        flags = re.compile(r"[ \t]*--?[A-Za-z]").match(text, stop + 1) is not None
        if not (continued or flags) or (following <= stop + 1 and not continued):
            break
        stop = following
    return cut.start() if cut else stop


def _sentence(text: str, start: int, end: int) -> int:
    """Where the talk goes on behind a command in the middle of a sentence."""
    depth = 0
    for number, match in enumerate(_SHELL_WORD.finditer(text, start, end)):
        word = match[0]
        if "'" in word or '"' in word:
            continue
        depth += word.count("{") - word.count("}")
        if depth <= 0 and number and word.lower() in _TALK:
            return match.start()
        bare = word.rstrip(",;:!?.*)")
        if depth <= 0 and bare != word and not word.endswith("..."):
            return match.start() + len(bare)
    return end


def _plausible(command: LaunchCommand) -> bool:
    """Whether words of running text are a command rather than talk about one."""
    if command.server == "llm":
        return bool(command.flags) or command.model is not None
    model = command.model or ""
    return bool(command.flags) or _PLAUSIBLE_MODEL.fullmatch(model) is not None
