"""Lines in which a server repeats what clients sent: recognised at a glance, counted, and shown to no rule.

Of such a line rules see the logger's own words only ("Received request ..."), once per kind of line.
"""

from __future__ import annotations

from typing import Literal

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.lines import Line, plain
from qvl_doctor.core.logs.model import Sighting
from qvl_doctor.core.logs.prefilter import level_one
from qvl_doctor.core.logs.texts import kept

# Files whose lines are nothing but what requests held.
_DUMP_FILES = frozenset({"dump_input.py"})
_WORDS = r"Received request |Request \S{1,120} details: |Generated response |(?:Added|Finished) request "
_ECHO = lazy_regex(rf"(?P<words>{_WORDS})|Dumping (?:input|scheduler) ")
# The same at a glance, for the bulk of a serving log: a logger's line whose message begins so.
_ECHO_LINE = lazy_regex(
    rb"(?:\{\"log\":\")?[^\]\"'{]{0,200}?(?:INFO|DEBUG) [\d: -]{14} \[?[\w./-]{1,120}:\d{1,6}\] "
    rb"(?P<words>" + _WORDS.encode() + rb")"
)
_STARTS_KEPT = 16
_PLACEHOLDER_REACH = 16_384  # bytes of a request in which a picture's or video's placeholder is looked for

EchoKind = Literal["received", "added", "other"]


class RequestCounts:
    """How many requests one start has logged; its `facts` are sightings with the line of the first."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[str, str]] = {}

    def add(self, kind: EchoKind, raw: bytes, source: str, number: int) -> None:
        """Counts a line of the logger. Runs for most lines of a busy server's log."""
        if kind == "received":
            self._count("requests_received", raw, source, number)
            if raw.find(b"_pad|>", 0, _PLACEHOLDER_REACH) >= 0:
                if raw.find(b"<|image_pad|>", 0, _PLACEHOLDER_REACH) >= 0:
                    self._count("requests_with_image", raw, source, number)
                if raw.find(b"<|video_pad|>", 0, _PLACEHOLDER_REACH) >= 0:
                    self._count("requests_with_video", raw, source, number)
        elif kind == "added":
            self._count("requests_added", raw, source, number)

    def _count(self, name: str, raw: bytes, source: str, number: int) -> None:
        if name in self._counts:
            self._counts[name] += 1
        else:
            self._counts[name] = 1
            self._first[name] = (f"{source}:{number}", kept(plain(raw[:2000].decode("utf-8", "replace"))))

    def facts(self) -> dict[str, Sighting]:
        return {name: Sighting(count, *self._first[name]) for name, count in self._counts.items()}


class EchoStarts:
    """How echo lines of this log begin, in skeleton spelling; learned from the first of each kind."""

    def __init__(self) -> None:
        self.starts: tuple[bytes, ...] = ()
        self._received: tuple[bytes, ...] = ()
        self._added: tuple[bytes, ...] = ()

    def learn(self, raw: bytes) -> bool:
        """Whether a raw line is an echo; lines that begin as it does are known from then on."""
        found = _ECHO_LINE.match(raw)
        if found is None:
            return False
        start = level_one(found[0])
        if len(self.starts) < _STARTS_KEPT and start not in self.starts:
            self.starts = (*self.starts, start)
            kind = kind_of_words(found["words"].decode())
            if kind == "received":
                self._received = (*self._received, start)
            elif kind == "added":
                self._added = (*self._added, start)
        return True

    def kind_of(self, skeleton: bytes) -> EchoKind:
        """The kind of a line that begins with one of `starts`."""
        if skeleton.startswith(self._received):
            return "received"
        return "added" if skeleton.startswith(self._added) else "other"


def kind_of_words(words: str) -> EchoKind:
    """The kind of echo line by the logger's own words."""
    first = words.partition(" ")[0]
    return "received" if first == "Received" else "added" if first == "Added" else "other"


def words_of_echo(line: Line) -> str | None:
    """The logger's own words of an echo line ("" for dumps, which have none worth looking at); None if it is none."""
    if line.file in _DUMP_FILES:
        return ""
    found = _ECHO.match(line.message)
    return None if found is None else found["words"] or ""
