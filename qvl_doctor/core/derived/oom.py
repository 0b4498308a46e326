"""What an out-of-memory failure of a GPU means: where the start stood, who held the memory, which cause that makes.

A report often brings nothing but "CUDA out of memory". So the cause is worked out from whatever is at hand, strongest
first: what the message itself names, the functions of the traceback, the phase that the log had reached, PyTorch's own
figures, and the arithmetic of weights, budget and card. `derived.oom_basis` says how much of that there was.
Which function runs when: vllm/v1/worker/gpu_model_runner.py and gpu_worker.py (0.8-0.33), vllm/worker/worker.py (V0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from packaging.version import Version

from qvl_doctor.core import planning
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs import OomReport
from qvl_doctor.core.records import record
from qvl_doctor.core.weights import weights_bytes

Stage = Literal[
    "start", "weights", "encoder-profile", "sampler", "profile", "kv", "graphs", "warmup", "serving", "unknown"
]
Basis = Literal["stated", "placed", "worked-out", "guessed"]

GIB = 1 << 30
_CONTEXT_GIB = 0.6  # CUDA context and libraries, taken before anything else (0.51 measured on an H200)
_LEAST_ROOM_GIB = 1.0  # below this no vision-language model has ever started beside its weights
_GARBLED = "17179869184"  # GiB: 2**64 bytes, what the driver answers under WSL2 where it does not know

_VLLM_LOGGER = lazy_regex(
    r"(?:\([^)]{1,80}\) ?)*(?:ERROR|WARNING|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,120}\.pyx?:\d"
)

_SAMPLER_FUNCTIONS = frozenset(
    {
        "_dummy_sampler_run",
        "_dummy_pooler_run",
        "compute_logits",
        "_get_logits",
        "apply_top_k_top_p",
        "_apply_top_k_top_p",
    }
)
_SAMPLER_FILES = frozenset({"sampler.py", "topk_topp_sampler.py", "logits_processor.py"})
_ENCODER_FUNCTIONS = frozenset(
    {
        "_execute_mm_encoder",
        "profile_multimodal",
        "_profile_multimodal",
        "get_multimodal_embeddings",
        "embed_multimodal",
        "_process_image_input",
        "_process_video_input",
        "run_dp_sharded_mrope_vision_model",
        "run_dp_sharded_vision_model",
    }
)
_ENCODER_FILES = frozenset({"vision.py", "mm_encoder_attention.py", "vit_attn_wrappers.py"})
_VL_FILES = frozenset({"qwen2_vl.py", "qwen2_5_vl.py", "qwen3_vl.py", "qwen3_vl_moe.py"})
_LANGUAGE_FILES = frozenset({"qwen2.py", "qwen3.py", "qwen3_moe.py", "qwen3_next.py", "qwen3_5.py", "llama.py"})
_STAGE_OF_PHASE: dict[str, Stage] = {
    "start": "start",
    "config": "start",
    "weights": "weights",
    "profile": "profile",
    "kv": "kv",
    "capture": "graphs",
    "warmup": "warmup",
    "ready": "serving",
    "serving": "serving",
}


def _report(view: View) -> OomReport | None:
    return None if view.objects.log is None else view.objects.log.oom


def _frames(oom: OomReport) -> Iterator[tuple[str, str]]:
    """(file, function) of the traceback, outermost first."""
    for frame in oom.frames:
        file, _, function = frame.rpartition(":")
        yield file.rpartition("/")[2], function


def _in_encoder(oom: OomReport) -> bool:
    """Whether the allocation failed inside the vision tower (the classes of Qwen-VL hold both tower and model)."""
    frames = list(_frames(oom))
    named = any(function in _ENCODER_FUNCTIONS or file in _ENCODER_FILES for file, function in frames)
    tower = any(file in _VL_FILES and function == "forward" for file, function in frames)
    return named or (tower and not any(file in _LANGUAGE_FILES for file, _ in frames))


def _in_sampler(oom: OomReport) -> bool:
    return any(function in _SAMPLER_FUNCTIONS or file in _SAMPLER_FILES for file, function in _frames(oom))


@derived("derived.oom_stage", "str", "", "what the server was doing when the GPU ran out of memory")
def _stage(view: View) -> Stage | None:
    oom = _report(view)
    if oom is None:
        return None
    if oom.sampler_requests is not None:
        return "sampler"
    if "Failed to load model - not enough GPU memory" in oom.text:
        return "weights"
    stage = _STAGE_OF_PHASE.get(oom.phase, "unknown")
    if stage == "unknown" and view.text("log.phase") == "capture":
        stage = "graphs"
    if stage in ("profile", "warmup", "unknown") and _in_sampler(oom):
        return "sampler"
    if stage in ("profile", "unknown") and _in_encoder(oom):
        return "encoder-profile" if stage == "profile" else stage
    return stage


@derived("derived.vllm_ran", "bool", "", "the failed allocation was vLLM's, whatever program had started it")
def _vllm_ran(view: View) -> bool | None:
    """By the logger's prefix or the process before the line, a frame of its source, or a launcher that names it."""
    oom, launch = _report(view), view.objects.launch
    if oom is None:
        return None
    if oom.process is not None or oom.phase != "unknown" or _VLLM_LOGGER.match(oom.text):
        return True
    named = launch is not None and "vllm" in launch.text.lower()
    return named or any(frame.startswith("vllm/") for frame in oom.frames)


