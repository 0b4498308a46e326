"""Visual tokens: what a picture or a video of a given size becomes, and how a pixel cap is spelled.

The resize functions are those of the models' own processors (transformers `image_processing_qwen2_vl.smart_resize`,
`qwen3_vl.video_processing_qwen3_vl.smart_resize`), with the same floating-point steps and the same rounding, so that
the counts agree to the last token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from qvl_doctor.core.model import ModelSpec
from qvl_doctor.core.records import record

MAX_ASPECT_RATIO: Final = 200

CAP_TOKENS: Final = {14: 1280, 16: 1024}
"""Tokens of one picture that a cap leaves when nothing else decides, by patch size: 1280 (1003520 pixels) is the limit
that Qwen's own examples for Qwen2/2.5-VL use; 1024 (1048576 pixels) the nearest round figure for the 32-pixel grid."""


class MediaRefusedError(ValueError):
    """The processor refuses this picture; the text says why, as the processor does."""


@record
class Pixels:
    """Limits on the resized picture's area (for Qwen3-VL videos: on frames x height x width)."""

    minimum: int
    maximum: int


@record
class VisualSize:
    """A resized picture or video. `grid` is (frames / temporal patch, rows, columns) in patches."""

    width: int
    height: int
    grid: tuple[int, int, int]
    tokens: int


def smart_resize(
    height: int, width: int, factor: int, pixels: Pixels, *, refuse_small: bool = False
) -> tuple[int, int]:
    """(height, width) after the processor's resize: multiples of `factor`, area within `pixels`.

    `refuse_small` is the behaviour of transformers before 4.53 (a side below `factor` was an error). Raises
    MediaRefusedError for sides below 1, or with a ratio above 200.
    """
    _check_sides(height, width)
    if refuse_small and min(height, width) < factor:
        raise MediaRefusedError(f"height:{height} or width:{width} must be larger than factor:{factor}")
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    if tall * wide > pixels.maximum:
        beta = math.sqrt((height * width) / pixels.maximum)
        tall = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif tall * wide < pixels.minimum:
        beta = math.sqrt(pixels.minimum / (height * width))
        tall = math.ceil(height * beta / factor) * factor
        wide = math.ceil(width * beta / factor) * factor
    return tall, wide


def smart_resize_video(
    frames: int, height: int, width: int, factor: int, temporal_factor: int, pixels: Pixels
) -> tuple[int, int]:
    """(height, width) of each frame of a Qwen3-VL video: the limits hold for all frames together.

    Raises MediaRefusedError for a side below `factor` or a ratio above 200.
    """
    _check_sides(height, width)
    if min(height, width) < factor:
        raise MediaRefusedError(f"height:{height} or width:{width} must be larger than factor:{factor}")
    if frames < 1:
        raise MediaRefusedError("a video needs at least one frame")
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    padded = math.ceil(frames / temporal_factor) * temporal_factor
    if padded * tall * wide > pixels.maximum:
        beta = math.sqrt((frames * height * width) / pixels.maximum)
        tall = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif padded * tall * wide < pixels.minimum:
        beta = math.sqrt(pixels.minimum / (frames * height * width))
        tall = math.ceil(height * beta / factor) * factor
        wide = math.ceil(width * beta / factor) * factor
    return tall, wide


