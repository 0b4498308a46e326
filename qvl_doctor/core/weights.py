"""Bytes that a model's weights take on one GPU, as "Model loading took ... GiB" counts them.

Worked out tensor by tensor, the way vLLM holds them: q/k/v and gate/up are one tensor each, every tensor is split over
tensor-parallel ranks where vLLM splits it, all experts of a layer are two tensors. To that come what loading allocates
beside the checkpoint: the rotary table, Qwen3-VL's buffers for deepstack features, rounding by PyTorch's allocator.
Compared with 13 measured starts (vLLM 0.25.1, unquantized, one GPU): within 0.5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from qvl_doctor.core.model import ModelSpec, Quantization, vision_tensors
from qvl_doctor.core.records import record

MIB: Final = 1 << 20
_LARGE: Final = 10 * MIB  # PyTorch's allocator: from here on a request is a segment of its own, in steps of 2 MiB
_STEP: Final = 2 * MIB

# Size of the scales (and zero points) of one group, in bytes, by method; and how far real checkpoints differ from the
# plain sum (layouts, kernels' own buffers, peaks while a layer is repacked, layers left unquantized). Only AWQ was
# measured (7B on one GPU); a public GPTQ start over four GPUs lay 15 % above. The others are estimates.
_GROUP_BYTES: Final = {"awq": 2.5, "gptq": 2.5, "compressed-tensors": 2.0, "modelopt_fp4": 1.0, "bitsandbytes": 4.0}
_EXACT: Final = (0.01, 0.01)  # fractions below and above
_QUANTIZED: Final = (0.05, 0.16)
_NAME_ONLY: Final = (0.15, 0.15)  # only the size in the name is known ("27B")


@record
class Sharding:
    """How a model is spread. `expert` is --enable-expert-parallel: experts go over tensor x data parallel ranks whole;
    `encoder_data` is --mm-encoder-tp-mode data: each rank holds the whole vision tower."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    encoder_data: bool = False


@record
class WeightBytes:
    """Bytes on the fullest GPU, with the range that they lie in."""

    bytes: int
    low: int
    high: int


def weights_bytes(
    spec: ModelSpec,
    sharding: Sharding | None = None,
    *,
    max_num_batched_tokens: int | None = None,
    vision: bool = True,
    quantization: Quantization | None = None,
) -> WeightBytes | None:
    """Weights of `spec` on the fullest GPU; `quantization` replaces the checkpoint's (--quantization fp8 on bf16).

    `vision` False leaves the tower out (image and video limits of 0). None where the model's numbers are unknown.
    """
    sharding = sharding or Sharding()
    method = quantization or spec.quantization
    if spec.hybrid or spec.hidden_size is None or spec.vision is None or spec.vocabulary is None:
        return _from_name(spec, sharding, method)
    layers = list(_layer_tensors(spec, sharding, method))
    if not layers or spec.layers is None:
        return _from_name(spec, sharding, method)
    element = _element_bytes(spec.dtype)
    per_stage = math.ceil(spec.layers / sharding.pipeline)
    language = per_stage * sum(map(_allocated, layers))
    table = _allocated(spec.vocabulary * spec.hidden_size * element / sharding.tensor)
    tower = _tower_bytes(spec, sharding, method) if vision else 0
    first = table + tower + (0 if sharding.pipeline > 1 or spec.tied else table)
    last = table if sharding.pipeline > 1 else 0
    extra = _rotary_bytes(spec) + spec.other_parameters * element + _deepstack_bytes(spec, max_num_batched_tokens)
    total = language + max(first, last) + extra
    if method is not None:
        total += int(0.03 * language)  # what the measured AWQ start held beyond the plain sum
    return _ranged(int(total), _EXACT if method is None else _QUANTIZED)


def _ranged(total: int, spread: tuple[float, float]) -> WeightBytes:
    return WeightBytes(total, int(total * (1 - spread[0])), int(total * (1 + spread[1])))


def _element_bytes(dtype: str) -> int:
    return 4 if dtype.endswith(("float32", "float")) else 2


