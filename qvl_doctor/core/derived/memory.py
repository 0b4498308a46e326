"""`plan.*` and `derived.*` of memory: the budget, which fraction, length or batch fits.

Everything here is a number for a message or the value of an edit. Where an input is unknown the fact is unknown too:
an edit without its number is not proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from qvl_doctor.core import memory, planning, profile_run
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.memory import BLOCK_TOKENS, MemoryPlan
from qvl_doctor.core.profile_run import GIB
from qvl_doctor.core.records import replace
from qvl_doctor.core.weights import weights_bytes

LEAST_USEFUL_TOKENS = 512  # a context below this serves no picture
_FREE_MARGIN_GIB = 0.3  # left free beside other processes: their own small changes, the CUDA context
_HEADROOM_GIB = 1.5  # given back after an out-of-memory at run time ...
_HEADROOM_SHARE = 0.05  # ... or this part of the card, whichever is more
_MOST_UTILIZATION = 0.97
_LEAST_UTILIZATION = 0.1
_PLANNED_SHARE = 0.95  # of a modelled KV cache that is relied on


def _gib(size: float) -> float:
    return round(size / GIB, 2)


def _floor_fraction(value: float) -> float | None:
    """Two decimals, rounded down; None outside what is sensible for --gpu-memory-utilization."""
    fraction = math.floor(100 * value + 1e-9) / 100
    return min(fraction, _MOST_UTILIZATION) if fraction >= _LEAST_UTILIZATION else None


# --- the budget ----------------------------------------------------------------------------------------------------

_TERMS: dict[str, tuple[str, Callable[[MemoryPlan], int]]] = {
    "requested_gib": ("memory that the fraction asks for", lambda plan: plan.requested.bytes),
    "encoder_peak_gib": ("peak of the vision encoder in the profile run", lambda plan: plan.encoder_peak.bytes),
    "language_peak_gib": ("peak of the language model in the profile run", lambda plan: plan.language_peak.bytes),
    "sampler_peak_gib": ("peak of the sampler's dry run", lambda plan: plan.sampler_peak.bytes),
    "activation_peak_gib": ("peak of the profile run", lambda plan: plan.activation_peak.bytes),
    "graphs_gib": ("CUDA graphs taken from the budget", lambda plan: plan.graphs.bytes),
    "outside_gib": ("memory that requests and graphs take outside the budget", lambda plan: plan.outside.bytes),
    "kv_gib": ("memory left for the KV cache", lambda plan: plan.kv_cache.bytes),
}


def _term(read: Callable[[MemoryPlan], int]) -> Callable[[View], float | None]:
    def compute(view: View) -> float | None:
        found = planning.plan(view)
        return None if found is None else _gib(read(found))

    return compute


for _name, (_meaning, _read) in _TERMS.items():
    derived(f"plan.{_name}", "float", "GiB", f"{_meaning}, per GPU")(_term(_read))


@derived("plan.gpu_total_gib", "float", "GiB", "memory of the smallest GPU that a fraction is taken of")
def _gpu_total(view: View) -> float | None:
    total = planning.total_bytes(view)
    return None if total is None else _gib(total)


@derived("plan.kv_bytes_per_token", "int", "bytes", "KV cache of one token on one GPU")
def _bytes_per_token(view: View) -> int | None:
    spec = view.objects.model
    if spec is None:
        return None
    fp8 = (view.text("effective.kv_cache_dtype") or "").startswith("fp8")
    return memory.kv_bytes_per_token(spec, planning.sharding(view), 1 if fp8 else 2)


@derived("plan.kv_tokens", "int", "tokens", "tokens that the KV cache holds: as printed, else as planned")
def _kv_tokens(view: View) -> int | None:
    found = planning.plan(view)
    return view.integer("log.kv_tokens") or (None if found is None else found.kv_tokens)


@derived("plan.weights_gib_per_gpu", "float", "GiB", "weights on the fullest GPU: as printed, else as planned")
def _weights(view: View) -> float | None:
    printed, spec = view.number("log.weights_gib"), view.objects.model
    if printed is not None or spec is None:
        return printed
    weights = weights_bytes(spec, planning.sharding(view), quantization=planning.online_quantization(view, spec))
    return None if weights is None else _gib(weights.bytes)


# --- lengths -------------------------------------------------------------------------------------------------------


@derived("plan.max_model_len", "int", "tokens", "longest context that the KV cache of this start holds")
def _max_model_len(view: View) -> int | None:
    """vLLM's own estimate in the failed line, else what a printed shortfall leaves in proportion, else the printed size
    of the cache, else the plan with a margin; whole blocks, and only if it is of use."""
    stated = view.integer("match.est_len")
    tokens = stated if stated else _from_shortfall(view)
    if tokens is None:
        tokens = view.integer("log.kv_tokens")
    if tokens is None:
        found = planning.plan(view)
        tokens = None if found is None else int(found.kv_tokens * _PLANNED_SHARE)
    if tokens is None:
        return None
    spec = view.objects.model
    most = None if spec is None else spec.max_position_embeddings
    tokens = min(tokens, most or tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    return tokens if tokens >= LEAST_USEFUL_TOKENS else None


def _from_shortfall(view: View) -> int | None:
    """ "... max seq len (32768), 1.75 GiB needed, larger than available (1.20 GiB)": what the available part holds."""
    need, have, length = view.number("match.need"), view.number("match.have"), view.integer("match.len")
    if need is None or have is None or length is None or not 0 < have < need:
        return None
    return int(length * have / need) - BLOCK_TOKENS


# --- fractions -----------------------------------------------------------------------------------------------------


@derived("plan.gpu_memory_utilization_free", "float", "", "largest fraction that the memory free at start allows")
def _utilization_free(view: View) -> float | None:
    free, total = _free_and_total(view)
    if free is None or total is None or not 0 <= free <= total:
        return None
    return _floor_fraction((free - _FREE_MARGIN_GIB) / total)


def _free_and_total(view: View) -> tuple[float | None, float | None]:
    """GiB free for this server at its start, and the card's total: as the refusal states them, else the card less what
    others held when memory ran out, else the card as it is now."""
    for owner in ("match.free", "match.total"), ("log.free_gib", "log.total_gib"):
        free, total = view.number(owner[0]), view.number(owner[1])
        if free is not None and total is not None:
            return free, total
    total, others = view.number("plan.gpu_total_gib"), view.number("derived.oom_others_gib")
    if total is not None and others:
        return total - others, total
    used = view.number("gpu.memory_used_gib")
    return (None, None) if total is None or used is None else (total - used, total)


@derived("plan.gpu_memory_utilization_min", "float", "", "smallest fraction that holds weights, peaks and one context")
def _utilization_min(view: View) -> float | None:
    """Where a fraction was chosen and the plan finds it large enough, the number is of no use (the start that is looked
    at proves more is needed, or nothing has to change): then the release's default, if that is larger."""
    asked = planning.request(view)
    if asked is None:
        return None
    needed = memory.needed_utilization(asked, asked.batch.max_model_len, _without_cache(view))
    if needed is None or not _LEAST_UTILIZATION <= needed <= _MOST_UTILIZATION:
        return None
    chosen, known = view.number("launch.gpu_memory_utilization"), view.objects.knowledge
    if chosen is None or needed > chosen:
        return needed
    default = None if known is None else known.default("gpu_memory_utilization")
    return default if isinstance(default, float) and default > chosen else None


