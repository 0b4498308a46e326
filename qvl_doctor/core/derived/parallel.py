"""Facts about splitting a model over GPUs: what divides, what the weights need, and the checkpoint that would fit.

Constraints: heads by tensor parallel size (vllm/config/model.py verify_with_parallel_config), sharded dimensions by the
quantization group or block (layers/quantization/utils/marlin_utils.py, fp8.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from packaging.version import Version

from qvl_doctor.core import memory, planning
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.model import ModelSpec, model_variant
from qvl_doctor.core.records import replace
from qvl_doctor.core.weights import Sharding, weights_bytes

_MOST_RANKS = 64  # attention heads of the largest model
_MOST_SIZE = 1024  # no larger tensor parallel size is looked at
_USUAL_GPUS = 8  # of one host
_FP8_BLOCK = 128  # Qwen's own FP8 checkpoints: blocks of 128 x 128 (weight_block_size in config.json)
_PADDED_INTERMEDIATE = 29696  # Qwen's AWQ and GPTQ of the 72B: 29568 padded up, = 8 x 29 x 128


@derived(
    "derived.heads_divide", "bool", "", "the attention heads can be shared out evenly over the tensor parallel size"
)
def _heads_divide(view: View) -> bool | None:
    heads, size = view.integer("model.attention_heads"), view.integer("effective.tensor_parallel_size")
    return None if heads is None or not size or size < 1 else heads % size == 0


def _variant(model: ModelSpec, *words: str) -> str | None:
    return next((name for word in words for name in model.variants if word in name.lower()), None)


@derived("plan.fp8_checkpoint", "str", "", "the FP8 checkpoint that Qwen publishes of the same model")
def _fp8_checkpoint(view: View) -> str | None:
    model = view.objects.model
    return None if model is None or model.quantization is not None else _variant(model, "fp8")


@derived("plan.gptq_checkpoint", "str", "", "the GPTQ checkpoint that Qwen publishes of the same model, for old GPUs")
def _gptq_checkpoint(view: View) -> str | None:
    model = view.objects.model
    return None if model is None else _variant(model, "gptq-int4", "gptq", "awq")


@derived("plan.official_same_method", "str", "", "Qwen's own checkpoint quantized by the same method as the one given")
def _official_same_method(view: View) -> str | None:
    model = view.objects.model
    if model is None or model.quantization is None or _official(model):
        return None
    return _variant(model, model.quantization.method)


def _official(model: ModelSpec) -> bool:
    """Whether the checkpoint is one of Qwen's own, by its hub id or by the folder that it was downloaded to."""
    tail = model.name.lower().rstrip("/").rpartition("/")[2]
    return any(tail == name.lower().rpartition("/")[2] for name in model.variants)


def _sharded_width(model: ModelSpec) -> int | None:
    """The dimension that tensor parallelism splits and quantization groups: the MLP's, or one expert's."""
    if model.moe:
        return model.moe_intermediate_size
    width = model.intermediate_size
    padded = width == 29568 and _official(model)
    return _PADDED_INTERMEDIATE if padded and model.quantization is not None else width


def _group(model: ModelSpec) -> int | None:
    method = model.quantization
    if method is None:
        return None
    if method.method == "fp8":
        return _FP8_BLOCK if _official(model) else None
    return method.group or None


@derived(
    "plan.tensor_parallel_for_group",
    "int",
    "",
    "largest smaller tensor parallel size that keeps quantization groups whole",
)
def _tensor_parallel_for_group(view: View) -> int | None:
    size, model = view.integer("effective.tensor_parallel_size"), view.objects.model
    if size is None or not 2 <= size <= _MOST_SIZE:
        return None
    width = None if model is None else _sharded_width(model)
    if model is None or model.attention_heads is None or width is None:
        return _halved_for_group(view, size)
    group = _group(model) or _FP8_BLOCK
    sizes = (n for n in range(size - 1, 0, -1) if (model.attention_heads or 1) % n == 0 and width % (n * group) == 0)
    return next(sizes, None)


