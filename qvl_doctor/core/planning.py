"""From facts to the planner's question: what is in force for one server, as a `memory.Request`.

A flag counts as given, else as the log reports it, else as the release's default; what stays unknown makes the request
unknown, except where vLLM itself would take the checkpoint's own value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from qvl_doctor.core import memory, vision
from qvl_doctor.core.facts import View
from qvl_doctor.core.memory import Measured, MemoryPlan, Request
from qvl_doctor.core.model import ModelSpec, Quantization
from qvl_doctor.core.profile_run import GIB, Batch, Engine, Release, Runner
from qvl_doctor.core.weights import Sharding

_SMALL_CARD_GIB = 24.0  # a card of unknown size gets the defaults of a small one
_ONLINE = {
    "fp8": Quantization("fp8", 8, vision=True),
    "bitsandbytes": Quantization("bitsandbytes", 4, 64),
}
_SIZES = {"k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def release(view: View) -> Release | None:
    """The release, its engine and model runner; the newest known one where no version is known."""
    version = view.version("version.vllm")
    if version is None and view.objects.knowledge is not None:
        version = view.objects.knowledge.version
    if version is None:
        return None
    engine: Engine = "V0" if view.text("effective.engine") == "V0" else "V1"
    runner: Runner = "V2" if view.text("effective.model_runner") == "V2" else "V1"
    return Release(version, engine, runner)


def total_bytes(view: View) -> int | None:
    """CUDA's total of the smallest card: as the log or a failure states it, else from the cards."""
    stated = view.number("log.total_gib") or view.number("log.oom.total_gib") or view.number("match.total")
    if stated is not None and 1 < stated < 2048:
        return int(stated * GIB)
    bases = [gpu.budget_base_bytes for gpu in view.objects.gpus]
    known = [base for base in bases if base is not None]
    return min(known) if known and len(known) == len(bases) else None


def sharding(view: View) -> Sharding:
    sizes = [view.integer(f"effective.{name}_parallel_size") or 1 for name in ("tensor", "pipeline", "data")]
    tensor, pipeline, data = (max(1, size) for size in sizes)
    return Sharding(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        expert=view.flag("launch.enable_expert_parallel") is True,
        encoder_data=view.text("launch.mm_encoder_tp_mode") == "data"
        or view.flag("launch.enable_multimodal_encoder_data_parallel") is True,
    )


def json_flag(view: View, name: str) -> dict[str, object] | None:
    """A JSON flag ("mm_processor_kwargs") as a dictionary, from the launch or the log; {} where it is known not to be
    given, None where neither launch nor log tells."""
    launch, log = view.objects.launch, view.objects.log
    if launch is not None:
        value = launch.json_value(f"--{name.replace('_', '-')}")
        if isinstance(value, dict):
            return {str(key): item for key, item in value.items()}
    if log is not None and log.args is not None:
        value = log.args.get(name)
        if isinstance(value, Mapping):
            return {str(key): item for key, item in value.items()}
    return None if launch is None and (log is None or log.args is None) else {}


def media_limits(view: View) -> dict[str, object] | None:
    """--limit-mm-per-prompt as {modality: count or options}; {} where it is not given, None where that is unknown."""
    limits = json_flag(view, "limit_mm_per_prompt")
    text = view.text("launch.limit_mm_per_prompt")
    if not limits and text:
        pairs = re.findall(r"([a-z_]{1,30})\s{0,3}=\s{0,3}(\d{1,6})", text[:400])
        limits = {name: int(count) for name, count in pairs} or limits
    if limits is not None and view.flag("launch.language_model_only"):
        return {**limits, "image": 0, "video": 0}
    return limits


def limit_of(limits: Mapping[str, object] | None, modality: str) -> int | None:
    """The count allowed of one modality, None where no limit is given."""
    value = (limits or {}).get(modality)
    if isinstance(value, Mapping):
        value = value.get("count")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def image_cap(view: View, spec: ModelSpec) -> vision.Pixels | None:
    """The pixel limits of one picture in force; images_kwargs, the newer form, is laid over the flat one."""
    kwargs = json_flag(view, "mm_processor_kwargs") or {}
    nested = kwargs.get("images_kwargs")
    return vision.cap_in_force({**kwargs, **nested} if isinstance(nested, dict) else kwargs, spec)


