"""The memory budget of one GPU: what vLLM asks for, what it spends before the KV cache, what is left.

    KV cache = utilization x total - weights - peak of the profile run - memory outside torch - graphs (0.20.2 on)

after `Worker.determine_available_memory` (vllm/worker/worker.py, vllm/v1/worker/gpu_worker.py). Every term says where
it comes from; figures of a log replace modelled ones. All sizes are bytes on one GPU.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from qvl_doctor.core import profile_run
from qvl_doctor.core.model import ModelSpec, Quantization
from qvl_doctor.core.profile_run import GIB, Batch, ProfiledMedia, Release
from qvl_doctor.core.records import field, record
from qvl_doctor.core.weights import Sharding, WeightBytes, weights_bytes

TermBasis = Literal["exact", "modelled", "measured"]

_NON_TORCH_BYTES: Final = int(0.23 * GIB)  # one H200: 0.22-0.25
_NCCL_BYTES: Final = int(0.6 * GIB)  # with several GPUs: 0.2-1 GiB
BLOCK_TOKENS: Final = 16
LEAST_BESIDE_WEIGHTS_BYTES: Final = _NON_TORCH_BYTES + int(0.3 * GIB)
"""What no flag takes away: memory outside torch and the activations of a small batch."""


@record
class Term:
    """One number of the budget and where it comes from: follows from given numbers, modelled, or read from a log."""

    bytes: int
    basis: TermBasis


@record
class Measured:
    """Figures of a log of the same command, in GiB as printed; they replace modelled terms."""

    weights_gib: float | None = None
    torch_peak_gib: float | None = None
    non_torch_gib: float | None = None
    graphs_gib: float | None = None
    kv_available_gib: float | None = None
    kv_tokens: int | None = None


@record
class Request:
    """What is to be planned. `total_bytes` is CUDA's total of the smallest card (`Gpu.budget_base_bytes`)."""

    spec: ModelSpec
    release: Release
    batch: Batch
    total_bytes: int
    utilization: float
    sharding: Sharding = field(default_factory=Sharding)
    kv_element_bytes: int = 2
    skip_mm_profiling: bool = False
    quantization: Quantization | None = None  # asked for on an unquantized checkpoint
    kv_cache_memory_bytes: int | None = None  # --kv-cache-memory-bytes: the budget is not used then
    other_processes_bytes: int = 0


@record
class MemoryPlan:
    """The budget. `kv_cache` may be negative: so much is missing. `outside` is memory that real requests or graphs will
    take and that nothing sets aside (the encoder where it is not profiled, graphs where they are not counted)."""

    requested: Term
    weights: Term
    weights_high: int
    encoder_peak: Term
    language_peak: Term
    sampler_peak: Term
    activation_peak: Term
    non_torch: Term
    graphs: Term
    outside: Term
    kv_cache: Term
    bytes_per_token: int
    kv_tokens: int
    media: ProfiledMedia | None

    @property
    def weights_fit(self) -> bool:
        """Whether the weights and what cannot be avoided beside them (a small batch, the context) leave anything."""
        return self.weights.bytes + LEAST_BESIDE_WEIGHTS_BYTES < self.requested.bytes

    @property
    def spent_bytes(self) -> int:
        """Everything that goes off the budget before the KV cache."""
        parts = (self.weights, self.activation_peak, self.non_torch, self.graphs)
        return sum(part.bytes for part in parts)