def _halved_for_group(view: View, size: int) -> int | None:
    """From the message alone, for a model of unknown shape: halves of the size, whose heads surely divide."""
    shard, group = view.integer("match.width"), view.integer("match.block") or view.integer("match.group")
    if shard is None or not group or shard < 1:
        return size // 2 if size % 2 == 0 and size > 2 else None  # no figures: shards of twice the width are the next
    halves = (size >> step for step in range(1, size.bit_length()) if size % (1 << step) == 0)
    return next((half for half in halves if half > 1 and shard * size // half % group == 0), None)


@derived("derived.shape_known", "bool", "", "the model is one whose widths and heads are known")
def _shape_known(view: View) -> bool:
    return view.objects.model is not None and view.objects.model.attention_heads is not None


@derived("plan.copies_for_group", "int", "", "--data-parallel-size for the GPUs that the smaller size leaves over")
def _copies_for_group(view: View) -> int | None:
    """Only where each copy fits: then whole copies serve more than stages of one."""
    size, smaller = view.integer("effective.tensor_parallel_size"), view.integer("plan.tensor_parallel_for_group")
    weights, card = view.number("derived.weights_gib"), view.number("plan.gpu_total_gib")
    if size is None or smaller is None or size % smaller or weights is None or card is None:
        return None
    return size // smaller if weights * size / smaller < 0.7 * card else None


@derived("plan.stages_for_group", "int", "", "--pipeline-parallel-size for the GPUs that the smaller size leaves over")
def _stages_for_group(view: View) -> int | None:
    size, smaller = view.integer("effective.tensor_parallel_size"), view.integer("plan.tensor_parallel_for_group")
    if size is None or smaller is None or size % smaller or view.value("plan.copies_for_group") is not None:
        return None
    return size // smaller


@derived(
    "derived.fp8_block_misaligned", "bool", "", "a shard of Qwen's FP8 checkpoint is no multiple of its block of 128"
)
def _fp8_block_misaligned(view: View) -> bool | None:
    """Checked by vLLM up to 0.28 (fp8.py); experts that are shared out whole (--enable-expert-parallel) are not cut."""
    model, size = view.objects.model, view.integer("effective.tensor_parallel_size")
    version = view.version("version.vllm")
    if model is None or size is None or version is None or model.quantization is None:
        return None
    width, group = _sharded_width(model), _group(model)
    if model.quantization.method != "fp8" or width is None or group is None or version >= Version("0.29.dev0"):
        return False
    whole = model.moe and bool(view.flag("launch.enable_expert_parallel"))
    return not whole and width % (size * group) != 0


@derived("derived.group_misaligned", "bool", "", "a shard of the AWQ or GPTQ checkpoint cuts a quantization group")
def _group_misaligned(view: View) -> bool | None:
    model, size = view.objects.model, view.integer("effective.tensor_parallel_size")
    if model is None or size is None or model.quantization is None or model.moe:
        return None
    width, group = _sharded_width(model), _group(model)
    if model.quantization.method not in ("awq", "gptq") or width is None or group is None:
        return None
    return size > 1 and width % (size * group) != 0


@derived("derived.tp_needless", "bool", "", "the model fits on one GPU with room, and the GPUs talk over PCIe only")
def _tp_needless(view: View) -> bool | None:
    size, weights = view.integer("effective.tensor_parallel_size"), view.number("derived.weights_gib")
    card, gpus = view.number("plan.gpu_total_gib"), view.objects.gpus
    if size is None or weights is None or card is None or not gpus:
        return None
    return size > 1 and weights * size < 0.6 * card and all(gpu.nvlink is False for gpu in gpus)


@derived("derived.gpu_spread_gib", "float", "GiB", "how much more the fullest GPU holds than the emptiest")
def _gpu_spread(view: View) -> float | None:
    used = [gpu.memory_used_bytes for gpu in view.objects.gpus if gpu.memory_used_bytes is not None]
    if len(used) < 2 or len(used) != len(view.objects.gpus):
        return None
    return round((max(used) - min(used)) / (1 << 30), 2)


@derived("derived.official_checkpoint", "bool", "", "the checkpoint is one of Qwen's own quantized ones")
def _official_checkpoint(view: View) -> bool | None:
    return None if view.objects.model is None else _official(view.objects.model)


@derived("plan.quantized_official", "str", "", "Qwen's own quantized checkpoint in place of somebody else's")
def _quantized_official(view: View) -> str | None:
    """By the same method where there is one, else the first that Qwen publishes of this model."""
    model = view.objects.model
    if model is None or _official(model) or not model.variants:
        return None
    same = view.text("plan.official_same_method")
    return same if same is not None else model.variants[0]


# --- how many GPUs -----------------------------------------------------------------------------------------------


def _divides(spec: ModelSpec, size: int, *, encoder_data: bool) -> bool:
    """Whether vLLM can split the model's heads over so many GPUs: query heads must divide, KV heads divide or be
    replicated, the vision tower's heads divide unless each rank holds the whole tower."""
    heads, kv = spec.attention_heads, spec.key_value_heads
    if heads is None or kv is None or heads % size or (kv % size and size % kv):
        return False
    return encoder_data or spec.vision is None or spec.vision.heads % size == 0


@derived("plan.tensor_parallel_size_valid", "int", "", "largest valid --tensor-parallel-size up to the one asked for")
def _tensor_parallel_valid(view: View) -> int | None:
    """At most as many as there are GPUs. The model's heads decide, else those that an error states; where an error
    states the GPUs only, the next power of two below, as head counts mostly are multiples of one."""
    asked = view.integer("launch.tensor_parallel_size") or view.integer("match.tp")
    count = view.integer("match.gpus") or view.integer("gpu.count")
    if asked is None and count is None:
        return None
    upper = min(value for value in (asked, count, _MOST_RANKS) if value is not None)
    spec, heads = view.objects.model, view.integer("match.heads")
    if spec is not None and spec.attention_heads is not None:
        data = planning.sharding(view).encoder_data
        return _largest(upper, lambda size: _divides(spec, size, encoder_data=data))
    if heads is not None and heads >= 1:
        return _largest(upper, lambda size: heads % size == 0)
    return 1 << (upper.bit_length() - 1) if upper >= 1 and view.value("match.gpus") is not None else None


def _largest(upper: int, valid: Callable[[int], bool]) -> int | None:
    return next((size for size in range(upper, 0, -1) if valid(size)), None)


@derived("plan.data_parallel_size_rest", "int", "", "copies of the model that the GPUs left over can hold")
def _data_parallel_rest(view: View) -> int | None:
    valid = view.integer("plan.tensor_parallel_size_valid")
    count = view.integer("gpu.count") or view.integer("launch.tensor_parallel_size")
    if valid is None or count is None:
        return None
    copies = count // valid
    return copies if copies > 1 else None


@derived("plan.tensor_parallel_size_for_weights", "int", "", "smallest valid --tensor-parallel-size whose weights fit")
def _tensor_parallel_for_weights(view: View) -> int | None:
    """Up to the GPUs there are (8 if unknown), larger than the one in force; a tenth of the budget is left."""
    return _smallest_tensor(view, min(view.integer("gpu.count") or _USUAL_GPUS, _MOST_RANKS))


@derived("plan.tensor_parallel_size_more_gpus", "int", "", "as ..._for_weights, with more GPUs than there are")
def _tensor_parallel_more_gpus(view: View) -> int | None:
    """As many as one host usually holds; None where the GPUs that there are suffice."""
    if view.integer("gpu.count") is None or view.integer("plan.tensor_parallel_size_for_weights") is not None:
        return None
    return _smallest_tensor(view, _USUAL_GPUS)


def _smallest_tensor(view: View, most: int) -> int | None:
    spec, total = view.objects.model, planning.total_bytes(view)
    share = planning.utilization(view) or 0.9
    if spec is None or total is None:
        return None
    now = planning.sharding(view)
    for size in range(now.tensor + 1, most + 1):
        if not _divides(spec, size, encoder_data=now.encoder_data):
            continue
        if _model_fits(spec, replace(now, tensor=size), share * total, view):
            return size
    return None


def _model_fits(spec: ModelSpec, shares: Sharding, budget: float, view: View) -> bool:
    weights = weights_bytes(spec, shares, quantization=planning.online_quantization(view, spec))
    return weights is not None and weights.high + memory.LEAST_BESIDE_WEIGHTS_BYTES < 0.9 * budget


@derived("plan.quantized_model", "str", "", "Qwen's own quantized checkpoint of this model that fits these GPUs")
def _quantized_model(view: View) -> str | None:
    """The first of the published variants that the GPU can compute and that leaves a tenth of the budget."""
    spec, total = view.objects.model, planning.total_bytes(view)
    share = planning.utilization(view) or 0.9
    if spec is None or total is None or spec.quantization is not None:
        return None
    capability = view.number("gpu.compute_capability")
    for name in _in_order(spec.variants, capability):
        variant = model_variant(spec, name)
        if _model_fits(variant, planning.sharding(view), max(share, 0.9) * total, view):
            return name
    return None


def _in_order(names: Iterable[str], capability: float | None) -> list[str]:
    """Variants that a card computes: AWQ from 7.5 on, GPTQ from 6.0, FP8 from 8.0 (weight-only below 8.9)."""
    least = {"AWQ": 7.5, "FP8": 8.0, "Int8": 6.0, "Int4": 6.0}
    usable = [n for n in names if capability is None or capability >= least.get(n.rpartition("-")[2], 0)]
    return sorted(usable, key=lambda name: name.endswith("Int8"))
