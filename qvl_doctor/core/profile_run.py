"""What vLLM's profile run at start allocates: the vision encoder at its largest item, the language model, the sampler.

Formulas follow the lifetimes of the tensors in vLLM's sources (0.6-0.33); their small constants were fitted to 25
starts of 0.25.1 on an H200 with six Qwen-VL models and agree with those within 0.05 GiB. Sizes are bytes on one GPU.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from packaging.version import Version

from qvl_doctor.core.model import ModelSpec
from qvl_doctor.core.records import record
from qvl_doctor.core.vision import tokens_at_cap

GIB: Final = 1 << 30

Engine = Literal["V0", "V1"]
Runner = Literal["V1", "V2"]


@record
class Release:
    """Which code runs: the version, its engine (V0, V1) and the engine's model runner (V1, V2)."""

    version: Version
    engine: Engine = "V1"
    runner: Runner = "V1"

    def before(self, version: str) -> bool:
        return self.version < Version(f"{version}.dev0")

    @property
    def profiles_encoder(self) -> bool:
        """The V2 runner runs the encoder in its profile from 0.27 on (vllm/v1/worker/gpu/model_runner.py)."""
        return not (self.runner == "V2" and self.before("0.27"))

    @property
    def counts_graphs(self) -> bool:
        """CUDA graphs are estimated and taken from the budget: V1 runner from 0.20.2, V2 from 0.29."""
        return not self.before("0.29" if self.runner == "V2" else "0.20.2") and self.engine == "V1"

    @property
    def counts_other_processes(self) -> bool:
        """Memory of other processes shrinks the KV cache: V0 in 0.6.4, V1 in 0.7-0.9.0 (vllm/worker/worker.py,
        vllm/v1/worker/gpu_worker.py: everything on the device that is not torch's counts as used)."""
        if self.engine == "V0":
            return not self.before("0.6.4") and self.before("0.6.5")
        return self.before("0.9.1")


@record
class Batch:
    """Sizes of one engine step. `image_limit`/`video_limit` of --limit-mm-per-prompt; None: not given."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    image_limit: int | None = None
    video_limit: int | None = None
    image_max_pixels: int | None = None  # cap in force; None: the checkpoint's own
    eager: bool = False

    @property
    def sees(self) -> bool:
        """Whether any picture or video is allowed at all."""
        return self.image_limit != 0 or self.video_limit != 0


@record
class ProfiledMedia:
    """What the encoder is run on: so many items of one modality; `budget_tokens` as the log announces it."""

    modality: Literal["image", "video"]
    item_tokens: int
    items: int
    budget_tokens: int
    run_tokens: int  # of all items as they are really built


# --- media ---------------------------------------------------------------------------------------------------------


def image_tokens(spec: ModelSpec, batch: Batch) -> int | None:
    """Visual tokens of the largest picture."""
    pixels = batch.image_max_pixels or spec.image_max_pixels
    return None if pixels is None else tokens_at_cap(spec, pixels)


def video_tokens(spec: ModelSpec, batch: Batch, release: Release, length: int | None = None) -> int | None:
    """Visual tokens of the video that a profile is made with, for a context of `length` (max_model_len).

    Qwen2/2.5-VL: as many pairs of largest frames as fit, at most 8 pairs (7 from 0.11 on), at least one; up to 0.10.1
    the room of the allowed pictures is left out. Qwen3-VL: from 0.15 on the pixel budget of one video, before that as
    many pairs as fit into the context.
    """
    frame = image_tokens(spec, batch)
    if frame is None:
        return None
    room = length if length is not None else batch.max_model_len
    if spec.patch_size == 14:
        if release.before("0.10.2") and batch.image_limit != 0:
            room -= frame * (batch.image_limit or 1)
        most = 8 if release.before("0.11") else 7
        return frame * min(max(room // frame, 1), most)
    if release.before("0.15"):
        return frame * max(room // frame, 1)
    pixels = batch.image_max_pixels or spec.video_max_pixels
    return None if pixels is None else pixels // spec.temporal_patch_size // spec.pixels_per_token


def profiled_media(spec: ModelSpec, batch: Batch, release: Release) -> ProfiledMedia | None:
    """The items that the V1 engine's profile run encodes, or None where nothing may be sent or limits are unknown."""
    image = image_tokens(spec, batch) if batch.image_limit != 0 else 0
    video = video_tokens(spec, batch, release) if batch.video_limit != 0 else 0
    if image is None or video is None or max(image, video) == 0:
        return None
    modality: Literal["image", "video"] = "video" if video > image else "image"
    item, limit = (video, batch.video_limit) if modality == "video" else (image, batch.image_limit)
    budget = max(batch.max_num_batched_tokens, item)
    most = batch.max_num_seqs * (999 if limit is None else limit)
    whole = math.ceil(budget / item) if release.before("0.10") else budget // item
    items = max(1, min(whole, most))
    run = item
    if modality == "video" and spec.patch_size == 14 and _built_for_batch(release):
        run = video_tokens(spec, batch, release, batch.max_num_batched_tokens) or item
    return ProfiledMedia(modality, item, items, budget, run * items)


def _built_for_batch(release: Release) -> bool:
    """Releases whose dummy item is built for max_num_batched_tokens instead of max_model_len, so that a long video is
    announced, but one pair of frames is run (vllm/v1/worker/gpu_model_runner.py, 0.8.3-0.9.2, 0.10.1-0.10.2)."""
    first = not release.before("0.8.3") and release.before("0.10.0")
    return first or (not release.before("0.10.1") and release.before("0.11"))


