"""Values for edits that give memory back: a smaller or larger fraction, fewer sequences, smaller pictures, no video.

The fraction counts of the card's total memory (vllm/v1/worker/utils.py request_memory; V0 vllm/worker/worker.py), so
what others hold has to be taken off by hand.
"""

from __future__ import annotations

import json
import math

from qvl_doctor.core.facts import View, derived

_MARGIN_GIB = 0.5  # left over when a fraction is fitted to free memory: the CUDA context is not counted by vLLM
_LARGEST_SHARE = 0.95  # above it the context and a desktop's share no longer fit on a 24 GiB card
_LEAST_KV_GIB = 2.0  # a KV cache that serves a few requests with a picture each
_PIXELS_IN_TOKENS = 1280  # the pixel cap that Qwen's own model cards propose: 1280 visual tokens a picture


def _down(share: float) -> float:
    """A fraction rounded down to two decimals."""
    return math.floor(share * 100 + 1e-6) / 100


@derived("plan.utilization_of_free", "float", "", "the fraction that what is free on the GPU allows")
def _utilization_of_free(view: View) -> float | None:
    free, total = view.number("match.free"), view.number("match.total")
    if free is None or total is None:
        others, card = view.number("derived.oom_others_gib"), view.number("derived.oom_card_gib")
        if others is not None and card is not None:
            free, total = card - others, card
        else:
            free, total = view.number("log.free_gib"), view.number("log.total_gib")
    if free is None or total is None or not 0 < free <= total:
        return None
    share = _down((free - _MARGIN_GIB) / total)
    weights = view.number("derived.weights_gib") or 0.0
    return share if share >= 0.1 and share * total > weights + 1.0 else None


@derived("plan.utilization_with_headroom", "float", "", "a fraction that leaves requests more memory")
def _utilization_with_headroom(view: View) -> float | None:
    """What was missing and as much again, at least 5 % of the card, taken off the fraction in force."""
    share, card = view.number("effective.gpu_memory_utilization"), view.number("derived.oom_card_gib")
    if share is None:
        return None
    missing = 0.0
    tried, free = view.number("log.oom.tried_mib"), view.number("log.oom.free_mib")
    if tried is not None and card:
        missing = 2 * max(0.0, tried - (free or 0.0)) / 1024 / card
    lower = _down(min(share - 0.05, 0.9 - missing if share > 0.9 else share - missing))
    weights = view.number("derived.weights_gib")
    if weights is not None and card is not None and lower * card < weights + _LEAST_KV_GIB:
        return None
    return lower if lower >= 0.3 else None


@derived("plan.utilization_for_weights", "float", "", "the fraction that holds weights, dry run and some KV cache")
def _utilization_for_weights(view: View) -> float | None:
    weights = view.number("derived.weights_gib")
    card, share = view.number("derived.oom_card_gib"), view.number("effective.gpu_memory_utilization")
    if weights is None or card is None or share is None:
        return None
    peak = view.number("plan.activation_peak_gib") or 2.0
    wanted = min((weights + peak + 0.5 + _LEAST_KV_GIB) / card, _LARGEST_SHARE)
    chosen = max(math.ceil(wanted * 100) / 100, 0.9)
    return chosen if chosen > share + 0.004 and chosen * card > weights + 1.0 else None


@derived("plan.fewer_seqs", "int", "", "a quarter of the sequences that the sampler's dry run was made with")
def _fewer_seqs(view: View) -> int | None:
    oom = None if view.objects.log is None else view.objects.log.oom
    current = (oom.sampler_requests if oom is not None else None) or view.integer("effective.max_num_seqs")
    if current is None:
        current = 1024 if view.flag("derived.seqs_default_1024") else 256
    return max(current // 4, 1) if current > 4 else None


@derived("plan.pixel_cap_kwargs", "str", "", "--mm-processor-kwargs with a cap of 1280 visual tokens a picture")
def _pixel_cap_kwargs(view: View) -> str | None:
    """Qwen3-VL and later read `size` (transformers ignores max_pixels there), the older families `max_pixels`."""
    model = view.objects.model
    if model is None:
        return json.dumps({"max_pixels": _PIXELS_IN_TOKENS * 784}, separators=(",", ":"))
    pixels = _PIXELS_IN_TOKENS * model.pixels_per_token
    if model.pixels_per_token == 784:
        return json.dumps({"max_pixels": pixels}, separators=(",", ":"))
    least = model.image_min_pixels or 64 * model.pixels_per_token
    return json.dumps({"size": {"shortest_edge": least, "longest_edge": pixels}}, separators=(",", ":"))


@derived("plan.limit_mm_images_only", "str", "", "--limit-mm-per-prompt without video, in the form the release takes")
def _limit_mm_images_only(view: View) -> str | None:
    knowledge = view.objects.knowledge
    flag = None if knowledge is None else knowledge.flag("--limit-mm-per-prompt")
    if flag is None:
        return None
    images = int(view.number("launch.limit_mm_per_prompt.image") or 1)
    images = min(images, 2)
    if flag.takes_json:
        return json.dumps({"image": images, "video": 0}, separators=(",", ":"))
    return f"image={images},video=0"


@derived("plan.len_that_fits_kv", "int", "tokens", "longest sequence that the KV cache of this start holds")
def _len_that_fits_kv(view: View) -> int | None:
    """vLLM's own estimate where the message has one, else from needed and available memory, in whole blocks of 16."""
    stated = view.integer("match.estimate") or view.integer("match.kv")
    if stated:
        return stated
    length, need, have = (view.number(f"match.{name}") for name in ("len", "need", "have"))
    if length and need and have and have < need:
        tokens = int(length * (have - 0.005) / need) // 16 * 16  # "have" is rounded to two decimals
        return tokens or None
    return None


@derived("derived.short_by_graphs", "bool", "", "the KV cache misses no more than the CUDA graph estimate took")
def _short_by_graphs(view: View) -> bool | None:
    need, have, graphs = (view.number(n) for n in ("match.need", "match.have", "log.cudagraph_estimate_gib"))
    return None if need is None or have is None or graphs is None else need - have <= graphs


@derived(
    "plan.shorter_context", "int", "tokens", "a context that the memory beside the weights serves several times over"
)
def _shorter_context(view: View) -> int | None:
    """Half of the context in force, at most 32768 tokens beside large weights; long contexts also enlarge the video of
    the vision dry run (vllm/model_executor/models/qwen2_vl.py, get_num_frames_with_most_features)."""
    current = view.integer("effective.max_model_len") or view.integer("model.max_position_embeddings")
    if current is None or current <= 4096:
        return None
    return max(min(current // 2, 32768) // 1024 * 1024, 4096)


@derived("derived.free_memory", "str", "", "why too little of the GPU is free at start: slightly, wsl, busy or shared")
def _free_memory(view: View) -> str | None:
    """For the lines that state free and total memory: an idle card and a fraction a little too high, a card that
    somebody fills, or one that is shared on purpose (a fraction of 0.8 or less was chosen)."""
    free, total = view.number("match.free"), view.number("match.total")
    if free is None or total is None or not 0 < total < 10_000:
        return None
    used = total - free
    if used <= max(1.6, 0.05 * total):
        return "wsl" if view.flag("host.wsl") else "slightly"
    weights = view.number("derived.weights_gib")
    if free < 0.2 * total or (weights is not None and weights + 1.6 > free):
        return "busy"
    share = view.number("launch.gpu_memory_utilization") or view.number("match.util")
    return "shared" if share is not None and share <= 0.8 else "busy"
