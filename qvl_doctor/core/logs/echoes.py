"""Lines in which a server repeats what clients sent: recognised at a glance, counted, and shown to no rule.

Of such a line rules see the logger's own words only ("Received request ..."), once per kind of line.
"""

from __future__ import annotations

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
_PLACEHOLDER = b"_pad|>"
_PLACEHOLDERS = ((b"<|video_pad|>", "requests_with_video"), (b"<|image_pad|>", "requests_with_image"))


class RequestCounts:
    """How many requests one start has logged; its `facts` are sightings with the line of the first."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[str, str]] = {}

    def add(self, words: bytes, raw: bytes, source: str, number: int) -> None:
        """Counts a line of the logger by its first words."""
        if words.startswith(b"received"):
            self._count("requests_received", raw, source, number)
            if raw.find(_PLACEHOLDER, 0, _PLACEHOLDER_REACH) >= 0:
                for placeholder, name in _PLACEHOLDERS:
                    if raw.find(placeholder, 0, _PLACEHOLDER_REACH) >= 0:
                        self._count(name, raw, source, number)
        elif words.startswith(b"added"):
            self._count("requests_added", raw, source, number)

    def _count(self, name: str, raw: bytes, source: str, number: int) -> None:
        count = self._counts.get(name, 0)
        if not count:
            self._first[name] = (f"{source}:{number}", kept(plain(raw[:2000].decode("utf-8", "replace"))))
        self._counts[name] = count + 1

    def facts(self) -> dict[str, Sighting]:
        return {name: Sighting(count, *self._first[name]) for name, count in self._counts.items()}


class EchoStarts:
    """How echo lines of this log begin, in skeleton spelling; learned from the first of each kind."""

    def __init__(self) -> None:
        self.starts: tuple[bytes, ...] = ()
        self._words: dict[bytes, bytes] = {}

    def learn(self, raw: bytes) -> bytes | None:
        """The words of an echo line in skeleton spelling; None if a raw line is none."""
        found = _ECHO_LINE.match(raw)
        if found is None:
            return None
        words = level_one(found["words"])
        if len(self.starts) < _STARTS_KEPT:
            start = level_one(found[0])
            self._words[start] = words
            self.starts = tuple(self._words)
        return words

    def words_of(self, skeleton: bytes) -> bytes:
        """The words of a line that begins with one of `starts`."""
        for start, words in self._words.items():
            if skeleton.startswith(start):
                return words
        return b""


def words_of_echo(line: Line) -> str | None:
    """The logger's own words of an echo line ("" for dumps, which have none worth looking at); None if it is none."""
    if line.file in _DUMP_FILES:
        return ""
    found = _ECHO.match(line.message)
    return None if found is None else found["words"] or ""