# --- peaks ---------------------------------------------------------------------------------------------------------

# Elements alive per patch at the worst point of one encoder block, as (undivided, divided by tensor parallel), in units
# of the tower's width h: attention stage. Qwen2/2.5-VL, eager, bf16.
_ATTENTION_STAGE: Final = (
    ("0.11", 2, 11),  # fp32 rotary of q or k
    ("0.12", 2, 18),  # fp32 rotary of q and k joined
    ("0.14", 2, 10),
    ("999", 2, 9),
)
_TABLE_BYTES: Final = 360  # per patch: rotary tables, window index
_ENCODER_BASE: Final = int(0.04 * GIB)
_BASE: Final = int(0.03 * GIB)


def encoder_peak(
    spec: ModelSpec, tokens: int, release: Release, tensor_parallel: int = 1, *, eager: bool = True
) -> int:
    """Peak of encoding `tokens` visual tokens in one go.

    `tensor_parallel` splits the tower (1 in --mm-encoder-tp-mode data). 0 where the model's tower is unknown.
    """
    vision = spec.vision
    if vision is None or tokens <= 0:
        return 0
    patches = tokens * spec.merge_size**2
    whole, split = next((whole, split) for until, whole, split in _ATTENTION_STAGE if release.before(until))
    attention = vision.hidden * (whole + split / tensor_parallel)
    mlp = 2 * vision.hidden + vision.intermediate * (3 if vision.gated else 2) / tensor_parallel
    elements = max(attention, mlp) + (0 if eager or release.engine == "V0" else 2 * vision.hidden)
    return int(patches * (2 * elements + _TABLE_BYTES)) + pixel_bytes(spec, tokens, release) + _ENCODER_BASE


def pixel_bytes(spec: ModelSpec, tokens: int, release: Release) -> int:
    """The pixel input of so many visual tokens; up to 0.8 its fp32 form is alive as well."""
    per_patch = 3 * spec.temporal_patch_size * spec.patch_size**2
    return tokens * spec.merge_size**2 * per_patch * (6 if release.before("0.9") else 2)


def encoder_residue(spec: ModelSpec, tokens: int, release: Release) -> int:
    """What the encoder run leaves alive for the rest of the profile: its output rows (with deepstack features) and the
    pixel input."""
    levels = 1 + (spec.vision.deepstack if spec.vision else 0)
    return tokens * levels * (spec.hidden_size or 0) * 2 + pixel_bytes(spec, tokens, release)


def language_peak(spec: ModelSpec, tokens: int, tensor_parallel: int = 1) -> int | None:
    """Peak of the language model over `tokens` tokens: gate, up and activation beside three rows of hidden states; of
    an MoE the two workspaces of its experts."""
    hidden = spec.hidden_size
    if hidden is None:
        return None
    rows = 3 * hidden
    if spec.experts and spec.moe_intermediate_size:
        return int(tokens * rows * 2) + moe_workspace(spec, tokens, tensor_parallel) + _BASE
    if spec.intermediate_size is None:
        return None
    return int(tokens * (3 * spec.intermediate_size / tensor_parallel + rows) * 2) + _BASE


def moe_workspace(spec: ModelSpec, tokens: int, tensor_parallel: int = 1) -> int:
    """The two buffers of the fused experts; they stay alive after the forward pass. 0 for a dense model."""
    if not spec.experts or not spec.moe_intermediate_size or spec.hidden_size is None:
        return 0
    width = max(2 * spec.moe_intermediate_size / tensor_parallel, spec.hidden_size)
    return int(2 * tokens * (spec.experts_per_token or 1) * width * 2)


def sampler_bytes_per_logit(release: Release) -> float:
    """Bytes for one element of the logits while the sampler's dummy run holds them.

    V2 runner: bf16 and fp32 copies. V1 runner: 14.65 measured in 0.25.1 (Triton top-k/top-p, 0.17 on); before 0.17
    PyTorch sorts: values, indices, probabilities, masks beside the logits, 27. V0 ran the same sampler.
    """
    if release.runner == "V2":
        return 6
    return 27 if release.before("0.17") else 14.65


def sampler_peak(spec: ModelSpec, batch: Batch, release: Release) -> int | None:
    """Peak of the sampler's dummy run over min(max_num_seqs, max_num_batched_tokens) rows."""
    if spec.vocabulary is None or spec.hidden_size is None:
        return None
    rows = min(batch.max_num_seqs, batch.max_num_batched_tokens)
    hidden = batch.max_num_batched_tokens * spec.hidden_size * 2
    return int(rows * spec.vocabulary * sampler_bytes_per_logit(release)) + hidden + _BASE


def graph_bytes(spec: ModelSpec, batch: Batch) -> int:
    """A rough estimate of what CUDA graphs take at the default capture sizes: a part for each layer and size, fitted to
    five starts of 0.25.1 (28 and 36 layers, 7 and 51 sizes; errors up to 0.06 GiB). 0 with --enforce-eager."""
    if batch.eager or spec.layers is None:
        return 0
    largest = min(2 * batch.max_num_seqs, 512)
    sizes = len([1, 2, 4, *range(8, min(largest, 256) + 1, 8), *range(272, largest + 1, 16)])
    full = len([1, 2, 4, *range(8, min(batch.max_num_seqs, 512) + 1, 8)])
    per_layer = 0.00023 * sizes + 0.00009 * min(full, sizes)
    return int(per_layer * spec.layers * GIB)