@derived("derived.oom_sampler_rows", "int", "", "sequences of the sampler's dry run that ran out, as vLLM names them")
def _sampler_rows(view: View) -> int | None:
    oom = _report(view)
    return None if oom is None else oom.sampler_requests


@derived("derived.oom_others_gib", "float", "GiB", "memory that other processes held on the GPU that ran out")
def _others(view: View) -> float | None:
    oom = _report(view)
    if oom is None:
        return None
    sizes = [size for _, size in oom.other_processes if size is not None]
    listed: int | None = sum(sizes)
    if oom.this_process_bytes is None:
        # In a container the driver knows the server by a foreign pid, so the server is one of those listed:
        # the one that is just larger than what PyTorch holds, else the largest.
        held = (oom.pytorch_bytes or 0) + (oom.reserved_bytes or 0)
        own = min((size for size in sizes if size >= held), default=None) if held else max(sizes, default=None)
        listed = None if own is None else sum(sizes) - own
    unlisted = None
    if oom.total_bytes is not None and oom.free_bytes is not None and oom.this_process_bytes is not None:
        unlisted = oom.total_bytes - oom.free_bytes - oom.this_process_bytes
    known = [size for size in (listed, unlisted) if size is not None]
    return round(max(0, *known) / GIB, 2) if known else None


@derived("derived.weights_gib", "float", "GiB", "weights on one GPU while they are loaded: measured, else as planned")
def _weights_gib(view: View) -> float | None:
    """Up to 0.14 --quantization loads an unquantized checkpoint whole and shrinks it afterwards, so it counts whole
    (vllm/model_executor/layers/quantization/fp8.py process_weights_after_loading)."""
    model, version = view.objects.model, view.version("version.vllm")
    measured = view.number("log.weights_gib")
    if measured is None and model is not None and planning.online_quantization(view, model) is not None:
        whole = version is None or version < Version("0.15.dev0")
        loaded = weights_bytes(model, planning.sharding(view)) if whole else None
        if loaded is not None:
            return round(loaded.bytes / GIB, 2)
    return measured if measured is not None else view.number("plan.weights_gib_per_gpu")


@derived(
    "derived.start_unproven", "bool", "", "nothing shows that the server came up, and no failure is at hand either"
)
def _start_unproven(view: View) -> bool | None:
    log = view.objects.log
    if log is None:
        return True
    if (view.number("log.kv_available_gib") or 0) > 0 or view.value("log.kv_tokens") is not None:
        return False  # everything but the KV cache has found its place
    return log.state in ("unknown", "starting") and not log.failures and log.oom is None


@derived("derived.weights_fit", "str", "", "weights against GPU and budget: no, over-budget, low-budget, tight, fine")
def _weights_fit(view: View) -> str | None:
    """How the weights stand on one GPU.

    `no`: larger than what any fraction leaves; `over-budget`: larger than the fraction in force, which could be raised;
    `low-budget`: most of a budget that was chosen small; `tight`: most of a usual budget; `fine`: none of these.
    """
    weights, card = view.number("derived.weights_gib"), view.number("plan.gpu_total_gib")
    share = view.number("effective.gpu_memory_utilization")
    if weights is None or card is None or share is None or not 0 < share <= 1:
        return None
    budget = share * card
    left = view.number("log.kv_available_gib")
    if left is not None and left > 0:
        weights = min(weights, budget - left)  # the log has the last word: that much was left beside them
    elif weights + _CONTEXT_GIB + _LEAST_ROOM_GIB > 0.98 * card:
        return "no"
    elif weights + _CONTEXT_GIB > budget:
        return "over-budget"
    if weights > 0.75 * budget and budget - weights < 20:
        return "low-budget" if share <= 0.85 else "tight"
    return "fine"


