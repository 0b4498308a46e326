"""The values that parsing yields: spans, words, flags, what a container is given, what is wrong with the text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from qvl_doctor.core.records import field, record

Arity = Literal["switch", "one", "many", "optional"]
Escape: TypeAlias = Callable[[str], "str | None"]


class YamlSupportMissing(Exception):  # noqa: N818 - it is the absence of an extra, not a fault in the input
    """A YAML file was given, but the extra that locates its nodes (`qvl-doctor[deploy]`) is not installed."""


def unescaped(text: str) -> str:
    """Inserted text goes into the document as it is."""
    return text


@record
class Layer:
    """Text as an inner language sees it, with the way back to the document.

    `starts[i]`, `ends[i]` are the document span of `text[i]`; `escape` writes inserted text in the outer language
    (None: it can't be written there).
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    escape: Escape = unescaped
    origin: str = ""  # the document

    @staticmethod
    def of(document: str, start: int = 0, end: int | None = None) -> Layer:
        """The document itself, or a part of it."""
        end = len(document) if end is None else end
        return Layer(document[start:end], range(start, end), range(start + 1, end + 1), origin=document)

    def begin(self, position: int) -> int:
        """Where the character at `position` begins in the document; beyond the last one, where that ends."""
        if position < len(self.starts):
            return self.starts[position]
        return self.ends[-1] if len(self.ends) else 0

    def finish(self, position: int) -> int:
        """Where a span that ends before `position` ends in the document."""
        return self.ends[position - 1] if position > 0 and len(self.ends) else self.begin(0)

    def source(self, start: int, end: int) -> str:
        """The document's own text from `start` to `end`, with what the layer leaves out between them."""
        return self.origin[self.finish(start) : self.begin(end)]

    def part(self, start: int, end: int, escape: Escape | None = None) -> Layer:
        """A layer over `text[start:end]`."""
        return Layer(
            self.text[start:end], self.starts[start:end], self.ends[start:end], escape or self.escape, self.origin
        )


@record
class Word:
    """One argument after unquoting and expansion; `raw` and `lstart:lend` as it stands in its layer."""

    value: str
    layer: Layer
    lstart: int
    lend: int
    runs: tuple[tuple[int, int], ...] = ()  # (index in value, layer position), where the two no longer run in step
    unresolved: bool = False  # holds a variable that is not known here
    dynamic: bool = False  # holds a command substitution or a template
    inserted: bool = False  # comes out of a variable or array that is written elsewhere

    @property
    def raw(self) -> str:
        return self.layer.text[self.lstart : self.lend]

    @property
    def start(self) -> int:
        return self.layer.begin(self.lstart)

    @property
    def end(self) -> int:
        return self.layer.finish(self.lend)

    def locate(self, index: int) -> int:
        """The layer position of `value[index]`."""
        if index >= len(self.value):
            return self.lend
        if not self.runs:
            return self.lstart + index
        run = self.runs[max(bisect_right(self.runs, (index, 1 << 62)) - 1, 0)]
        return min(run[1] + index - run[0], self.lend)


@record
class Flag:
    """One option as given. `start:end` is its span in the document with its value; `line` counts from 1."""

    name: str  # canonical: long form, dashes: "--limit-mm-per-prompt"
    path: tuple[str, ...]  # ("image",) of --limit-mm-per-prompt.image
    negated: bool
    spelled: str  # "--limit_mm_per_prompt.image", "--no-enable-prefix-caching", "-tp"
    value: str | None
    line: int
    start: int
    end: int
    values: tuple[str, ...] = ()  # one by one, where a flag takes several
    joined: bool = False  # --flag=value in one word
    unresolved: bool = False
    words: tuple[Word, ...] = field(default=(), aside=True)


@record
class LostLine:
    """A line of flags that the shell does not pass on, since the line before lacks its backslash."""

    line: int
    text: str


@record
class Problem:
    """Something in the spelling that the shell or vLLM will not read as it was meant."""

    kind: Literal[
        "smart-dash",
        "smart-quote",
        "odd-space",
        "unclosed-quote",
        "space-after-backslash",
        "comment-in-continuation",
        "missing-backslash",
        "unreadable",
        "too-large",
    ]
    text: str
    line: int


@record
class Mount:
    source: str
    target: str


@record
class ContainerFacts:
    """What the container is given, by docker run, compose or a manifest."""

    image: str | None = None
    gpus: str | None = None  # "all", "2", "device=0,1"; counts of GPUs as text
    ipc: str | None = None
    shm_size_bytes: int | None = None
    network: str | None = None
    runtime: str | None = None
    memory_limit_bytes: int | None = None
    ports: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env_files: tuple[str, ...] = ()
    entrypoint: str | None = None
    kind: Literal["docker", "compose", "kubernetes", "dockerfile"] = "docker"


@record
class Splice:
    """Replace `start:end` of the document by `text`."""

    start: int
    end: int
    text: str


class LineIndex:
    """Line numbers of document positions, from 1."""

    __slots__ = ("_breaks",)

    def __init__(self, document: str) -> None:
        breaks: list[int] = []
        position = document.find("\n")
        while position >= 0:
            breaks.append(position)
            position = document.find("\n", position + 1)
        self._breaks = breaks

    def line(self, position: int) -> int:
        return bisect_right(self._breaks, position - 1) + 1