def _allocated(size: float, kept: int = _STEP) -> int:
    """Bytes that PyTorch's allocator counts for a tensor of `size` bytes: a large one has segments of its own, whose
    rest, if not above `kept`, counts as well. Over all measured starts the language model's rests count in full, those
    of the vision tower up to 1 MiB (above it the allocator splits them off)."""
    exact = math.ceil(size / 512) * 512
    segment = math.ceil(size / _STEP) * _STEP
    return segment if size >= _LARGE and segment - exact <= kept else exact


def _layer_tensors(spec: ModelSpec, sharding: Sharding, method: Quantization | None) -> Iterator[float]:
    """Bytes of every tensor of one decoder layer on one rank; nothing where a number is unknown."""
    hidden, heads, kv, dim = spec.hidden_size, spec.attention_heads, spec.key_value_heads, spec.head_dim
    if hidden is None or heads is None or kv is None or dim is None:
        return
    tensor, element = sharding.tensor, _element_bytes(spec.dtype)
    stored = _stored_bytes(method, element)
    query, key = heads * dim / tensor, max(kv / tensor, 1) * dim
    mlp = list(_mlp_tensors(spec, sharding, stored, element))
    if not mlp:
        return
    yield hidden * (query + 2 * key) * stored
    yield query * hidden * stored
    yield from mlp
    yield from (hidden * element, hidden * element)
    if spec.qkv_bias:
        yield (query + 2 * key) * element
    if spec.qk_norm:
        yield from (dim * element, dim * element)


def _mlp_tensors(spec: ModelSpec, sharding: Sharding, stored: float, element: int) -> Iterator[float]:
    hidden = spec.hidden_size or 0
    if spec.experts:
        inner = spec.moe_intermediate_size
        if inner is None:
            return
        ranks = sharding.tensor * (sharding.data if sharding.expert else 1)
        experts = math.ceil(spec.experts / ranks) if sharding.expert else spec.experts
        width = inner if sharding.expert else inner / sharding.tensor
        yield experts * 2 * width * hidden * stored
        yield experts * hidden * width * stored
        yield spec.experts * hidden * element
    elif spec.intermediate_size is not None:
        yield 2 * spec.intermediate_size * hidden * stored / sharding.tensor
        yield spec.intermediate_size * hidden * stored / sharding.tensor


def _stored_bytes(method: Quantization | None, element: int) -> float:
    """Bytes for one weight of a quantized matrix, its share of the scales included."""
    if method is None:
        return element
    scales = _GROUP_BYTES.get(method.method, 2.0) / method.group if method.group else 0
    return method.bits / 8 + scales


def _tower_bytes(spec: ModelSpec, sharding: Sharding, method: Quantization | None) -> int:
    """The vision tower on one rank. Matrices of its blocks and mergers are split in `weights` mode, vectors never."""
    if spec.vision is None:
        return 0
    element = _element_bytes(spec.dtype)
    quantized = method is not None and (method.vision or method.method == "gguf")
    stored = _stored_bytes(method, element) if quantized else element
    splits = 1 if sharding.encoder_data or spec.vision.heads % sharding.tensor else sharding.tensor
    return sum(
        _allocated(rows * columns * (stored / splits if columns > 1 else element), MIB)
        for rows, columns in vision_tensors(spec.vision, spec)
    )


def _rotary_bytes(spec: ModelSpec) -> int:
    """cos and sin of the M-RoPE table: 4 x max_position_embeddings x head_dim elements."""
    if spec.max_position_embeddings is None or spec.head_dim is None:
        return 0
    return 4 * spec.max_position_embeddings * spec.head_dim * _element_bytes(spec.dtype)


def _deepstack_bytes(spec: ModelSpec, max_num_batched_tokens: int | None) -> int:
    """Qwen3-VL: one input buffer of max_num_batched_tokens x hidden for each deepstack level."""
    if spec.vision is None or max_num_batched_tokens is None:
        return 0
    return spec.vision.deepstack * max_num_batched_tokens * (spec.hidden_size or 0) * _element_bytes(spec.dtype)


def _from_name(spec: ModelSpec, sharding: Sharding, method: Quantization | None) -> WeightBytes | None:
    """Weights from the number of parameters alone, spread evenly."""
    parameters = spec.parameters
    if parameters is None:
        return None
    per_weight = _stored_bytes(method, _element_bytes(spec.dtype))
    ranks = sharding.tensor * sharding.pipeline
    return _ranged(int(parameters * per_weight / ranks), _NAME_ONLY)