@derived("derived.little_kv", "bool", "", "the log shows that beside the weights hardly one full sequence fits")
def _little_kv(view: View) -> bool:
    """Only by the log's own figures: less than a tenth of the weights is left for it."""
    weights, left = view.number("log.weights_gib"), view.number("log.kv_available_gib")
    sequences = view.number("log.max_concurrency")
    if weights is None or left is None or sequences is None:
        return False
    return 0 < left < 0.1 * weights and sequences < 2


@derived("derived.encoder_over_card", "bool", "", "by the plan the vision dry run beside the weights exceeds the card")
def _encoder_over_card(view: View) -> bool | None:
    weights, card = view.number("derived.weights_gib"), view.number("plan.gpu_total_gib")
    encoder = view.number("plan.encoder_peak_gib")
    if view.value("log.kv_available_gib") is not None:
        return False  # printed after the dry run, which has succeeded
    if weights is None or card is None or encoder is None:
        return None
    return encoder > 1 and weights + encoder + _CONTEXT_GIB > card


@derived("derived.vision_unprofiled", "bool", "", "pictures use memory that the start did not set aside")
def _vision_unprofiled(view: View) -> bool | None:
    """The V2 runner of 0.22-0.26 profiles the language model only (vllm/v1/worker/gpu/model_runner.py); any runner with
    --skip-mm-profiling (0.10.1 on)."""
    if view.objects.model is None and view.text("log.encoder_profile_skipped") is None:
        return None
    image, video = (view.number(f"launch.limit_mm_per_prompt.{name}") for name in ("image", "video"))
    if (image == 0 and video == 0) or view.flag("launch.language_model_only") or view.flag("log.text_only"):
        return False
    if view.text("log.device") == "cpu":
        return False  # host memory: nothing is filled up to a fraction
    if view.flag("launch.skip_mm_profiling") or view.flag("log.encoder_profile_skipped"):
        return True
    version, runner = view.version("version.vllm"), view.text("effective.model_runner")
    if version is None or runner is None:
        return None
    return runner == "V2" and Version("0.22.dev0") <= version < Version("0.27.dev0")


@record
class _Attribution:
    cause: str
    basis: Basis


def attribute(view: View) -> _Attribution | None:
    """The one cause of a GPU's running out of memory and what it rests on; None where the log holds no such failure."""
    oom, stage = _report(view), view.text("derived.oom_stage")
    if oom is None or stage is None or "node running low on memory" in oom.text:  # the last: Ray, about host memory
        return None
    if view.text("launch.server") == "other" and not view.flag("derived.vllm_ran"):
        return _Attribution("image-pixels-uncapped", "guessed")  # the user's own script: nothing profiles or caps
    if _GARBLED in oom.text and view.flag("host.wsl") is not False:
        return _Attribution("wsl2-vram-overhead", "placed")
    at_start = stage not in ("sampler", "encoder-profile", "serving")
    if at_start and view.flag("host.wsl") and view.text("derived.weights_fit") in (None, "fine"):
        return _Attribution("wsl2-vram-overhead", "guessed")
    crowded = _crowded(view, stage)
    if crowded is not None:
        return crowded
    fit = view.text("derived.weights_fit")
    if stage == "unknown":
        return _unplaced(view, oom, fit)
    if stage in ("start", "weights"):
        return _loading(view, oom, fit)
    if fit == "no":
        return _Attribution("weights-do-not-fit", "worked-out")
    if stage == "serving":
        return _serving(view, oom)
    causes = {
        "sampler": "oom-max-num-seqs-default",
        "encoder-profile": "oom-profile-multimodal",
        "profile": "oom-profile-multimodal",
        "kv": "gpu-util-slightly-too-high",
        "graphs": "oom-cudagraph-capture",
        "warmup": "oom-runtime-headroom",
    }
    if stage == "kv" and view.value("launch.kv_cache_memory_bytes") is not None:
        return _Attribution("kv-cache-larger-than-memory", "placed")
    if stage == "profile" and fit in _FIT_CAUSES and not view.flag("derived.encoder_over_card"):
        return _Attribution(_FIT_CAUSES[fit], "worked-out")
    stated = stage in ("sampler", "encoder-profile", "graphs")
    return _Attribution(causes[stage], "stated" if stated else "placed")


_FIT_CAUSES = {
    "no": "weights-do-not-fit",
    "over-budget": "util-fraction-too-low-for-weights",
    "low-budget": "util-fraction-too-low-for-weights",
    "tight": "weights-leave-little-kv",
}


