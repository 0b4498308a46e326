"""Failures out of exceptions and fatal lines: one fault once, its root first, what only reports it left out."""

from __future__ import annotations

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.lines import Line
from qvl_doctor.core.logs.model import Failure
from qvl_doctor.core.logs.phases import phase_of_frames
from qvl_doctor.core.logs.tracebacks import Raised, shown
from qvl_doctor.core.records import field, record, replace

# Lines, not exceptions, that end a server: (regex, type of the failure, whether it only reports another's end).
FATAL_LINES: tuple[tuple[str, str, bool], ...] = (
    (r"^(?:vllm|vllm \w+|\w[\w.-]*\.py|__main__\.py): error: (?P<message>.+)", "usage error", False),
    (r"(?P<message>Failed to load model - not enough GPU memory\..*)", "torch.OutOfMemoryError", False),
    (r"(?:^|: line \d+: +\d+ )Killed\b(?P<message>.{0,200})$", "Killed", False),
    (r"code=killed, status=9/KILL(?P<message>.*)", "Killed", False),
    (r"Out of memory: Killed process \d+ (?P<message>.*)", "Killed", False),
    (r"(?P<message>Engine iteration timed out\. .*)", "TimeoutError", False),
    (r"^(?P<message>Fatal Python error: .*)", "crash", False),
    (r"^(?P<message>(?:!+ *)?Segmentation fault\b.*|Bus error\b.*|Aborted \(core dumped\).*)", "crash", False),
    (r"^(?P<message>terminate called after throwing .*)", "crash", False),
    (r"(?P<message>(?:Worker|Engine core) proc \S+ died unexpectedly.*)", "died", True),
    (r"(?P<message>engine core exited unexpectedly.*)", "died", True),
    (r"(?P<message>EngineCore encountered a fatal error\.)", "died", True),
    (r"(?P<message>EngineCore failed to start\.)", "died", True),
    (r"(?P<message>WorkerProc failed to start\.)", "died", True),
    (r"(?P<message>Got fatal signal from worker processes.*)", "died", True),
    (r"(?P<message>Engine background task failed.*)", "died", True),
)

# Exceptions that only say that something else ended.
_CONSEQUENCE_TYPES = lazy_regex(
    r"(?:^|\.)(?:EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|RayTaskError|RayActorError|ActorDiedError"
    r"|ProcessRaisedException|ProcessExitedException|ChildFailedError|BrokenPipeError|EOFError|nccl[A-Z]\w+Error)\b"
)
_CONSEQUENCE_MESSAGES = lazy_regex(
    r"^(?:Engine core initialization failed|Engine process failed to start|EngineCore encountered an issue"
    r"|Background loop (?:is not running|has errored already)|Task finished unexpectedly"
    r"|WorkerProc initialization failed|Worker proc \S+ died|cancelled$|Executor failed|Engine loop is not running)"
)
_QUOTED = lazy_regex(
    r"^(?:Worker failed with error|Call to \w+ method failed:?) ?'?(?P<message>.+?)"
    r"(?:', please check the stack trace.*)?$"
)
# Raised in the engine's own loop: the engine ends with it.
_ENGINE_LOOP = frozenset({"run_busy_loop", "_process_engine_step", "run_engine_loop", "run_engine_core"})
# A client's account of an answer, pasted into or printed between the server's lines.
_CLIENT_TYPES = lazy_regex(r"^(?:openai|httpx|httpcore|litellm|langchain\w*)\.|^BadRequestError$")
# Raised by whoever stops the server, not by a fault.
_STOPS = frozenset({"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit"})
# Raised and caught while looking something up: what is raised in handling them is what matters.
_LOOKUPS = frozenset(
    {"KeyError", "AttributeError", "IndexError", "StopIteration", "StopAsyncIteration", "Empty", "FileNotFoundError",
     "EntryNotFoundError", "ModuleNotFoundError", "CancelledError", "LookupError", "BlockingIOError", "EndOfStream"}
)  # fmt: skip
_NUMBERS = lazy_regex(r"0x[0-9a-f]+|\d+")
_PYTORCH_NOTE = lazy_regex(r" If reserved but unallocated memory is large.*")
FAILURES_KEPT = 40  # of one start


@record(frozen=False)
class _Entry:
    failure: Failure
    raised: Raised | None
    key: str
    quotes: set[str] = field(default_factory=set)  # keys under which others quote it


def _name(exception_type: str) -> str:
    return exception_type.partition("(")[0].rpartition(".")[2]


def _key(message: str) -> str:
    """What the same error says in any rank: without numbers."""
    return _NUMBERS.sub("#", message)[:160].strip().lower()