def kv_bytes_per_token(spec: ModelSpec, sharding: Sharding, element_bytes: int = 2) -> int | None:
    """KV cache bytes of one token on one GPU: K and V of the rank's KV heads (replicated where there are fewer heads
    than ranks), over the full-attention layers of its pipeline stage. None where the model's numbers are unknown."""
    layers, kv, dim = spec.full_attention_layers, spec.key_value_heads, spec.head_dim
    if layers is None or kv is None or dim is None:
        return None
    return 2 * max(1, kv // sharding.tensor) * dim * element_bytes * math.ceil(layers / sharding.pipeline)


def plan(request: Request, measured: Measured | None = None) -> MemoryPlan | None:
    """The budget of `request`, None where the model's numbers do not suffice."""
    seen = measured or Measured()
    sharding, batch, release = request.sharding, request.batch, request.release
    weights = planned_weights(request)
    per_token = kv_bytes_per_token(request.spec, sharding, request.kv_element_bytes)
    peaks = _peaks(request)
    if weights is None or per_token is None or peaks is None:
        return None
    encoder, language, sampler, media = peaks
    weights_term = _measured(seen.weights_gib) or Term(weights.bytes, "modelled")
    peak = _measured(seen.torch_peak_gib) or Term(max(encoder, language, sampler), "modelled")
    several = sharding.tensor * sharding.pipeline > 1
    non_torch = _measured(seen.non_torch_gib) or Term(_NON_TORCH_BYTES + (_NCCL_BYTES if several else 0), "modelled")
    graph_size = _measured(seen.graphs_gib) or Term(profile_run.graph_bytes(request.spec, batch), "modelled")
    graphs = graph_size if release.counts_graphs else Term(0, "exact")
    requested = Term(math.ceil(request.utilization * request.total_bytes), "exact")
    others = request.other_processes_bytes if release.counts_other_processes else 0
    left = requested.bytes - weights_term.bytes - peak.bytes - non_torch.bytes - graphs.bytes - others
    kv_cache = _kv_cache(request, seen, left)
    return MemoryPlan(
        requested=requested,
        weights=weights_term,
        weights_high=weights_term.bytes if weights_term.basis == "measured" else weights.high,
        encoder_peak=Term(encoder, "modelled"),
        language_peak=Term(language, "modelled"),
        sampler_peak=Term(sampler, "modelled"),
        activation_peak=peak,
        non_torch=non_torch,
        graphs=graphs,
        outside=Term(_outside(request, graph_size.bytes), "modelled"),
        kv_cache=kv_cache,
        bytes_per_token=per_token,
        kv_tokens=seen.kv_tokens or max(0, kv_cache.bytes) // (per_token * BLOCK_TOKENS) * BLOCK_TOKENS,
        media=media,
    )


def planned_weights(request: Request) -> WeightBytes | None:
    """Weights on one GPU; without the vision tower where no picture or video may be sent (0.14 on: the limits of 0 keep
    the tower from being loaded)."""
    loads_tower = request.batch.sees or request.release.before("0.14")
    return weights_bytes(
        request.spec,
        request.sharding,
        max_num_batched_tokens=request.batch.max_num_batched_tokens,
        vision=loads_tower,
        quantization=request.quantization,
    )


def needed_utilization(request: Request, tokens: int, measured: Measured | None = None) -> float | None:
    """The smallest two-decimal fraction whose KV cache holds `tokens` tokens; None where none up to 0.98 does."""
    base = plan(request, measured)
    if base is None:
        return None
    blocks = math.ceil(tokens / BLOCK_TOKENS) + 1  # one block is the null block
    need = base.spent_bytes + blocks * BLOCK_TOKENS * base.bytes_per_token
    fraction = math.ceil(100 * need / request.total_bytes) / 100
    return fraction if fraction <= 0.98 else None


def _measured(gib: float | None) -> Term | None:
    return None if gib is None else Term(int(gib * GIB), "measured")


def _kv_cache(request: Request, seen: Measured, left: int) -> Term:
    if seen.kv_available_gib is not None:
        return Term(int(seen.kv_available_gib * GIB), "measured")
    if request.kv_cache_memory_bytes is not None:
        return Term(request.kv_cache_memory_bytes, "exact")
    return Term(left, "modelled")


def _peaks(request: Request) -> tuple[int, int, int, ProfiledMedia | None] | None:
    """(encoder, language model, sampler) peaks of the profile run; the latter two hold what the encoder leaves."""
    spec, release, batch = request.spec, request.release, request.batch
    tensor = request.sharding.tensor
    language = profile_run.language_peak(spec, batch.max_num_batched_tokens, tensor)
    sampler = profile_run.sampler_peak(spec, batch, release)
    if language is None or sampler is None:
        return None
    sampler += profile_run.moe_workspace(spec, batch.max_num_batched_tokens, tensor)
    if release.engine == "V0":
        return _v0_peaks(request, language, sampler)
    media = profile_run.profiled_media(spec, batch, release) if batch.sees else None
    if media is None or request.skip_mm_profiling or not release.profiles_encoder:
        return 0, language, sampler, media
    encoder = profile_run.encoder_peak(spec, media.run_tokens, release, _encoder_ranks(request), eager=batch.eager)
    residue = profile_run.encoder_residue(spec, media.run_tokens, release)
    return encoder, language + residue, sampler + residue, media


def _v0_peaks(request: Request, language: int, sampler: int) -> tuple[int, int, int, ProfiledMedia | None]:
    """V0: one prefill batch in which every sequence carries every allowed item at its largest; their number is cut to
    max_num_batched_tokens // tokens of one such set, at least one."""
    spec, release, batch = request.spec, request.release, request.batch
    image = (profile_run.image_tokens(spec, batch) or 0) * (1 if batch.image_limit is None else batch.image_limit)
    video = (profile_run.video_tokens(spec, batch, release) or 0) * (
        1 if batch.video_limit is None else batch.video_limit
    )
    one_set = image + video
    if one_set == 0:
        return 0, language, sampler, None
    sequences = max(1, min(batch.max_num_seqs, batch.max_num_batched_tokens // one_set))
    tokens = sequences * one_set
    encoder = profile_run.encoder_peak(spec, tokens, release, _encoder_ranks(request))
    residue = profile_run.encoder_residue(spec, tokens, release)
    media = ProfiledMedia("video" if video > image else "image", one_set, sequences, tokens, tokens)
    return encoder, language + residue, sampler + residue, media


def _encoder_ranks(request: Request) -> int:
    vision, sharding = request.spec.vision, request.sharding
    undivided = vision is None or sharding.encoder_data or vision.heads % sharding.tensor != 0
    return 1 if undivided else sharding.tensor


def _outside(request: Request, graph_size: int) -> int:
    """Memory that nobody sets aside: the encoder's peak for one largest picture, where it is not in the profile; graphs
    where they are not counted."""
    spec, release, batch = request.spec, request.release, request.batch
    unprofiled = release.engine == "V1" and (request.skip_mm_profiling or not release.profiles_encoder)
    tokens = (profile_run.image_tokens(spec, batch) or 0) if batch.image_limit != 0 and unprofiled else 0
    encoder = profile_run.encoder_peak(spec, tokens, release, _encoder_ranks(request), eager=batch.eager)
    return encoder + (0 if release.counts_graphs else graph_size)
