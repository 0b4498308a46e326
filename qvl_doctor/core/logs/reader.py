"""The log reader: a fold over the bytes of a vLLM log, in constant memory, to a `LogSummary`.

A log may hold several starts (a restart loop, an appended file). A start begins where its banner or argument
line comes a second time. The *deciding* start is the last one that failed or got ready; only if none did, the
last one. State, phase, facts, arguments, matches and failures are those of the deciding start; failures of
others are kept apart in `earlier_failures`, with their `attempt` number.

Lines that echo what clients sent (request logging, input dumps) are not matched against rules, and of access
lines only method, known path and status are.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import partial

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs import oom
from qvl_doctor.core.logs.attempt import Attempt
from qvl_doctor.core.logs.echoes import EchoStarts, kind_of_words, words_of_echo
from qvl_doctor.core.logs.failures import FATAL_LINES
from qvl_doctor.core.logs.lines import Line, plain, split, unwrapped
from qvl_doctor.core.logs.model import TEXT_LIMIT, Failure, LinePattern, LogMatch, LogSummary, Phase, Sighting
from qvl_doctor.core.logs.phases import PHASE_MARKS, phase_of_frames
from qvl_doctor.core.logs.prefilter import level_one, level_two, skeleton
from qvl_doctor.core.logs.rows import (
    ACCESS,
    ARGUMENTS,
    CONFIG,
    FATAL,
    OOM,
    OWN_REACH,
    PHASES,
    PREEMPTION,
    SHUTDOWN,
    SINGLE,
    STATS,
    TRACING,
    Rows,
    parted,
    rows_of,
)
from qvl_doctor.core.logs.sightings import SIGHTING_PATTERNS, read, read_engine_config
from qvl_doctor.core.logs.stream import LINE_LIMIT, LineSplitter
from qvl_doctor.core.logs.texts import kept, without_requests
from qvl_doctor.core.logs.tracebacks import TracebackCollector, shown
from qvl_doctor.core.logs.values import mapping
from qvl_doctor.core.masking import masked
from qvl_doctor.core.records import replace

_CACHED_LINE = 1024  # bytes; longer lines are seldom alike
_CACHED_LINES = 20_000
_WINDOW = 512  # lines looked at together
_ENDED_KEPT = 8  # earlier starts whose failures are kept
_TAIL_LINES = 20

_UNCLEAN = lazy_regex(rb"[\x00-\x08\x0b-\x1f\x7f\t]|[^\x00-\x7f]")
_UNSAFE_ESCAPE = lazy_regex(rb"\\[ubf]")  # JSON escapes whose letters a skeleton leaves out

_BANNER = lazy_regex(r"vLLM API server version |vLLM server version |█.*?\bversion\s+\d")
_PLAIN_PATH = lazy_regex(r"/(?:v\d+/)?[a-z_]{1,24}(?:/[a-z_]{1,24}){0,3}")


class LogReader:
    """Feed it bytes in any chunks, then ask `finish()`. No input makes it raise; a bad regex raises `re.error`."""

    def __init__(self, patterns: Sequence[LinePattern] | Rows = (), *, source: str = "log") -> None:
        self._source = source
        self._rows = patterns if isinstance(patterns, Rows) else rows_of(tuple(patterns))
        self._splitter = LineSplitter()
        self._lines = 0
        self._boring: set[bytes] = set()  # skeletons of lines that nothing can match
        self._echoes = EchoStarts()
        self._candidates: dict[bytes, tuple[int, ...]] = {}  # skeleton -> rows that may match
        self._tracebacks = TracebackCollector()
        self._attempt = Attempt(1)
        self._decided: Attempt | None = None  # the last ended start that can decide
        self._ended: list[Attempt] = []
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._summary: LogSummary | None = None

    @property
    def binary(self) -> bool:
        """Whether what was fed so far is no text."""
        return self._splitter.binary

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the log."""
        for block in self._splitter.feed(data):
            self._block(block)

    def finish(self) -> LogSummary:
        """The summary of everything fed; nothing may be fed afterwards."""
        if self._summary is None:
            for block in self._splitter.finish():
                self._block(block)
            self._summary = self.snapshot()
        return self._summary

    def snapshot(self) -> LogSummary:
        """The summary of all complete lines so far; feeding may go on."""
        deciding = self._attempt
        if not deciding.telling and self._decided is not None:
            deciding = self._decided
        state, failures = deciding.verdict()
        earlier: list[Failure] = []
        for attempt in (*self._ended, self._attempt):
            if attempt is not deciding:
                earlier.extend(attempt.failures.roots())
        return LogSummary(
            source=self._source,
            lines=self._lines,
            size_bytes=self._splitter.size_bytes,
            binary=self.binary,
            version=deciding.facts.get("vllm_version"),
            args=deciding.args,
            facts={**deciding.facts, **deciding.requests.facts()},
            phase=deciding.phase,
            failure_phase=failures[0].phase if failures else None,
            state=state,
            failures=failures,
            matches=deciding.matches(),
            oom=deciding.oom,
            stats=deciding.stats.result,
            attempt=deciding.number,
            attempts=self._attempt.number,
            earlier_failures=tuple(earlier),
            http_errors=dict(sorted(deciding.http_errors.items())),
            tail=tuple(kept(plain(unwrapped(raw[:LINE_LIMIT]))) for raw in self._tail),
        )

    # ---- lines -------------------------------------------------------------------------------------------

    def _block(self, block: bytes) -> None:
        """Whole lines. Those whose skeleton is known to matter to nothing are passed over in bulk."""
        lines = block.split(b"\n")
        skeletons = level_one(block).split(b"\n")
        count = len(lines) - 1  # the block ends in a newline
        first = self._lines + 1
        self._lines += count
        self._tail.extend(lines[max(0, count - _TAIL_LINES) : count])
        at = 0
        while at < count:
            end = min(count, at + _WINDOW)
            if first + at <= self._tracebacks.alert_until:
                self._line(first + at, lines[at], skeletons[at])
                at += 1
                continue
            boring, echoes, attempt = self._boring, self._echoes, self._attempt
            count_request, kind_of = attempt.requests.add, echoes.kind_of
            for offset in [n for n, text in enumerate(skeletons[at:end], at) if text not in boring]:
                text = skeletons[offset]
                if text.startswith(echoes.starts):
                    count_request(kind_of(text), lines[offset], self._source, first + offset)
                    continue
                self._line(first + offset, lines[offset], text)
                if first + offset < self._tracebacks.alert_until or self._attempt is not attempt:
                    at = offset + 1
                    break
            else:
                at = end

    def _line(self, number: int, raw: bytes, first_skeleton: bytes) -> None:
        if first_skeleton.startswith(self._echoes.starts):
            self._attempt.requests.add(self._echoes.kind_of(first_skeleton), raw, self._source, number)
            return
        alert = number <= self._tracebacks.alert_until
        if not alert and first_skeleton in self._boring:
            return
        if len(raw) > LINE_LIMIT:
            raw = raw[:LINE_LIMIT]
            first_skeleton = level_one(raw)
        rows = self._candidates.get(first_skeleton)
        if rows is None:
            if self._echoes.learn(raw):
                for line in split(number, unwrapped(raw)):
                    self._part(line, (), alert=False)
                return
            rows = self._rows_for(raw, first_skeleton)
        if not rows and not alert:
            return
        for line in split(number, unwrapped(raw)):
            if self._part(line, rows, alert=alert) and len(raw) <= _CACHED_LINE:
                self._boring.add(first_skeleton)

    def _rows_for(self, raw: bytes, first_skeleton: bytes) -> tuple[int, ...]:
        """Rows that may match a line; remembered for all lines of its skeleton, where that is safe."""
        reduced = level_two(first_skeleton)
        cachable = len(raw) <= _CACHED_LINE and not (raw.startswith(b"{") and _UNSAFE_ESCAPE.search(raw))
        rows = self._candidates.get(reduced) if cachable else None
        if rows is not None:
            return rows
        if raw.startswith(b"{") or _UNCLEAN.search(raw):
            reduced_text = level_two(level_one(plain(unwrapped(raw)).encode("utf-8", "replace")))
        else:
            reduced_text = reduced
        rows = self._rows.candidates(reduced_text)
        if self._attempt.phase == "serving":  # nothing is beyond: marks of phases say no more
            rows = tuple(row for row in rows if not PHASES <= row < FATAL)
        if cachable:
            if len(self._candidates) > _CACHED_LINES:
                self._candidates.clear()
                self._boring.clear()
            self._candidates[reduced] = self._candidates[first_skeleton] = rows
            if not rows:
                self._boring.add(first_skeleton)
        return rows

    def _part(self, line: Line, rows: tuple[int, ...], *, alert: bool) -> bool:
        """What one line says; True if lines like it say nothing further."""
        where = f"{self._source}:{line.number}"
        words = words_of_echo(line)
        if words is not None:
            self._echo(line, words, where)
            return False
        message = without_requests(line.message)
        if message != line.message:
            line = replace(line, message=message)
        attempt = self._attempt
        stopped = attempt.stopped_on_request
        own, rules = parted(rows)
        access = self._rows.search(SINGLE + ACCESS, line.message) if SINGLE + ACCESS in own else None
        if access is not None:
            return self._access(line, access, rules, where)
        for row in own:
            found = self._rows.search(row, line.message)
            if found is not None:
                self._own(line, row, found, where)
        phase: str = self._attempt.phase
        if stopped and attempt is self._attempt:
            return False  # what processes say while they are stopped is no fault
        if alert or not TRACING.isdisjoint(own):
            phase = self._trace(line, where) or phase
        if rules:
            self._match(line, rules, line.message, where, phase)
        return False

    # ---- what a line says ----------------------------------------------------------------------------------

    def _own(self, line: Line, row: int, found: re.Match[str], where: str) -> None:
        if row == SINGLE + STATS:  # the bulk of them: their text is masked when it is asked for
            if self._attempt.stats.add(line.message, line.stamp, where, line.text):
                self._advance("serving", line.number)
            return
        text = kept(line.text)
        if row < PHASES:
            pattern = SIGHTING_PATTERNS[row]
            self._banner(line)
            for name, value in read(pattern, found):
                self._attempt.state_fact(name, masked(value) if isinstance(value, str) else value, where, text)
            if pattern.phase is not None:
                self._advance(pattern.phase, line.number)
        elif row < FATAL:
            self._advance(PHASE_MARKS[row - PHASES][1], line.number)
        elif row < SINGLE:
            if self._attempt.stopped_on_request:
                return
            _, kind, report = FATAL_LINES[row - FATAL]
            message = kept(found["message"])
            self._attempt.failures.add_line(
                line, kind, message, where=where, text=text, phase=self._attempt.phase, report=report
            )
        else:
            self._single(line, row - SINGLE, found, where, text)

    def _single(self, line: Line, row: int, found: re.Match[str], where: str, text: str) -> None:
        attempt = self._attempt
        if row == PREEMPTION:
            attempt.stats.add_preemption(line.message, where, line.text)
        elif row == ARGUMENTS:
            if attempt.args is not None:
                attempt = self._start()
            attempt.args = mapping(line.message[found.end() :])
            self._advance("start", line.number)
        elif row == CONFIG:
            for name, value in read_engine_config(line.message[found.end() :]).items():
                attempt.state_fact(name, masked(value) if isinstance(value, str) else value, where, text)
        elif row == SHUTDOWN:
            attempt.note_shutdown(line.number)
        elif row == OOM and line.level not in ("DEBUG", "INFO"):
            frames = self._tracebacks.frames_of(line)
            phase = phase_of_frames(frames) or attempt.phase
            attempt.add_oom(oom.parse_oom(line, where=where, text=text, phase=phase, frames=shown(frames)))

    def _banner(self, line: Line) -> None:
        if _BANNER.search(line.message, 0, OWN_REACH):
            if self._attempt.banner_seen:
                self._start()
            self._attempt.banner_seen = True

    def _start(self) -> Attempt:
        """A further start begins."""
        if self._attempt.telling:
            self._decided = self._attempt
        self._ended = [*self._ended, self._attempt][-_ENDED_KEPT:]
        self._attempt = Attempt(self._attempt.number + 1)
        self._candidates.clear()
        self._boring.clear()
        self._echoes = EchoStarts()
        return self._attempt

    def _trace(self, line: Line, where: str) -> str | None:
        """Hands the line to the traceback collector; the phase that its traceback tells, if it ends one."""
        raised, completed = self._tracebacks.take(line)
        if completed:
            self._attempt.failures.complete(line, where=where, text=kept(line.text))
        if raised is None:
            return None
        raised.message = kept(raised.message)
        self._attempt.failures.add_raised(raised, where=where, text=kept(line.text), phase=self._attempt.phase)
        return phase_of_frames(raised.frames)

    def _echo(self, line: Line, words: str, where: str) -> None:
        """Counts a line that repeats a request; rules see the logger's words only."""
        if not words:
            return
        self._advance("serving", line.number)
        self._attempt.requests.add(
            kind_of_words(words), line.text.encode("utf-8", "replace"), self._source, line.number
        )
        rows = self._rows.candidates(skeleton(words.encode()))
        _, rules = parted(rows)
        if rules:
            shown_line = replace(line, message=words, text=line.text.partition(words)[0] + words.rstrip())
            self._match(shown_line, rules, words, where, self._attempt.phase)

    def _access(self, line: Line, access: re.Match[str], rules: tuple[int, ...], where: str) -> bool:
        """Counts an access line. True for "200 OK" of a server known to serve: its phrase tells the status.

        Lines like that one are passed over from then on, so rules see the first of each kind.
        """
        attempt, status = self._attempt, int(access["status"])
        if status >= 400:
            attempt.http_errors[status] = attempt.http_errors.get(status, 0) + 1
        elif access["method"] == "POST":
            self._advance("serving", line.number)
            if "answered_path" not in attempt.facts:
                attempt.facts["answered_path"] = Sighting(access["path"][:100], where, kept(line.text))
        if rules and not attempt.stopped_on_request:
            self._match(line, rules, _access_text(access), where, attempt.phase)
        return attempt.phase == "serving" and status == 200 and access["phrase"] == " OK"

    def _advance(self, phase: Phase, number: int) -> None:
        before = self._attempt.phase
        self._attempt.advance(phase, number)
        if self._attempt.phase != before and self._attempt.phase == "serving":
            self._candidates.clear()
            self._boring.clear()

    def _match(self, line: Line, rules: tuple[int, ...], text: str, where: str, phase: str) -> None:
        for row in rules:
            found = self._rows.search(row, text)
            if found is not None:
                key = self._rows.key(row)
                self._attempt.add_match(key, line.number, partial(_log_match, key, line, where, phase, found))


def _log_match(key: str, line: Line, where: str, phase: str, found: re.Match[str]) -> LogMatch:
    return LogMatch(
        key=key,
        where=where,
        line_number=line.number,
        text=kept(line.text, around=found[0]),
        groups={name: masked(value[:TEXT_LIMIT]) for name, value in found.groupdict().items() if value is not None},
        phase=phase,
        process=line.process,
    )


def _access_text(access: re.Match[str]) -> str:
    path = access["path"] if _PLAIN_PATH.fullmatch(access["path"]) else "/..."
    return f'"{access["method"]} {path} HTTP/1.1" {access["status"]}{access["phrase"].rstrip()}'