def _crowded(view: View, stage: str) -> _Attribution | None:
    """Whether other processes on the GPU are the cause: free it, or share it with a smaller fraction."""
    others, card = view.number("derived.oom_others_gib"), view.number("plan.gpu_total_gib")
    if others is None or card is None or others < (0.5 if stage == "kv" else max(1.0, 0.08 * card)):
        return None
    weights, share = view.number("derived.weights_gib"), view.number("launch.gpu_memory_utilization")
    left = card - others
    if weights is not None and weights + _CONTEXT_GIB + _LEAST_ROOM_GIB > left:
        return _Attribution("gpu-busy-other-process", "stated")
    if weights is None and left < 0.35 * card:
        return _Attribution("gpu-busy-other-process", "placed")
    tenant = view.text("log.gpu_tenant") is not None
    sharing = tenant or (share is not None and share <= 0.8) or stage not in ("start", "weights", "unknown")
    return _Attribution("gpu-shared-with-other-processes" if sharing else "gpu-busy-other-process", "placed")


def _loading(view: View, oom: OomReport, fit: str | None) -> _Attribution:
    """During the load nothing limits vLLM to its fraction: the weights exceed the card, or the card was not free."""
    card, held = oom.total_bytes, oom.this_process_bytes or oom.pytorch_bytes
    if fit == "no":
        return _Attribution("weights-do-not-fit", "stated")
    if card is not None and held is not None and oom.this_process_bytes is None and held < 0.5 * card:
        return _Attribution("gpu-busy-other-process", "placed")
    if fit in ("over-budget", "low-budget"):
        return _Attribution("util-fraction-too-low-for-weights", "placed")
    if fit == "fine":
        return _Attribution("gpu-busy-other-process", "guessed")
    if fit is None and view.text("derived.oom_stage") == "start":
        return _Attribution("gpu-busy-other-process", "placed")
    return _Attribution("weights-do-not-fit", "placed")


def _serving(view: View, oom: OomReport) -> _Attribution:
    if view.flag("derived.vision_unprofiled"):
        return _Attribution("vision-memory-not-reserved", "placed")
    tried = oom.tried_bytes or 0
    by_profile = view.text("effective.engine") != "V0"  # V1 has run the largest picture before it took the rest for KV
    if _in_encoder(oom) and not view.flag("derived.pixels_capped") and tried >= (4 if by_profile else 1) * GIB:
        return _Attribution("image-pixels-uncapped", "placed")
    return _Attribution("oom-runtime-headroom", "placed")


def _unplaced(view: View, oom: OomReport, fit: str | None) -> _Attribution:
    """Nothing says when it failed: arithmetic first, then what this release is known for."""
    weights, card = view.number("derived.weights_gib"), view.number("plan.gpu_total_gib")
    if oom.graph_pool_bytes:
        return _Attribution(_serving(view, oom).cause, "worked-out")  # its CUDA graphs stand: the start was over
    if fit in ("no", "over-budget"):
        return _Attribution(_FIT_CAUSES[fit], "worked-out")
    held = None if oom.pytorch_bytes is None else oom.pytorch_bytes / GIB
    if held is not None and weights is not None and card is not None:
        after_kv = held > weights + 2 and held > 0.9 * card
        if after_kv and (oom.tried_bytes or 0) < GIB:
            return _serving(view, oom)
        if not after_kv and held >= 0.98 * weights and (oom.tried_bytes or 0) >= GIB // 2:
            return _Attribution("oom-profile-multimodal", "worked-out")
    if fit in _FIT_CAUSES:
        return _Attribution(_FIT_CAUSES[fit], "worked-out")
    if view.flag("derived.encoder_over_card"):
        return _Attribution("oom-profile-multimodal", "worked-out")
    if view.flag("derived.seqs_default_1024"):
        return _Attribution("oom-max-num-seqs-default", "guessed")
    if _in_encoder(oom) and not view.flag("derived.pixels_capped"):
        return _Attribution("oom-profile-multimodal", "guessed")
    many = max((view.number(f"launch.limit_mm_per_prompt.{name}") or 0 for name in ("image", "video")), default=0)
    if many >= 4 and view.text("effective.engine") == "V0":
        return _Attribution("oom-profile-multimodal", "guessed")  # V0 profiles every allowed item at once
    return _Attribution(_serving(view, oom).cause, "guessed")


@derived("derived.seqs_default_1024", "bool", "", "the release runs the sampler dry with 1024 sequences on any GPU")
def _seqs_default(view: View) -> bool | None:
    found = planning.release(view)
    if found is None or view.version("version.vllm") is None:
        return None
    return view.number("launch.max_num_seqs") is None and planning.seqs_on_any_card(found) == 1024


@derived("derived.oom_cause", "str", "", "rule id of the one cause of the GPU's running out of memory")
def _cause(view: View) -> str | None:
    found = attribute(view)
    return None if found is None else found.cause


@derived("derived.oom_basis", "str", "", "what the cause rests on: stated, placed, worked-out or guessed")
def _basis(view: View) -> str | None:
    found = attribute(view)
    return None if found is None else found.basis