def batch_sizes(view: View, context: int | None) -> tuple[int, int] | None:
    """(max_num_batched_tokens, max_num_seqs) in force. Defaults depend on the card and are clamped to each
    other (vllm/engine/arg_utils.py, vllm/config); V0 without chunked prefill takes a whole context in one batch."""
    tokens, seqs = view.integer("effective.max_num_batched_tokens"), view.integer("effective.max_num_seqs")
    found, known = release(view), view.objects.knowledge
    if tokens is None or seqs is None:
        if found is None or known is None:
            return None
        if found.engine == "V0":
            tokens = tokens or max(context or 0, 2048, 4096 if found.before("0.6.4") else 5120)
            seqs = seqs or 256
        else:
            total = total_bytes(view)
            memory_gib = _SMALL_CARD_GIB if total is None else total / GIB
            row = known.batch_defaults(memory_gib, view.text("gpu.name") or "")
            offline = view.text("launch.server") == "llm"
            tokens = tokens or (row and (row.tokens_llm if offline else row.tokens_server)) or 2048
            seqs = seqs or (row and (row.seqs_llm if offline else row.seqs_server)) or seqs_on_any_card(found)
    if context is not None and view.integer("launch.max_num_batched_tokens") is None:
        tokens = min(tokens, seqs * context)
    return tokens, min(seqs, tokens)


def seqs_on_any_card(found: Release) -> int:
    """--max-num-seqs of releases whose default does not follow the card: 1024 in V1 of 0.8.0-0.8.3, else 256
    (vllm/engine/arg_utils.py)."""
    return 1024 if found.engine == "V1" and found.before("0.8.4") and not found.before("0.8") else 256


def context(view: View, spec: ModelSpec) -> int | None:
    """max_model_len in force: given, printed, else the checkpoint's own; "auto" and -1 read as that."""
    length = view.integer("effective.max_model_len")
    return length if length is not None and length > 0 else spec.max_position_embeddings


def utilization(view: View) -> float | None:
    share = view.number("effective.gpu_memory_utilization")
    return share if share is not None and 0 < share <= 1 else None


def batch(view: View) -> Batch | None:
    """Sizes of one engine step and what media it may hold; None where model, context or defaults are unknown."""
    spec = view.objects.model
    length = None if spec is None else context(view, spec)
    sizes = batch_sizes(view, length)
    if spec is None or length is None or sizes is None:
        return None
    limits, cap = media_limits(view), image_cap(view, spec)
    return Batch(
        max_model_len=length,
        max_num_batched_tokens=sizes[0],
        max_num_seqs=sizes[1],
        image_limit=limit_of(limits, "image"),
        video_limit=limit_of(limits, "video"),
        image_max_pixels=None if cap is None else cap.maximum,
        eager=view.flag("effective.enforce_eager") is True,
    )


def request(view: View) -> Request | None:
    """The planner's question for this server, or None where something that decides it is unknown."""
    spec, found, total, share = view.objects.model, release(view), total_bytes(view), utilization(view)
    sizes = batch(view)
    if spec is None or found is None or total is None or share is None or sizes is None:
        return None
    return Request(
        spec=spec,
        release=found,
        batch=sizes,
        total_bytes=total,
        utilization=share,
        sharding=sharding(view),
        kv_element_bytes=1 if (view.text("effective.kv_cache_dtype") or "").startswith("fp8") else 2,
        skip_mm_profiling=view.flag("launch.skip_mm_profiling") is True,
        quantization=online_quantization(view, spec),
        kv_cache_memory_bytes=size_bytes(view.text("launch.kv_cache_memory_bytes")),
        other_processes_bytes=int((view.number("derived.oom_others_gib") or 0) * GIB),
    )


def online_quantization(view: View, spec: ModelSpec) -> Quantization | None:
    """What --quantization makes of an unquantized checkpoint while it is loaded."""
    if spec.quantization is not None:
        return None
    return _ONLINE.get(view.text("launch.quantization") or "")


def size_bytes(text: str | None) -> int | None:
    """A size as vLLM's human-readable integers have it: "20G" is 20 x 2**30, "20g" 20 x 10**9."""
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtKMGT]?)", text or "")
    return int(float(found[1]) * _SIZES.get(found[2], 1)) if found else None


def measured(view: View) -> Measured:
    """The figures that this start's own log printed."""
    return Measured(
        weights_gib=view.number("log.weights_gib"),
        torch_peak_gib=view.number("log.torch_peak_gib"),
        non_torch_gib=view.number("log.non_torch_gib"),
        graphs_gib=view.number("log.cudagraph_estimate_gib"),
        kv_available_gib=view.number("log.kv_available_gib"),
        kv_tokens=view.integer("log.kv_tokens"),
    )


def plan(view: View) -> MemoryPlan | None:
    """The budget of this server, with its log's figures where there are any."""
    asked = request(view)
    return None if asked is None else memory.plan(asked, measured(view))


def compact(value: Mapping[str, object]) -> str:
    """JSON as it stands in a command: no blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def accepts_json_limits(view: View) -> bool | None:
    """Whether this release takes --limit-mm-per-prompt as JSON; None where it has no such flag."""
    known = view.objects.knowledge
    flag = None if known is None else known.flag("--limit-mm-per-prompt")
    return None if flag is None else flag.takes_json


def has_flag(view: View, name: str) -> bool | None:
    """Whether this release has the flag; None where the release is unknown."""
    known = view.objects.knowledge
    return None if known is None else known.flag(name) is not None