def _check_sides(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise MediaRefusedError("a picture needs at least one pixel")
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        ratio = max(height, width) / min(height, width)
        raise MediaRefusedError(f"absolute aspect ratio must be smaller than {MAX_ASPECT_RATIO}, got {ratio}")


def image_pixels(spec: ModelSpec) -> Pixels | None:
    """The limits of the published preprocessor_config.json, None where they are not known for this family."""
    if spec.image_min_pixels is None or spec.image_max_pixels is None:
        return None
    return Pixels(spec.image_min_pixels, spec.image_max_pixels)


def video_pixels(spec: ModelSpec) -> Pixels | None:
    """As `image_pixels` for the whole video (Qwen3-VL and later); None for families that limit each frame."""
    if spec.video_min_pixels is None or spec.video_max_pixels is None:
        return None
    return Pixels(spec.video_min_pixels, spec.video_max_pixels)


def image_size(
    spec: ModelSpec, width: int, height: int, pixels: Pixels | None = None, *, refuse_small: bool = False
) -> VisualSize | None:
    """What a picture becomes; `pixels` replaces the family's limits. None where those are unknown and none are given.

    Raises MediaRefusedError where the processor refuses the picture.
    """
    limits = pixels or image_pixels(spec)
    if limits is None:
        return None
    factor = spec.patch_size * spec.merge_size
    tall, wide = smart_resize(height, width, factor, limits, refuse_small=refuse_small)
    return _visual_size(spec, 1, tall, wide)


def video_size(
    spec: ModelSpec, frames: int, width: int, height: int, pixels: Pixels | None = None
) -> VisualSize | None:
    """What a video of `frames` sampled frames becomes. Qwen2/2.5-VL limit each frame like a picture, Qwen3-VL and later
    the whole video. Timestamps in the prompt are not counted. None and MediaRefusedError as for `image_size`."""
    whole = spec.patch_size == 16
    limits = pixels or (video_pixels(spec) if whole else image_pixels(spec))
    if limits is None:
        return None
    factor = spec.patch_size * spec.merge_size
    if whole:
        tall, wide = smart_resize_video(frames, height, width, factor, spec.temporal_patch_size, limits)
    else:
        tall, wide = smart_resize(height, width, factor, limits)
    return _visual_size(spec, math.ceil(frames / spec.temporal_patch_size), tall, wide)


def _visual_size(spec: ModelSpec, steps: int, tall: int, wide: int) -> VisualSize:
    rows, columns = tall // spec.patch_size, wide // spec.patch_size
    return VisualSize(wide, tall, (steps, rows, columns), steps * rows * columns // spec.merge_size**2)


# --- caps ----------------------------------------------------------------------------------------------------------


def tokens_at_cap(spec: ModelSpec, max_pixels: int) -> int:
    """The most visual tokens that one picture can have under a pixel limit."""
    return max_pixels // spec.pixels_per_token


def max_pixels_for_tokens(spec: ModelSpec, tokens: int) -> int:
    """The pixel limit that holds one picture to `tokens` visual tokens."""
    return tokens * spec.pixels_per_token


def default_cap_pixels(spec: ModelSpec) -> int:
    """The cap to advise where no budget decides (see CAP_TOKENS)."""
    return max_pixels_for_tokens(spec, CAP_TOKENS.get(spec.patch_size, 1024))


def cap_in_force(kwargs: Mapping[str, object], spec: ModelSpec) -> Pixels | None:
    """The limits under --mm-processor-kwargs, as vLLM reads them from 0.17 on and the processors' constructors before:
    the family's, with `size` laid over, with min_pixels / max_pixels over that. None where a limit stays unknown."""
    size = kwargs.get("size")
    edges: Mapping[str, object] = size if isinstance(size, dict) else {}
    minimum = _positive(kwargs.get("min_pixels")) or _positive(edges.get("shortest_edge")) or spec.image_min_pixels
    maximum = _positive(kwargs.get("max_pixels")) or _positive(edges.get("longest_edge")) or spec.image_max_pixels
    return None if minimum is None or maximum is None else Pixels(minimum, maximum)


def capped_kwargs(given: Mapping[str, object], spec: ModelSpec, max_pixels: int) -> dict[str, object]:
    """--mm-processor-kwargs with a pixel cap in the spelling that every vLLM release obeys for this family, merged with
    what the user has.

    Qwen2/2.5-VL: `max_pixels`. Later families: `size` with both edges: their processors take `size`, and drop a lone
    `max_pixels` at call time (transformers 4.57: it counts only together with `min_pixels`). Old spellings of the same
    limit are removed, so that one value rules.
    """
    merged = {key: value for key, value in given.items() if key not in ("max_pixels", "size")}
    size = given.get("size")
    edges = dict(size) if isinstance(size, dict) else {}
    if spec.patch_size == 14:
        if edges:
            merged["size"] = {**edges, "longest_edge": max_pixels}
        merged["max_pixels"] = max_pixels
        return merged
    low = _positive(merged.pop("min_pixels", None)) or _positive(edges.get("shortest_edge")) or spec.image_min_pixels
    merged["size"] = {"shortest_edge": min(low or 65536, max_pixels), "longest_edge": max_pixels}
    return merged


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
