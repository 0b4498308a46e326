"""Tracebacks out of interleaved lines: frames collected per stream, exceptions chained, causes completed.

A stream is (container, process, logging call): the lines of one traceback share it, whatever stands between.
"""

from __future__ import annotations

import re

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.lines import Line
from qvl_doctor.core.logs.phases import TELLING_CALLS
from qvl_doctor.core.records import field, record

HEADER_REGEX = r"Traceback \(most recent call last\)"
FRAME_REGEX = r'^[ |]*File "(?P<path>[^"\n]{1,400})", line \d{1,7}(?:, in (?P<function>[^\n]{1,160}))?'
# An exception that stands alone, outside a traceback: its type must say that it is one.
_TYPE = r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,80}"
_INSTEAD_OF = r"(?:\([\w.]{1,80}\))?"  # Ray: RayTaskError(ValueError)
ALONE_REGEX = rf"^(?P<type>{_TYPE}(?:Error|Exception){_INSTEAD_OF})(?:: (?P<message>.*)|:?$)"
VALUE_ERROR_REGEX = r"^ {2,4}Value error, (?P<message>.+?)(?: \[type=\w+, input_value=.*)?$"
CHAIN_REGEX = (
    r"^(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)

_FRAME = lazy_regex(FRAME_REGEX)
_ALONE = lazy_regex(ALONE_REGEX)
_IN_TRACEBACK = lazy_regex(rf"^(?P<type>{_TYPE}{_INSTEAD_OF})(?:: ?(?P<message>.*)|$)")
_VALUE_ERROR = lazy_regex(VALUE_ERROR_REGEX)
_VALIDATION = lazy_regex(r"^\d{1,4} validation errors? for ")
_INPUT_ERROR = lazy_regex(r"^ {2}(?P<message>\S.*?)(?: \[type=\w+, input_value=.*)?$")
_GROUP_BAR = lazy_regex(r"^ *[|+](?:-[-+ \d]*)? ?")
_CALL = lazy_regex(r"\s+(?:\w+(?:, ?\w+)* = )?(?:return |await )?(?:\w+\.){0,6}(?P<function>\w+)\(")
_PATH_START = lazy_regex(r"(?:site|dist)-packages/")

# Frames that every traceback passes through and that tell nothing.
_PLUMBING = lazy_regex(
    r"torch/(?:nn/modules/module|utils/_contextlib|autograd/function|_ops|_compile)\.py"
    r"|(?:^|/)(?:contextlib|runners|process|base_events|_base|thread|context|popen_\w+|spawn)\.py|uvloop/|starlette/|fastapi/|uvicorn/|pydantic/_internal"
)

FRAMES_KEPT = 200  # of one traceback while it is read
FRAMES_SHOWN = 16
OPEN_LINES = 400  # lines without a further frame after which a traceback counts as cut
_OPEN_STREAMS = 64
_AFTERWARDS = 12  # lines of the stream after the exception that may still belong to it
_MESSAGE_LIMIT = 2000


@record(frozen=False)
class Raised:
    """An exception as a log states it. `continues` is the one in whose handling it was raised."""

    type: str
    message: str
    line: Line
    frames: tuple[str, ...]
    chained: str | None = None  # "handling" or "cause", if it follows another
    in_traceback: bool = True


@record(frozen=False)
class _Stream:
    frames: list[str] = field(default_factory=list)
    called: str | None = None  # function that the source text under the last frame calls, where it tells a phase
    open: bool = False
    last_line: int = 0
    raised: Raised | None = None  # the last one, while lines after it may complete it
    after: int = 0
    chained: str | None = None


def shortened(path: str) -> str:
    """A source file's path from its package on: "vllm/v1/engine/core.py"."""
    after = _PATH_START.split(path)[-1]
    return after if after != path else path.rpartition("/")[2]


def shown(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The last frames that tell something."""
    return tuple(frame for frame in frames if not _PLUMBING.search(frame))[-FRAMES_SHOWN:]


class TracebackCollector:
    """Takes the lines of a log in order; gives each exception once its line is reached."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str | None, str | None, str], _Stream] = {}
        self.alert_until = 0  # up to this line number every line may matter

    def take(self, line: Line) -> tuple[Raised | None, bool]:
        """(exception whose line this is, or None; whether the last exception of this stream was completed)."""
        message = _GROUP_BAR.sub("", line.message) if line.message[:8].lstrip()[:1] in ("|", "+") else line.message
        frame = _FRAME.match(message)
        if frame is not None:
            self._frame(line, frame)
            return None, False
        stream = self._streams.get(line.stream)
        if "Traceback (most recent call last)" in message:
            self._start(line)
            return None, False
        if stream is None:
            return self._alone(line, message), False
        if stream.open and line.number - stream.last_line > OPEN_LINES:
            stream.open, stream.frames = False, []
        if stream.open:
            return self._close(line, message, stream), False
        return self._afterwards(line, message, stream)

    def _stream(self, line: Line) -> _Stream:
        stream = self._streams.get(line.stream)
        if stream is None:
            if len(self._streams) >= _OPEN_STREAMS:
                del self._streams[next(iter(self._streams))]
            stream = self._streams[line.stream] = _Stream()
        return stream

    def _start(self, line: Line) -> None:
        stream = self._stream(line)
        stream.frames, stream.called, stream.open, stream.last_line = [], None, True, line.number
        self.alert_until = max(self.alert_until, line.number + OPEN_LINES)

    def _frame(self, line: Line, frame: re.Match[str]) -> None:
        stream = self._stream(line)
        if not stream.open:  # an excerpt that begins within a traceback
            stream.frames, stream.open = [], True
        stream.last_line, stream.called = line.number, None
        self.alert_until = max(self.alert_until, line.number + OPEN_LINES)
        if len(stream.frames) < FRAMES_KEPT:
            stream.frames.append(f"{shortened(frame['path'])}:{(frame['function'] or '<module>').strip()}")

    def _close(self, line: Line, message: str, stream: _Stream) -> Raised | None:
        if not message or message[0].isspace():
            call = _CALL.match(message)
            if call is not None and call["function"] in TELLING_CALLS:
                stream.called = call["function"]
            return None  # source text and its markers
        found = _IN_TRACEBACK.match(message)
        if found is None or not _is_exception(found["type"], stream.frames):
            return None  # another writer's line in between
        raised = Raised(
            type=found["type"],
            message=(found["message"] or "").strip()[:_MESSAGE_LIMIT],
            line=line,
            frames=_with_call(stream),
            chained=stream.chained,
        )
        stream.frames, stream.open, stream.chained = [], False, None
        stream.raised, stream.after = raised, 0
        open_until = (other.last_line + OPEN_LINES for other in self._streams.values() if other.open)
        self.alert_until = max(line.number + _AFTERWARDS, *open_until, 0)
        return raised

    def frames_of(self, line: Line) -> tuple[str, ...]:
        """Frames of the traceback that is open where this line stands."""
        stream = self._streams.get(line.stream)
        return _with_call(stream) if stream is not None and stream.open else ()

    def _afterwards(self, line: Line, message: str, stream: _Stream) -> tuple[Raised | None, bool]:
        if message.startswith("During handling of the above"):
            stream.chained = "handling"
        elif message.startswith("The above exception was the direct cause"):
            stream.chained = "cause"
        raised = stream.raised
        if raised is None:
            return self._alone(line, message), False
        stream.after += 1
        if stream.after > _AFTERWARDS:
            stream.raised = None
        elif stream.chained is None and _completes(raised, message):
            return None, True
        return self._alone(line, message), False

    def _alone(self, line: Line, message: str) -> Raised | None:
        if line.level in ("DEBUG", "INFO", "WARNING"):
            return None
        found = _ALONE.match(message)
        if found is None:
            return None
        raised = Raised(found["type"], (found["message"] or "").strip()[:_MESSAGE_LIMIT], line, (), in_traceback=False)
        stream = self._stream(line)
        stream.raised, stream.after = raised, 0
        self.alert_until = max(self.alert_until, line.number + _AFTERWARDS)
        return raised


def _with_call(stream: _Stream) -> tuple[str, ...]:
    """The frames, and the function that the last one calls, whose own frame reports often leave out."""
    if not stream.frames or stream.called is None:
        return tuple(stream.frames)
    file, _, function = stream.frames[-1].rpartition(":")
    return tuple(stream.frames) if function == stream.called else (*stream.frames, f"{file}:{stream.called}")


def _is_exception(name: str, frames: list[str]) -> bool:
    """Whether a name after frames is an exception's: capitalised, and named like one or dotted."""
    last = name.partition("(")[0].rpartition(".")[2]
    if not last[:1].isupper() and "." not in name:
        return False
    return bool(frames) or last.endswith(("Error", "Exception", "Interrupt", "Exit"))


def _completes(raised: Raised, message: str) -> bool:
    """Takes the cause out of the lines after an exception: pydantic's, or a message that began empty."""
    value_error = _VALUE_ERROR.match(message)
    if value_error is not None and _VALIDATION.match(raised.message):
        raised.message = value_error["message"][:_MESSAGE_LIMIT]
        return True
    if _VALIDATION.match(raised.message):
        found = _INPUT_ERROR.match(message)
        if found is not None:
            raised.message = found["message"][:_MESSAGE_LIMIT]
            return True
        return False
    if not raised.message and message and not message[0].isspace():
        raised.message = message[:_MESSAGE_LIMIT]
        return True
    return False
