"""Facts about splitting a model over GPUs: what divides, what the weights need, and the checkpoint that would fit.

Constraints: heads by tensor parallel size (vllm/config/model.py verify_with_parallel_config), sharded dimensions by the
quantization group or block (layers/quantization/utils/marlin_utils.py, fp8.py).
"""

from __future__ import annotations

from packaging.version import Version

from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.model import ModelSpec

_FP8_BLOCK = 128  # Qwen's own FP8 checkpoints: blocks of 128 x 128 (weight_block_size in config.json)
_PADDED_INTERMEDIATE = 29696  # Qwen's AWQ and GPTQ of the 72B: 29568 padded up, = 8 x 29 x 128


def _largest_divisor(number: int, limit: int) -> int:
    return next(size for size in range(min(number, limit), 0, -1) if number % size == 0)


@derived(
    "derived.heads_divide", "bool", "", "the attention heads can be shared out evenly over the tensor parallel size"
)
def _heads_divide(view: View) -> bool | None:
    heads, size = view.integer("model.attention_heads"), view.integer("effective.tensor_parallel_size")
    return None if heads is None or not size or size < 1 else heads % size == 0


@derived(
    "plan.tensor_parallel_for_gpus", "int", "", "largest tensor parallel size that the GPUs at hand and the heads allow"
)
def _tensor_parallel_for_gpus(view: View) -> int | None:
    gpus = view.integer("match.gpus") or view.integer("gpu.count")
    if not gpus or gpus < 1:
        return None
    heads = view.integer("model.attention_heads")
    return _largest_divisor(heads, gpus) if heads else 1 << (gpus.bit_length() - 1)


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
    if size is None or size < 2:
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
        return None
    halves = (size >> step for step in range(1, size.bit_length()) if size % (1 << step) == 0)
    return next((half for half in halves if half > 1 and shard * size // half % group == 0), None)


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
    card, gpus = view.number("derived.oom_card_gib"), view.objects.gpus
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


@derived("derived.visible_gpus", "int", "", "number of GPUs that CUDA_VISIBLE_DEVICES lets the server see")
def _visible_gpus(view: View) -> int | None:
    text = view.text("env.CUDA_VISIBLE_DEVICES")
    if text is None or not text.strip() or text.strip().lower() in ("all", "none", "-1"):
        return None
    return len([part for part in text.split(",") if part.strip()])
