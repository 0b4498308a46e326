"""Values for edits that give memory back, and what the lines about free memory mean.

The fraction counts of the card's total memory (vllm/v1/worker/utils.py request_memory; V0 vllm/worker/worker.py), so
what others hold has to be taken off by hand.
"""

from __future__ import annotations

from qvl_doctor.core import planning
from qvl_doctor.core.facts import View, derived

_IDLE_GIB = 1.6  # a desktop, the driver and CUDA's context on a card that nobody works on
_IDLE_SHARE = 0.05
_HARDLY_MISSING_GIB = 0.75
_CONTEXT_GIB = 0.6
_LEAST_ROOM_GIB = 1.0


def _context_in_force(view: View) -> int | None:
    model = view.objects.model
    return view.integer("effective.max_model_len") if model is None else planning.context(view, model)


@derived("plan.half_context", "int", "tokens", "half of the context in force")
def _half_context(view: View) -> int | None:
    current = _context_in_force(view)
    return None if current is None or current < 8192 else current // 2 // 1024 * 1024


@derived("plan.shorter_context", "int", "tokens", "a context that a crowded card can serve")
def _shorter_context(view: View) -> int | None:
    """Half of the context in force, at most 32768 tokens: what the cache then holds is no longer one request, and the
    video of the vision dry run shrinks with it (vllm/model_executor/models/qwen2_vl.py)."""
    half = view.integer("plan.half_context")
    return None if half is None else min(half, 32768)


@derived("plan.fewer_seqs", "int", "", "a quarter of the sequences that the start was sized for")
def _fewer_seqs(view: View) -> int | None:
    sizes = planning.batch_sizes(view, None)
    current = view.integer("launch.max_num_seqs") or (None if sizes is None else sizes[1])
    return None if current is None or current < 8 else current // 4


def _graphs_gib(view: View) -> float | None:
    """What CUDA graphs take of the budget: as estimated, else the difference of the two fractions that vLLM names."""
    stated = view.number("log.cudagraph_estimate_gib")
    now, without = view.number("log.gpu_memory_utilization"), view.number("log.utilization_without_graphs")
    card = view.number("plan.gpu_total_gib")
    if stated is not None or now is None or without is None or card is None:
        return stated
    return (now - without) * card


@derived("derived.short_by_graphs", "bool", "", "the KV cache misses no more than the CUDA graph estimate took")
def _short_by_graphs(view: View) -> bool | None:
    need, have, graphs = view.number("match.need"), view.number("match.have"), _graphs_gib(view)
    return None if need is None or have is None or graphs is None else need - have <= graphs


@derived("derived.graphs_unstated", "bool", "", "nothing says how much CUDA graphs took of the budget")
def _graphs_unstated(view: View) -> bool:
    return _graphs_gib(view) is None


@derived("derived.kv_negative_by_graphs", "bool", "", "without the CUDA graph estimate some KV cache would be left")
def _kv_negative_by_graphs(view: View) -> bool | None:
    left, graphs = view.number("log.kv_available_gib"), _graphs_gib(view)
    return None if left is None or graphs is None else left <= 0 < left + graphs


@derived("derived.weights_unknown", "bool", "", "neither log nor plan says what the weights take")
def _weights_unknown(view: View) -> bool:
    return view.number("derived.weights_gib") is None


@derived("derived.card_unknown", "bool", "", "nothing says how much memory the GPU has")
def _card_unknown(view: View) -> bool:
    return view.number("plan.gpu_total_gib") is None


@derived("derived.free_memory", "str", "", "why too little of the GPU is free at start: slightly, wsl, busy or shared")
def _free_memory(view: View) -> str | None:
    """For the lines that state free and total memory: an idle card and a fraction a little too high, a card that
    somebody fills, or one that is shared on purpose (a fraction of 0.8 or less was chosen, or nvidia-smi lists a
    service other than vLLM)."""
    free, total = view.number("match.free"), view.number("match.total")
    if free is None or total is None or not 0 < total < 10_000:
        return None
    used, missing = total - free, (view.number("match.want") or total) - free
    idle = used <= max(_IDLE_GIB, _IDLE_SHARE * total)
    if idle or (missing <= _HARDLY_MISSING_GIB and used <= 2.5 * _IDLE_SHARE * total):
        return "wsl" if view.flag("host.wsl") else "slightly"
    weights = view.number("derived.weights_gib")
    if free < 0.2 * total or (weights is not None and weights + _CONTEXT_GIB + _LEAST_ROOM_GIB > free):
        return "busy"
    if view.text("log.gpu_tenant") is not None:
        return "shared"
    share = view.number("launch.gpu_memory_utilization") or view.number("match.util")
    return "shared" if share is not None and share <= 0.8 else "busy"