def _without_cache(view: View) -> memory.Measured:
    """The log's figures, but for the size of the cache, which depends on the fraction."""
    return replace(planning.measured(view), kv_available_gib=None, kv_tokens=None)


@derived("plan.gpu_memory_utilization_headroom", "float", "", "a fraction that leaves what a failed request lacked")
def _utilization_headroom(view: View) -> float | None:
    """The fraction in force less the shortfall and a margin: 1.5 GiB, 5 % of the card, or what the release leaves out
    of its budget. None where the fraction is unknown or nothing sensible would be left."""
    share, total = planning.utilization(view), view.number("plan.gpu_total_gib")
    if share is None or total is None:
        return None
    gap = max(view.number("derived.oom_gap_gib") or 0, 0)
    margin = max(_HEADROOM_GIB, _HEADROOM_SHARE * total, view.number("plan.outside_gib") or 0)
    fraction = _floor_fraction(share - (gap + margin) / total)
    weights = view.number("plan.weights_gib_per_gpu")
    if fraction is None or (weights is not None and fraction * total < weights + 1):
        return None
    return fraction


@derived("derived.oom_gap_gib", "float", "GiB", "what the failed allocation lacked")
def _oom_gap(view: View) -> float | None:
    tried, free = view.number("log.oom.tried_mib"), view.number("log.oom.free_mib")
    return None if tried is None or free is None else round((tried - free) / 1024, 2)


# --- host memory ----------------------------------------------------------------------------------------------------


@derived("plan.cpu_offload_least", "int", "GiB", "smallest --cpu-offload-gb with which the rest of the weights fits")
def _cpu_offload_least(view: View) -> int | None:
    """At least 1: 0 would mean that nothing has to be offloaded. A tenth of the budget is left to the KV cache."""
    spec, total, share = view.objects.model, planning.total_bytes(view), planning.utilization(view)
    if spec is None or total is None or share is None:
        return None
    weights = weights_bytes(spec, planning.sharding(view), quantization=planning.online_quantization(view, spec))
    if weights is None:
        return None
    return max(1, math.ceil((weights.high + memory.LEAST_BESIDE_WEIGHTS_BYTES - 0.9 * share * total) / GIB))


# --- sequences -----------------------------------------------------------------------------------------------------


@derived("plan.max_num_seqs_sampler", "int", "", "--max-num-seqs whose sampler dry run fits")
def _max_num_seqs_sampler(view: View) -> int | None:
    """Where weights and card are known: a quarter of what they leave, over the bytes of one row of logits. Else by the
    release: 64 where nothing is known of the card, as the sampler was sized for a large one."""
    now = _seqs_in_force(view)
    rows = _sampler_rows(view)
    if rows is None:
        rows = 64
    fitting = next((size for size in (256, 128, 64, 32, 16, 8) if size <= rows), None)
    return fitting if fitting is not None and (now is None or fitting < now) else None


def _seqs_in_force(view: View) -> int | None:
    spec = view.objects.model
    sizes = planning.batch_sizes(view, None if spec is None else planning.context(view, spec))
    return None if sizes is None else sizes[1]


def _sampler_rows(view: View) -> int | None:
    spec, found, total = view.objects.model, planning.release(view), view.number("plan.gpu_total_gib")
    weights = view.number("plan.weights_gib_per_gpu")
    if spec is None or spec.vocabulary is None or found is None or total is None or weights is None:
        return None
    room = max(0.0, total - weights - memory.LEAST_BESIDE_WEIGHTS_BYTES / GIB) * GIB
    return int(room / 4 / (spec.vocabulary * profile_run.sampler_bytes_per_logit(found)))


@derived("plan.max_num_seqs_mamba", "int", "", "--max-num-seqs that the state cache of a hybrid model holds")
def _max_num_seqs_mamba(view: View) -> int | None:
    """In steps of 128 (8 below that), so that a slightly smaller cache at the next start still holds it."""
    blocks = view.integer("match.blocks")
    if blocks is None or blocks < 1:
        return None
    step = 128 if blocks >= 128 else 8 if blocks >= 8 else 1
    return blocks // step * step
