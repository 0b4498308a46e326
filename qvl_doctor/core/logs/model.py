"""What a log says, as frozen values: sightings, rule matches, failures, the out-of-memory report, the summary.

Sizes are bytes, or GiB (2**30 bytes) where the name ends in `_gib`; unknown is `None`. Every kept text is
cleaned of control characters, bounded, and has its secrets masked. `where` is "SOURCE:LINE", lines from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from qvl_doctor.core.records import field, record

Phase = Literal["unknown", "start", "config", "weights", "profile", "kv", "capture", "warmup", "ready", "serving"]
State = Literal["failed", "starting", "ready", "degraded", "unknown"]
Value = str | int | float

TEXT_LIMIT = 600  # characters kept of one line


@record
class LinePattern:
    """One rule regex; several may share a key (any of them counts for it). Searched in a line's message."""

    key: str
    regex: str


@record
class Sighting:
    """A figure and the line that states it."""

    value: Value
    where: str
    text: str


@record
class LogMatch:
    """One line in which a pattern was found; `groups` holds only the named groups that took part."""

    key: str
    where: str
    line_number: int
    text: str
    groups: Mapping[str, str]
    phase: str
    process: str | None


@record
class Matches:
    """All sightings of one pattern key: how many, the first few, the last."""

    count: int
    first: tuple[LogMatch, ...]
    last: LogMatch


@record
class Failure:
    """One fault, however many processes and handlers quote it.

    `type` and `message` are the root of its exception chain; `chain` holds every (type, message) as raised,
    first raised first. `frames` are "file:function", innermost last, framework plumbing left out.
    `kind`: "root", or "consequence" for a report that only says that something else died.
    `fatal` is False for a failure that the server survived. `attempt` counts starts in the log, from 1.
    """

    type: str
    message: str
    where: str
    line_number: int
    text: str
    process: str | None
    phase: str
    frames: tuple[str, ...] = ()
    chain: tuple[tuple[str, str], ...] = ()
    kind: Literal["root", "consequence"] = "root"
    fatal: bool = True
    attempt: int = 1
    count: int = 1
    in_engine_loop: bool = False  # raised where the engine serves all requests: it ends with it


@record
class OomReport:
    """PyTorch's own account of a failed allocation on a GPU; figures that it garbles (16 EiB) are None."""

    where: str
    text: str
    phase: str
    device: str  # "CUDA", "HIP", "XPU"
    tried_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    this_process_bytes: int | None = None
    pytorch_bytes: int | None = None
    reserved_bytes: int | None = None  # reserved by PyTorch but unallocated
    graph_pool_bytes: int | None = None  # allocated in CUDA graphs' private pools
    other_processes: tuple[tuple[int, int | None], ...] = ()  # (pid, bytes)
    gpu_index: int | None = None
    sampler_requests: int | None = None  # of the sampler's warm-up, where vLLM names them
    frames: tuple[str, ...] = ()
    process: str | None = None
    count: int = 1


@record
class EngineStats:
    """The engine's own statistics lines, folded. Durations come from the lines' clock; percent is 0 to 100."""

    lines: int = 0
    first_where: str | None = None
    last_where: str | None = None
    last_text: str | None = None
    running_last: int | None = None
    running_max: int | None = None
    waiting_last: int | None = None
    waiting_max: int | None = None
    kv_usage_last_percent: float | None = None
    kv_usage_max_percent: float | None = None
    kv_usage_max_where: str | None = None
    kv_usage_max_text: str | None = None
    prompt_tokens_per_second_last: float | None = None
    prompt_tokens_per_second_max: float | None = None
    prompt_tokens_per_second_mean: float | None = None
    generation_tokens_per_second_last: float | None = None
    generation_tokens_per_second_max: float | None = None
    generation_tokens_per_second_mean: float | None = None
    prefix_hit_percent_last: float | None = None
    mm_cache_hit_percent_last: float | None = None
    stuck_lines: int = 0  # requests wait and none runs
    stuck_seconds_longest: float = 0.0
    stuck_where: str | None = None
    stuck_text: str | None = None
    saturated_lines: int = 0  # KV cache usage above 95 %
    saturated_seconds_longest: float = 0.0
    idle_running_lines: int = 0  # requests run, but no token in or out
    queue_growing_lines: int = 0  # longest run of lines over which the queue grew
    preemptions: int = 0
    preemption_where: str | None = None
    preemption_text: str | None = None


@record
class LogSummary:
    """Everything that one log says. With several starts in it, of the deciding one (see `reader`)."""

    source: str
    lines: int
    size_bytes: int
    binary: bool
    version: Sighting | None
    args: Mapping[str, object] | None
    facts: Mapping[str, Sighting]
    phase: str
    failure_phase: str | None
    state: State
    failures: tuple[Failure, ...]
    matches: Mapping[str, Matches]
    oom: OomReport | None
    stats: EngineStats
    attempt: int = 1  # number of the deciding start
    attempts: int = 1
    earlier_failures: tuple[Failure, ...] = ()
    http_errors: Mapping[int, int] = field(default_factory=dict)  # status 4xx/5xx -> access lines
    tail: tuple[str, ...] = ()  # the last lines, cleaned
