"""The engine's statistics lines (V0 and V1, every release since 0.3), folded as they come."""

from __future__ import annotations

import re
from typing import Any

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.model import EngineStats
from qvl_doctor.core.logs.texts import kept
from qvl_doctor.core.records import field, record

# The mark of a statistics line; what follows is put together from optional parts.
STATS_REGEX = r"Avg prompt throughput: "
PREEMPTION_REGEX = r"Sequence group \S+ is preempted by \S+ mode"

_F = r"(-?\d{1,12}(?:\.\d{1,9})?)"
_HEAD = lazy_regex(
    r"(?:Engine (?P<engine>\d{1,6}): |\d+ Engines Aggregated: )?"
    rf"Avg prompt throughput: {_F} tokens/s, Avg generation throughput: {_F} tokens/s"
    r"(?:, Running: (\d{1,9}) reqs)?(?:, Swapped: \d+ reqs)?(?:, (?:Waiting|Pending): (\d{1,9}) reqs)?"
)
_KV = lazy_regex(rf"\bKV cache usage: {_F}%")
_HIT = lazy_regex(rf"Prefix cache hit rate: (?:GPU: )?{_F}%")
_MM_HIT = lazy_regex(rf"MM cache hit rate: {_F}%")
_PREEMPTIONS = lazy_regex(r"Preemptions: (\d{1,12})")
_CUMULATIVE = lazy_regex(r"total_num_cumulative_preemption=(\d{1,12})")

SATURATED_PERCENT = 95.0
_LONGEST_GAP_SECONDS = 120.0  # between two lines of one spell; longer silence ends it
_DAY_SECONDS = 86400.0
_MOST_ENGINES = 4096


def seconds_of(stamp: str | None) -> float | None:
    """Seconds since the year's start of "11-30 17:05:41", or since midnight of "17:05:41" (months count 31 days)."""
    if stamp is None:
        return None
    date, _, time = stamp.rpartition(" ")
    hours, minutes, seconds = time.split(":")
    days = 0
    if date:
        month, day = date.split("-")
        days = int(month) * 31 + int(day)
    return days * _DAY_SECONDS + int(hours) * 3600 + int(minutes) * 60 + int(seconds)


@record(frozen=False)
class _Spell:
    """How long a condition has held without a break, and the longest such time."""

    since: float | None = None
    last: float | None = None
    longest: float = 0.0

    def see(self, holds: bool, now: float | None) -> None:
        if not holds or now is None:
            self.since = self.last = None
            return
        if self.since is None or self.last is None or not 0 <= now - self.last <= _LONGEST_GAP_SECONDS:
            self.since = now
        self.last = now
        self.longest = max(self.longest, now - self.since)


@record(frozen=False)
class _Engine:
    """One engine's running conditions."""

    stuck: _Spell = field(default_factory=_Spell)
    saturated: _Spell = field(default_factory=_Spell)
    waiting: int = 0
    grown: int = 0  # lines in a row over which the queue grew