@derived("derived.card_shareable", "bool", "", "the model would fit into what other processes leave of the GPU")
def _card_shareable(view: View) -> bool | None:
    share, card = view.number("plan.gpu_memory_utilization_free"), view.number("plan.gpu_total_gib")
    weights = view.number("derived.weights_gib")
    if share is None or card is None or weights is None:
        return None
    return share * card > weights + _CONTEXT_GIB + 2 * _LEAST_ROOM_GIB


@derived("derived.gpu_prefilled", "bool", "", "before the start a GPU already holds more than the fraction leaves out")
def _gpu_prefilled(view: View) -> bool | None:
    used, total = view.number("gpu.memory_used_gib"), view.number("gpu.memory_total_gib")
    share = view.number("effective.gpu_memory_utilization")
    if used is None or total is None or share is None or not view.flag("derived.start_unproven"):
        return None
    return view.objects.log is None and total - used < share * total


@derived("derived.context_tokens", "int", "tokens", "longest sequence: as a failed line states it, else as in force")
def _context_tokens(view: View) -> int | None:
    return view.integer("match.len") or _context_in_force(view)


@derived("derived.context_over_kv", "bool", "", "by the plan one full sequence is clearly larger than the KV cache")
def _context_over_kv(view: View) -> bool | None:
    """With a tenth to spare, as the plan has its own uncertainty; not where vLLM picks the length itself."""
    if view.text("launch.max_model_len") in ("-1", "auto"):
        return False
    tokens, context = view.integer("plan.kv_tokens"), _context_in_force(view)
    fits = view.text("derived.weights_fit")
    if tokens is None or context is None or view.objects.log is not None:
        return None
    return fits in ("fine", "tight", "low-budget") and 1.1 * tokens < context


@derived("derived.gpu_full_by_design", "bool", "", "the GPU holds about what the fraction of a running server says")
def _gpu_full_by_design(view: View) -> bool | None:
    used, total = view.number("gpu.memory_used_gib"), view.number("gpu.memory_total_gib")
    share = view.number("effective.gpu_memory_utilization")
    if used is None or total is None or share is None:
        return None
    return view.text("log.state") == "ready" and abs(used / total - share) < 0.05


@derived("plan.more_seqs", "int", "", "twice the sequences given, where the KV cache was less than half full")
def _more_seqs(view: View) -> int | None:
    given, used = view.integer("launch.max_num_seqs"), view.number("log.stats.kv_usage_max_percent")
    return 2 * given if given is not None and 0 < given <= 512 and used is not None and used < 50 else None


@derived("plan.max_num_seqs_kv", "int", "", "requests that ran when the KV cache was full, fewer than are allowed")
def _seqs_kv(view: View) -> int | None:
    """Several requests, and clearly fewer than allowed: else the cache is not what limits them."""
    ran, allowed = view.integer("log.stats.running_last"), view.integer("effective.max_num_seqs")
    full = (view.number("log.stats.kv_usage_last_percent") or 0) >= 95
    return ran if full and ran is not None and allowed is not None and 4 <= ran <= 0.8 * allowed else None


@derived("derived.killed_while_loading", "bool", "", "the log ends while weights are read: nothing was served yet")
def _killed_while_loading(view: View) -> bool:
    return view.text("log.phase") in ("weights", "profile", "kv", "capture")


@derived("derived.mm_cache_off", "bool", "", "the launch switches the cache of prepared media off")
def _mm_cache_off(view: View) -> bool:
    return bool(view.flag("launch.disable_mm_preprocessor_cache")) or view.number("launch.mm_processor_cache_gb") == 0


@derived("derived.served_media", "bool", "", "a multimodal server that had come up")
def _served_media(view: View) -> bool | None:
    model = view.objects.model
    return None if model is None else view.text("log.phase") in ("ready", "serving")
