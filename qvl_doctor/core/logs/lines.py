"""One raw line to its parts: whose it is, when, where in the code, and the message itself.

Handles what wraps vLLM's lines (Docker, Compose, Kubernetes, journald, Ray, colours, progress bars that
share the line) and every prefix format of vLLM 0.3 to 0.33:

* up to 0.7: `INFO 01-02 03:04:05 config.py:12] text`; since 0.8 `[config.py:12] text`;
* `(VllmWorkerProcess pid=N)` (V0), `(VllmWorker rank=0 pid=N)`, `(EngineCore_DP0 pid=N)`, ... in front,
  once per wrapped stream: the last one wrote the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)"
_PROCESS = r"\((?P<process>[A-Za-z][\w:. =+-]{0,60}?) ?,?pid=(?P<pid>\d{1,10})(?:, ?ip=[\w.:]{1,45})?\) ?"
_ORIGIN = r"\[?(?P<file>[\w./-]{1,120}\.(?:py|pyx|cpp|cc)):(?P<line>\d{1,6})\] ?"

_ANSI = lazy_regex(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = lazy_regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

# What other programs put in front of a whole line. Tried in turn, up to four layers.
_OUTER = tuple(
    lazy_regex(pattern)
    for pattern in (
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? (?:stdout|stderr) [FP] ",  # CRI
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? ?(?=\S| )",  # docker logs -t
        r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? \S{1,80} [\w./@-]{1,80}(?:\[\d+\])?: ",
        r"[\w.-]{1,63} [\w./@-]{1,60}\[\d{1,10}\]: ",  # journalctl -o short-iso, after its time
        r"(?P<container>\[pod/[\w./-]{1,200}\]) ",  # kubectl logs --prefix
        r"(?P<container>[a-z0-9][\w.-]{0,120}) {1,60}\| ?(?![ -]*[-+|]{3})",  # docker compose
        r"(?P<container>[\w.-]{1,120}(?: [\w.-]{1,60})?) › ",  # stern with a separator
    )
)
_PROCESSES = lazy_regex(rf"(?:\([A-Za-z][\w:. =+-]{{0,60}}? ?,?pid=\d{{1,10}}(?:, ?ip=[\w.:]{{1,45}})?\) ?)*{_PROCESS}")
_STAMP = r"(?:(?P<stamp>(?:\d\d-\d\d )?\d\d:\d\d:\d\d)(?:[.,]\d{1,6})? )?"
_LOGGER = lazy_regex(rf"(?:{_LEVEL} )?{_STAMP}{_ORIGIN}")
_UVICORN = lazy_regex(rf"{_LEVEL}: {{2,9}}")
# The logger's prefix in the middle of a line, after a progress bar or text that nobody above knows.
_EMBEDDED = lazy_regex(
    r"(?:\([A-Za-z][\w:. =+-]{0,60}? ?pid=\d{1,10}\) ?)*"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,120}\.pyx?:\d{1,6}\] "
)
_EMBEDDED_MARK = lazy_regex(r" \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,120}\.pyx?:\d{1,6}\] ")
_JSON_TEXT = ("log", "message", "msg", "MESSAGE", "textPayload")
_EMBEDDED_REACH = 8000  # characters looked through for a second prefix


@record
class Line:
    """A cleaned line. `text` runs from vLLM's own prefix to the end, `message` is what follows that prefix."""

    number: int
    text: str
    message: str
    process: str | None = None  # "EngineCore pid=123"
    container: str | None = None
    level: str | None = None
    stamp: str | None = None  # "11-30 17:05:41" or "17:05:41"
    file: str | None = None  # "core.py", of the logging call
    origin: str = ""  # "core.py:1231": lines of one logged message share it

    @property
    def stream(self) -> tuple[str | None, str | None, str]:
        """Lines of one traceback share this."""
        return self.container, self.process, self.origin


def unwrapped(raw: bytes) -> str:
    """The text of a raw line without colours, and without the JSON that Docker's log driver wraps around it."""
    text = raw.decode("utf-8", "replace")
    if text.startswith("{"):
        text = _from_json(text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text


def _from_json(text: str) -> str:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(record, dict):
        for name in _JSON_TEXT:
            value = record.get(name)
            if isinstance(value, str):
                return value.rstrip("\n")
    return text


def split(number: int, text: str) -> Iterator[Line]:
    """The lines that share one line of the file: progress bars end in CR, or run into the next message."""
    if "\r" in text or "\n" in text:
        for part in re.split(r"[\r\n]+", text):
            if part:
                yield from _split_embedded(number, part)
    else:
        yield from _split_embedded(number, text)


def _split_embedded(number: int, text: str) -> Iterator[Line]:
    line = parse(number, text)
    if line.origin:
        yield line
        return
    if not _EMBEDDED_MARK.search(text, 0, _EMBEDDED_REACH):
        yield line
        return
    found = _EMBEDDED.search(text, 0, _EMBEDDED_REACH)
    if found is None or found.start() == 0:
        yield line
        return
    head = text[: found.start()].rstrip()
    if head:
        yield parse(number, head)
    yield parse(number, text[found.start() :], container=line.container)


def parse(number: int, text: str, *, container: str | None = None) -> Line:
    """The parts of one line; whatever is not recognised stays in the message."""
    start, process, position = 0, *_process(text, 0)
    logger = _LOGGER.match(text, position)
    if logger is None:
        start, container = _unwrap(text, container)
        if start:
            process, position = _process(text, start)
            logger = _LOGGER.match(text, position)
    if logger is not None:
        message, level, stamp = text[logger.end() :], logger["level"], logger["stamp"]
        file = logger["file"].rpartition("/")[2]
        origin = f"{file}:{logger['line']}"
    else:
        uvicorn = _UVICORN.match(text, position)
        message = text[uvicorn.end() if uvicorn else position :]
        level, stamp, file, origin = (uvicorn["level"] if uvicorn else None), None, None, ""
    if level == "WARN":
        level = "WARNING"
    return Line(number, plain(text[start:]), plain(message), process, container, level, stamp, file, origin)


def _process(text: str, position: int) -> tuple[str | None, int]:
    """The process that names itself at the position, and where its name ends."""
    found = _PROCESSES.match(text, position)
    if found is None:
        return None, position
    return f"{found['process'].strip()} pid={found['pid']}", found.end()


def _unwrap(text: str, container: str | None) -> tuple[int, str | None]:
    """Where other programs' prefixes end, and the container that they name."""
    position = 0
    for _ in range(4):
        before = position
        for pattern in _OUTER:
            found = pattern.match(text, position)
            if found is not None:
                container = found.groupdict().get("container") or container
                position = found.end()
        if position == before:
            break
    return position, container


def plain(text: str) -> str:
    """Without control characters, bidirectional overrides and trailing blanks (tabs become one blank)."""
    if not text.isprintable():
        text = _CONTROL.sub("", text).replace("\t", " ")
    return text.rstrip()