@record(frozen=False)
class _Series:
    """Last, largest and mean of a figure; lines that do not state it are left out."""

    last: float | None = None
    largest: float | None = None
    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> bool:
        """Takes a value; True if it is the largest so far."""
        if value is None:
            return False
        self.last = value
        self.total += value
        self.count += 1
        if self.largest is None or value > self.largest:
            self.largest = value
            return True
        return False

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class StatsFold:
    """Folds statistics lines as they come; `result` gives the state of the fold."""

    def __init__(self) -> None:
        self._prompt = _Series()
        self._generation = _Series()
        self._running = _Series()
        self._waiting = _Series()
        self._kv = _Series()
        self._engines: dict[str, _Engine] = {}
        self._rest: dict[str, Any] = {}  # further fields of the result, by their names
        self._stuck_longest = self._saturated_longest = 0.0
        self._queue_growing = 0
        self._cumulative = 0
        self._preempted_in_lines = 0

    def add(self, message: str, stamp: str | None, where: str, text: str) -> bool:
        """Folds one statistics line; False if it is none."""
        head = _HEAD.search(message)
        if head is None:
            return False
        prompt, generation = float(head[2]), float(head[3])
        running = int(head[4]) if head[4] else None
        waiting = int(head[5]) if head[5] else None
        kv = _percent(_KV, message)
        self._count("lines")
        self._count("idle_running_lines", running and not prompt and not generation)
        self._prompt.add(prompt)
        self._generation.add(generation)
        self._running.add(running)
        self._waiting.add(waiting)
        if self._kv.add(kv):
            self._rest["kv_usage_max_where"], self._rest["kv_usage_max_text"] = where, text
        for name, pattern in (("prefix_hit_percent_last", _HIT), ("mm_cache_hit_percent_last", _MM_HIT)):
            if (rate := _percent(pattern, message)) is not None:
                self._rest[name] = rate
        self._rest.setdefault("first_where", where)
        self._rest["last_where"], self._rest["last_text"] = where, text
        if waiting and running == 0:
            self._count("stuck_lines")
            self._rest.setdefault("stuck_where", where)
            self._rest.setdefault("stuck_text", text)
        self._conditions(head["engine"] or "", running, waiting, kv, seconds_of(stamp))
        if (preempted := _PREEMPTIONS.search(message)) is not None and int(preempted[1]):
            self._preempted_in_lines += int(preempted[1])
            self._preemption(where, text)
        return True

    def _count(self, name: str, holds: object = True) -> None:
        if holds:
            self._rest[name] = self._rest.get(name, 0) + 1

    def _conditions(
        self, name: str, running: int | None, waiting: int | None, kv: float | None, now: float | None
    ) -> None:
        if len(self._engines) >= _MOST_ENGINES and name not in self._engines:
            self._engines.clear()  # engine numbers out of a hostile text
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = _Engine()
        saturated = kv is not None and kv > SATURATED_PERCENT
        self._count("saturated_lines", saturated)
        engine.stuck.see(bool(waiting) and running == 0, now)
        engine.saturated.see(saturated, now)
        self._stuck_longest = max(self._stuck_longest, engine.stuck.longest)
        self._saturated_longest = max(self._saturated_longest, engine.saturated.longest)
        engine.grown = engine.grown + 1 if waiting is not None and waiting > engine.waiting else 0
        engine.waiting = waiting or 0
        self._queue_growing = max(self._queue_growing, engine.grown)

    def add_preemption(self, message: str, where: str, text: str) -> None:
        """Folds one of V0's preemption warnings (it prints every fiftieth, with the total so far)."""
        total = _CUMULATIVE.search(message)
        self._cumulative = max(self._cumulative + 1, int(total[1]) if total else 0)
        self._preemption(where, text)

    def _preemption(self, where: str, text: str) -> None:
        self._rest.setdefault("preemption_where", where)
        self._rest.setdefault("preemption_text", text)

    @property
    def result(self) -> EngineStats:
        rest: dict[str, Any] = {
            name: kept(value) if name.endswith("_text") else value for name, value in self._rest.items()
        }
        return EngineStats(
            running_last=_whole(self._running.last),
            running_max=_whole(self._running.largest),
            waiting_last=_whole(self._waiting.last),
            waiting_max=_whole(self._waiting.largest),
            kv_usage_last_percent=self._kv.last,
            kv_usage_max_percent=self._kv.largest,
            prompt_tokens_per_second_last=self._prompt.last,
            prompt_tokens_per_second_max=self._prompt.largest,
            prompt_tokens_per_second_mean=self._prompt.mean,
            generation_tokens_per_second_last=self._generation.last,
            generation_tokens_per_second_max=self._generation.largest,
            generation_tokens_per_second_mean=self._generation.mean,
            stuck_seconds_longest=self._stuck_longest,
            saturated_seconds_longest=self._saturated_longest,
            queue_growing_lines=self._queue_growing,
            preemptions=self._cumulative + self._preempted_in_lines,
            **rest,
        )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _percent(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    return float(found[1]) if found else None
