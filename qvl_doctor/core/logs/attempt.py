"""What one start in a log has shown so far: phase, facts, arguments, matches, failures; and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qvl_doctor.core.logs.echoes import RequestCounts
from qvl_doctor.core.logs.failures import FailureLog
from qvl_doctor.core.logs.model import Failure, LogMatch, Matches, OomReport, Phase, Sighting, State, Value
from qvl_doctor.core.logs.phases import RANK
from qvl_doctor.core.logs.sightings import FIRST, LARGEST, SMALLEST
from qvl_doctor.core.logs.stats import StatsFold
from qvl_doctor.core.records import record, replace

FIRST_MATCHES = 4
_DEATHS = frozenset({"died", "Killed", "crash"})
_NEAR_LINES = 600  # a fatal error's traceback stands within so many lines of the note of the death


@record(frozen=False)
class _Found:
    count: int
    first: list[LogMatch]
    last_line: int
    last: Callable[[], LogMatch]  # made when asked for: a pattern may match every line of a gigabyte


class Attempt:
    """One start. Mutable while the log is read; the reader takes its results at the end."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.phase: Phase = "unknown"
        self.facts: dict[str, Sighting] = {}
        self.args: Mapping[str, object] | None = None
        self.banner_seen = False
        self.failures = FailureLog(number)
        self.oom: OomReport | None = None
        self.stats = StatsFold()
        self.requests = RequestCounts()
        self.http_errors: dict[int, int] = {}
        self.ready_line: int | None = None
        self.shutdown_line: int | None = None
        self.stopped_on_request = False
        self._found: dict[str, _Found] = {}

    def advance(self, phase: Phase, number: int) -> None:
        """Takes note of a phase; a start never goes back (its processes print out of order)."""
        if RANK[phase] > RANK[self.phase]:
            self.phase = phase
            if RANK[phase] >= RANK["ready"] and self.ready_line is None:
                self.ready_line = number

    def note_shutdown(self, number: int) -> None:
        """The server is told to stop, or stops because its engine died."""
        if self.shutdown_line is None:
            self.shutdown_line = number
            self.stopped_on_request = self._death_line() is None and (
                self.ready_line is not None or self.failures.empty
            )

    def state_fact(self, name: str, value: Value, where: str, text: str) -> None:
        """Keeps a figure: of several, the tightest, the first or the last, as its name asks."""
        old = self.facts.get(name)
        if old is not None:
            if name in FIRST:
                return
            if isinstance(old.value, (int, float)) and isinstance(value, (int, float)):
                if name in LARGEST and value <= old.value:
                    return
                if name in SMALLEST and value >= old.value:
                    return
        self.facts[name] = Sighting(value, where, text)

    def add_oom(self, report: OomReport) -> None:
        """Keeps the first report; one that states figures replaces one that states none."""
        old = self.oom
        if old is None:
            self.oom = report
        elif old.total_bytes is None and old.tried_bytes is None and report.total_bytes is not None:
            frames = report.frames or old.frames
            sampler = old.sampler_requests if report.sampler_requests is None else report.sampler_requests
            self.oom = replace(report, frames=frames, sampler_requests=sampler, count=old.count + 1)
        else:
            self.oom = replace(
                old,
                count=old.count + 1,
                frames=old.frames or report.frames,
                sampler_requests=old.sampler_requests or report.sampler_requests,
            )

    def add_match(self, key: str, number: int, make: Callable[[], LogMatch]) -> None:
        """Counts a match of `key` in line `number`; `make` gives it in full."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _Found(0, [], 0, make)
        elif found.last_line == number:
            return  # a second regex of one key on the same line
        found.count += 1
        found.last_line, found.last = number, make
        if len(found.first) < FIRST_MATCHES:
            found.first.append(make())

    def matches(self) -> dict[str, Matches]:
        """All matches so far, by pattern key."""
        return {
            key: Matches(
                found.count, tuple(found.first), found.first[-1] if found.count == len(found.first) else found.last()
            )
            for key, found in self._found.items()
        }

    @property
    def telling(self) -> bool:
        """Whether this start can decide: it failed, got ready, or at least began to load the model."""
        return not self.failures.empty or RANK[self.phase] >= RANK["weights"]

    def _death_line(self) -> int | None:
        """Line of the first sign that a process of the running server ended, before it was told to stop."""
        if self.ready_line is None:
            return None
        lines = [
            failure.line_number
            for failure in self.failures.all()
            if failure.line_number > self.ready_line
            and (self.shutdown_line is None or failure.line_number < self.shutdown_line)
            and (failure.kind == "consequence" or failure.type in _DEATHS or failure.in_engine_loop)
        ]
        return min(lines, default=None)

    def verdict(self) -> tuple[State, tuple[Failure, ...]]:
        """The state, and the failures: the fatal ones first, each group in order of the log."""
        failures = self.failures.roots()
        if RANK[self.phase] < RANK["ready"]:
            if failures and all(failure.phase == "serving" and not failure.in_engine_loop for failure in failures):
                # an excerpt: single requests failed, so there was a server that took them
                return self._running_state(), tuple(replace(failure, fatal=False) for failure in failures)
            if failures:
                return "failed", failures
            return ("starting" if RANK[self.phase] > 0 else "unknown"), ()
        death = self._death_line()
        if death is None:
            return self._running_state(), tuple(replace(failure, fatal=False) for failure in failures)
        fatal = self._fatal(failures, death)
        rest = tuple(replace(failure, fatal=False) for failure in failures if failure not in fatal)
        return "failed", (*fatal, *rest)

    def _fatal(self, failures: tuple[Failure, ...], death: int) -> tuple[Failure, ...]:
        """Of a server that was ready: the failures that ended it, not those of single requests before."""
        near = tuple(
            failure
            for failure in failures
            if failure.kind == "root" and abs(failure.line_number - death) <= _NEAR_LINES
        )
        engines = tuple(failure for failure in near if "server" not in (failure.process or "").lower())
        if engines or near:
            return engines or near
        return tuple(failure for failure in self.failures.all() if failure.kind == "consequence")[:1]

    def _running_state(self) -> State:
        stats = self.stats.result
        stuck = bool(stats.waiting_last) and stats.running_last == 0
        server_errors = any(status >= 500 for status in self.http_errors)
        return "degraded" if stuck or server_errors else "ready"