class FailureLog:
    """The failures of one start, as they come."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt = attempt
        self._entries: list[_Entry] = []
        self._last: dict[tuple[str | None, str | None, str], _Entry] = {}

    def add_raised(self, raised: Raised, *, where: str, text: str, phase: str) -> None:
        """An exception: a new failure, a link of the last one's chain, or a quote of a known one."""
        if _name(raised.type) in _STOPS or _CLIENT_TYPES.match(raised.type):
            return
        stream = raised.line.stream
        previous = self._last.get(stream)
        if raised.chained and previous is not None:
            self._chain(previous, raised)
            return
        found = phase_of_frames(raised.frames) or phase
        failure = Failure(
            type=raised.type,
            message=raised.message,
            where=where,
            line_number=raised.line.number,
            text=text,
            process=raised.line.process,
            phase=found,
            frames=shown(raised.frames),
            chain=((raised.type, raised.message),),
            kind="consequence" if _is_consequence(raised.type, raised.message) else "root",
            attempt=self.attempt,
            in_engine_loop=any(frame.rpartition(":")[2] in _ENGINE_LOOP for frame in raised.frames),
        )
        entry = self._keep(failure, raised)
        if entry is not None:
            if len(self._last) > 256:
                self._last.clear()
            self._last[stream] = entry

    def add_line(self, line: Line, kind: str, message: str, *, where: str, text: str, phase: str, report: bool) -> None:
        """A fatal line that is no exception."""
        self._keep(
            Failure(
                type=kind,
                message=message.strip(),
                where=where,
                line_number=line.number,
                text=text,
                process=line.process,
                phase=phase,
                kind="consequence" if report else "root",
                chain=((kind, message.strip()),),
                attempt=self.attempt,
            ),
            None,
        )

    def complete(self, line: Line, *, where: str, text: str) -> None:
        """A line after an exception states its cause: the failure now stands there."""
        entry = self._last.get(line.stream)
        if entry is None or entry.raised is None:
            return
        raised = entry.raised
        chain = (*entry.failure.chain[:-1], (raised.type, raised.message))
        entry.failure = replace(
            entry.failure, message=raised.message, chain=chain, where=where, line_number=line.number, text=text
        )
        entry.quotes.add(entry.key)
        entry.key = _key(raised.message)

    def _chain(self, entry: _Entry, raised: Raised) -> None:
        old = entry.failure
        chain = (*old.chain, (raised.type, raised.message))[-12:]
        entry.quotes.add(_key(raised.message))
        entry.raised = raised if not _is_consequence(raised.type, raised.message) else None
        replaces = raised.chained == "handling" and _name(old.type) in _LOOKUPS
        if replaces or (old.kind == "consequence" and not _is_consequence(raised.type, raised.message)):
            entry.failure = replace(
                old,
                type=raised.type,
                message=raised.message,
                frames=shown(raised.frames) or old.frames,
                phase=phase_of_frames(raised.frames) or old.phase,
                kind="root",
                chain=chain,
            )
            entry.quotes.add(entry.key)
            entry.key = _key(raised.message)
        else:
            entry.raised = None  # later lines complete the handler's message, not the root's
            entry.failure = replace(old, chain=chain)

    def _keep(self, failure: Failure, raised: Raised | None) -> _Entry | None:
        quoted = _QUOTED.match(failure.message)
        key = _key(quoted["message"] if quoted else failure.message) or _name(failure.type).lower()
        for entry in self._entries:
            if _same(key, entry):
                entry.failure = replace(entry.failure, count=entry.failure.count + 1)
                if not entry.failure.frames and failure.frames:
                    entry.failure = replace(entry.failure, frames=failure.frames, phase=failure.phase)
                return entry if quoted is None else None
        if len(self._entries) >= FAILURES_KEPT:
            return None
        entry = _Entry(failure, raised, key)
        self._entries.append(entry)
        return entry

    @property
    def empty(self) -> bool:
        return not self._entries

    def roots(self) -> tuple[Failure, ...]:
        """Root failures in order of the log; reports of other failures' ends only where there is no root."""
        failures = sorted((entry.failure for entry in self._entries), key=lambda failure: failure.line_number)
        roots = tuple(failure for failure in failures if failure.kind == "root")
        return roots or tuple(failures)

    def all(self) -> tuple[Failure, ...]:
        return tuple(entry.failure for entry in self._entries)


def _same(key: str, entry: _Entry) -> bool:
    if key == entry.key or key in entry.quotes:
        return True
    shorter, longer = sorted((key, entry.key), key=len)
    return len(shorter) >= 40 and longer.startswith(shorter[:120])


def _is_consequence(exception_type: str, message: str) -> bool:
    return bool(_CONSEQUENCE_TYPES.search(exception_type) or _CONSEQUENCE_MESSAGES.match(message))
