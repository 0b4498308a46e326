"""What pictures and videos cost and how to limit them: numbers and flag values for the rules on multimodal limits.

Sources: the resize rule (see `core/vision.py`); vllm/v1/core/encoder_cache_manager.py (the cache holds
max(max_num_batched_tokens, largest item), 0.7-0.33); vllm/engine/arg_utils.py (form of --limit-mm-per-prompt).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from packaging.version import Version

from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.model import ModelSpec
from qvl_doctor.core.vision import (
    MAX_ASPECT_RATIO,
    cap_in_force,
    capped_kwargs,
    default_cap_pixels,
    max_pixels_for_tokens,
    tokens_at_cap,
)

_CAP_OF_UNKNOWN_MODEL = 1280 * 784  # pixels; Qwen2/2.5-VL, by far the most served
_LEAST_TOKENS = 256  # a picture below that many visual tokens is of little use
_TEXT_TOKENS = 512  # left for the text of a request
_FEW_FRAMES = 32
_LEAST_BATCH = 2048  # the smallest default of --max-num-batched-tokens on a GPU (vllm/engine/arg_utils.py, 0.8-0.33)
_SIZE_IN_ERROR = lazy_regex(r"\bsize=(\d{1,6})x(\d{1,6})\b")
_PAIR = lazy_regex(r"\s*(\w+)\s*=\s*(\d{1,6})\s*")


def _compact(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _given(view: View, flag: str) -> dict[str, object]:
    """The JSON object of a flag as the launch gives it, {} where it gives none."""
    launch = view.objects.launch
    value = None if launch is None else launch.json_value(flag)
    return dict(value) if isinstance(value, dict) else {}


# --- --limit-mm-per-prompt -------------------------------------------------------------------------------------------


def _limits_given(view: View) -> dict[str, object]:
    """Limits of the launch by modality, from JSON or from image=2,video=1."""
    launch = view.objects.launch
    limits = _given(view, "--limit-mm-per-prompt")
    text = None if launch is None or limits else launch.get("--limit-mm-per-prompt")
    for part in (text or "").split(","):
        pair = _PAIR.fullmatch(part)
        if pair:
            limits[pair[1]] = int(pair[2])
    return limits


def _spelled_limits(view: View, limits: Mapping[str, object]) -> str:
    """The flag's value: image=2,video=0 up to 0.8.4, a JSON object from 0.8.5 on (and where the release is unknown)."""
    version = view.version("version.vllm")
    plain = all(isinstance(count, int) for count in limits.values())
    if version is not None and Version("0.3") <= version < Version("0.8.5.dev0") and plain:
        return ",".join(f"{modality}={count}" for modality, count in limits.items())
    return _compact(limits)


@derived("plan.limit_mm_for_request", "str", "", "--limit-mm-per-prompt that lets the refused request in")
def _limit_mm_for_request(view: View) -> str | None:
    modality, limit = view.text("match.modality"), view.integer("match.limit")
    needed = view.integer("match.passed") or (None if limit is None else limit + 1)
    if modality is None or needed is None or needed < 1:
        return None
    limits = _limits_given(view)
    before = limits.get(modality)
    limits[modality] = {**before, "count": needed} if isinstance(before, dict) else needed
    return _spelled_limits(view, limits)


@derived("plan.limit_mm_no_video", "str", "", "--limit-mm-per-prompt as given, without video")
def _limit_mm_no_video(view: View) -> str | None:
    limits = _limits_given(view)
    return None if limits.get("video") == 0 else _spelled_limits(view, {**limits, "video": 0})


def _count(limits: Mapping[str, object], modality: str) -> int | None:
    value = limits.get(modality)
    value = value.get("count") if isinstance(value, dict) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@derived("plan.images_allowed", "int", "", "pictures of one request that the launch allows in so many words")
def _images_allowed(view: View) -> int | None:
    return _count(_limits_given(view), "image")


@derived("plan.videos_allowed", "int", "", "videos of one request that the launch allows in so many words")
def _videos_allowed(view: View) -> int | None:
    return _count(_limits_given(view), "video")


# --- pixel caps ------------------------------------------------------------------------------------------------------


def _capped(view: View, max_pixels: int) -> str | None:
    """--mm-processor-kwargs as given with this cap; None where nothing larger is let through anyway."""
    given = _given(view, "--mm-processor-kwargs")
    spec = view.objects.model
    if spec is None:
        before = given.get("max_pixels")
        if isinstance(before, int) and before <= max_pixels:
            return None
        return _compact({**given, "max_pixels": max_pixels})
    now = cap_in_force(given, spec)
    if now is not None and now.maximum <= max_pixels:
        return None
    return _compact(capped_kwargs(given, spec, max_pixels))


def _pixels_for(spec: ModelSpec | None, tokens: int) -> int:
    return tokens * 784 if spec is None else max_pixels_for_tokens(spec, tokens)


@derived("plan.media_cap_kwargs", "str", "", "--mm-processor-kwargs with the usual cap on a picture's pixels")
def _media_cap_kwargs(view: View) -> str | None:
    spec = view.objects.model
    return _capped(view, _CAP_OF_UNKNOWN_MODEL if spec is None else default_cap_pixels(spec))


@derived(
    "plan.cap_kwargs_for_context", "str", "", "--mm-processor-kwargs under which all allowed pictures fit the context"
)
def _cap_kwargs_for_context(view: View) -> str | None:
    """Room for text taken off the context and shared among the pictures that one request may hold."""
    length = view.integer("match.length") or view.integer("effective.max_model_len")
    images = view.integer("plan.images_allowed") or 1
    if length is None:
        return None
    each = (length - _TEXT_TOKENS) // images // 64 * 64
    return _capped(view, _pixels_for(view.objects.model, each)) if each >= _LEAST_TOKENS else None


@derived("plan.cap_kwargs_for_cache", "str", "", "--mm-processor-kwargs that keep one picture within the encoder cache")
def _cap_kwargs_for_cache(view: View) -> str | None:
    cache = view.integer("match.cache")
    if cache is None or cache < _LEAST_TOKENS or view.text("match.modality") == "video":
        return None
    return _capped(view, _pixels_for(view.objects.model, cache))


@derived(
    "plan.cap_as_size_kwargs", "str", "", "the cap of --mm-processor-kwargs in the spelling that this family obeys"
)
def _cap_as_size_kwargs(view: View) -> str | None:
    spec, given = view.objects.model, _given(view, "--mm-processor-kwargs")
    wanted = given.get("max_pixels")
    if spec is None or not isinstance(wanted, int) or wanted < spec.pixels_per_token:
        return None
    return _compact(capped_kwargs(given, spec, wanted))


@derived("plan.known_kwargs", "str", "JSON", "--mm-processor-kwargs without the names that vLLM says it drops")
def _known_kwargs(view: View) -> str | None:
    """A dropped name that speaks of pixels and holds a number was meant as the cap on a picture."""
    dropped = set(re.findall(r"[\w.-]{1,60}", view.text("match.dropped") or ""))
    given, spec = _given(view, "--mm-processor-kwargs"), view.objects.model
    kept = {name: value for name, value in given.items() if name not in dropped}
    if spec is None or len(kept) == len(given):
        return None
    meant = [value for name, value in given.items() if name in dropped and "pixel" in name.lower()]
    sizes = [value for value in meant if isinstance(value, int) and value >= spec.pixels_per_token]
    if sizes:
        return _compact(capped_kwargs(kept, spec, max(sizes)))
    return _compact(kept) if kept else None


@derived("plan.cap_tokens", "int", "tokens", "visual tokens of one picture at the cap that the launch asks for")
def _cap_tokens(view: View) -> int | None:
    spec, wanted = view.objects.model, _given(view, "--mm-processor-kwargs").get("max_pixels")
    return None if spec is None or not isinstance(wanted, int) else tokens_at_cap(spec, wanted)


@derived("plan.tokens_per_picture", "int", "tokens", "the most visual tokens that one picture can have on this server")
def _tokens_per_picture(view: View) -> int | None:
    spec = view.objects.model
    if spec is None:
        return None
    limits = cap_in_force(_given(view, "--mm-processor-kwargs"), spec)
    return None if limits is None else tokens_at_cap(spec, limits.maximum)


@derived("plan.tokens_of_pictures", "int", "tokens", "visual tokens of all pictures that one request may hold")
def _tokens_of_pictures(view: View) -> int | None:
    """One picture where the launch states no number: what it states is meant, the default of 999 is not."""
    each, images = view.integer("plan.tokens_per_picture"), view.integer("plan.images_allowed")
    if each is None or images == 0 or view.flag("launch.language_model_only"):
        return None
    return each * (images or 1)


@derived("plan.halved_cap_kwargs", "str", "", "--mm-processor-kwargs under which several videos fit the encoder cache")
def _halved_cap_kwargs(view: View) -> str | None:
    """The cache is as large as the largest item, a picture under the same limit. With `longest_edge` = share x 32 x 32,
    that picture takes twice the tokens of a video (two frames make one step), so the videos fit beside each other."""
    spec, videos = view.objects.model, view.integer("plan.videos_allowed")
    budget = view.integer("log.encoder_budget_tokens")
    if videos is None or videos < 2 or budget is None or (spec is not None and spec.patch_size == 14):
        return None
    share = budget // videos
    given = {k: v for k, v in _given(view, "--mm-processor-kwargs").items() if k != "max_pixels"}
    size = given.get("size")
    edges = dict(size) if isinstance(size, dict) else {}
    return _compact({**given, "size": {"shortest_edge": 65536, **edges, "longest_edge": share * 1024}})


# --- lengths and budgets ---------------------------------------------------------------------------------------------


@derived("plan.max_len_for_prompt", "int", "tokens", "a --max-model-len that holds the refused prompt and an answer")
def _max_len_for_prompt(view: View) -> int | None:
    """The next round length (2^k or 3 x 2^k), where the checkpoint goes that far."""
    tokens = view.integer("match.tokens")
    if tokens is None or not 0 < tokens < 1 << 21:
        return None
    wanted = tokens + _TEXT_TOKENS
    length = next(step for k in range(10, 23) for step in (1 << k, 3 << (k - 1)) if step >= wanted)
    limit = view.integer("model.max_position_embeddings")
    if limit is not None and length > limit:
        return limit if wanted <= limit else None
    return length


@derived(
    "plan.batched_tokens_for_item",
    "int",
    "tokens",
    "a --max-num-batched-tokens that makes the encoder cache hold the item",
)
def _batched_tokens_for_item(view: View) -> int | None:
    tokens = view.integer("match.item") or view.integer("plan.video_tokens_asked")
    if tokens is None:
        return 32768 if view.value("match.item") is None else None
    return next((1 << k for k in range(11, 18) if 1 << k >= tokens), None)


@derived(
    "plan.video_tokens_asked",
    "int",
    "tokens",
    "visual tokens of a video with the frames and pixels that the launch allows",
)
def _video_tokens_asked(view: View) -> int | None:
    spec, frames = view.objects.model, view.integer("launch.media_io_kwargs.video.num_frames")
    if spec is None or frames is None or frames < 1 or spec.patch_size != 14:
        return None
    limits = cap_in_force(_given(view, "--mm-processor-kwargs"), spec)
    return None if limits is None else (frames + 1) // 2 * tokens_at_cap(spec, limits.maximum)


@derived("plan.fewer_frames_kwargs", "str", "", "--media-io-kwargs with fewer frames of a video")
def _fewer_frames_kwargs(view: View) -> str | None:
    """As many frames as the encoder cache holds at the pixel cap in force, where that can be told; else 32."""
    given = _given(view, "--media-io-kwargs")
    before = view.integer("launch.media_io_kwargs.video.num_frames")
    frames = _FEW_FRAMES
    asked, cache = view.integer("plan.video_tokens_asked"), view.integer("plan.encoder_cache_tokens")
    if asked is not None and before is not None and cache is not None and asked > cache:
        frames = max(2, before * cache // asked // 2 * 2)
    if before is not None and 0 < before <= frames:
        return None
    video = given.get("video")
    merged = {**video} if isinstance(video, dict) else {}
    return _compact({**given, "video": {**merged, "num_frames": frames}})


@derived(
    "plan.encoder_cache_tokens",
    "int",
    "tokens",
    "what the encoder cache holds: stated by the log, else the largest picture",
)
def _encoder_cache_tokens(view: View) -> int | None:
    stated = view.integer("log.encoder_budget_tokens") or view.integer("match.cache")
    if stated is not None:
        return stated
    spec = view.objects.model
    batched = view.integer("effective.max_num_batched_tokens") or _LEAST_BATCH
    limits = None if spec is None else cap_in_force(_given(view, "--mm-processor-kwargs"), spec)
    if spec is None or limits is None:
        return batched
    return max(batched, tokens_at_cap(spec, limits.maximum))


@derived("derived.text_is_base64", "bool", "", "so much text that it can only be a picture sent as text")
def _text_is_base64(view: View) -> bool | None:
    """vLLM counts the text before it looks at pictures. A megabyte of base64 is several hundred thousand
    tokens; a person's text that exceeds the context does so by less than six times, or stays below 100,000 tokens."""
    length, tokens = view.integer("match.length"), view.integer("match.tokens")
    characters = view.integer("match.characters")
    if length is None:
        return None
    if tokens is not None:
        return tokens >= 100_000 and tokens >= 6 * length
    return None if characters is None else characters >= 400_000 and characters >= 30 * length


# --- refused pictures ------------------------------------------------------------------------------------------------


def _pictures(view: View) -> list[tuple[int, int]]:
    """(width, height) of the pictures that an error of the processor lists."""
    text = view.text("match.images") or ""
    return [(int(width), int(height)) for width, height in _SIZE_IN_ERROR.findall(text[:4000])]


@derived(
    "derived.refused_picture",
    "str",
    "",
    "why the processor refused a picture that its error lists: small, thin or other",
)
def _refused_picture(view: View) -> str | None:
    sizes = _pictures(view)
    if not sizes:
        return None
    if any(_thin(*size) for size in sizes):
        return "thin"
    return "small" if any(_small(view, *size) for size in sizes) else "other"


@derived("derived.refused_size", "str", "px", "width x height of the picture that the processor refused")
def _refused_size(view: View) -> str | None:
    sizes = _pictures(view)
    bad = [size for size in sizes if _thin(*size)] or [size for size in sizes if _small(view, *size)] or sizes
    return f"{bad[0][0]}x{bad[0][1]}" if bad else None


def _thin(width: int, height: int) -> bool:
    return min(width, height) > 0 and max(width, height) / min(width, height) > MAX_ASPECT_RATIO


def _small(view: View, width: int, height: int) -> bool:
    spec = view.objects.model
    return min(width, height) < (28 if spec is None else spec.patch_size * spec.merge_size)


@derived("derived.least_side", "int", "px", "shortest side of a picture that the processor takes without complaint")
def _least_side(view: View) -> int | None:
    spec = view.objects.model
    return 28 if spec is None else spec.patch_size * spec.merge_size


# --- video -----------------------------------------------------------------------------------------------------------


@derived("derived.video_switched_off", "bool", "", "the launch allows no video")
def _video_switched_off(view: View) -> bool | None:
    if view.objects.launch is None:
        return None
    return view.integer("plan.videos_allowed") == 0 or view.flag("launch.language_model_only") is True


@derived(
    "derived.frames_in_processor_kwargs", "str", "", "a key of --mm-processor-kwargs that was meant to choose frames"
)
def _frames_in_processor_kwargs(view: View) -> str | None:
    """Qwen3-VL's own video processor samples by fps where it is told to; the older families get frames only."""
    spec = view.objects.model
    if spec is None or spec.patch_size != 14:
        return None
    given = _given(view, "--mm-processor-kwargs")
    return next((key for key in ("fps", "num_frames", "nframes", "max_frames", "total_pixels") if key in given), None)


@derived(
    "derived.small_prefill_for_video",
    "bool",
    "",
    "a service for videos alone whose prompts are computed in small pieces",
)
def _small_prefill_for_video(view: View) -> bool | None:
    batched, videos = view.integer("launch.max_num_batched_tokens"), view.integer("plan.videos_allowed")
    if view.objects.launch is None:
        return None
    only_video = videos is not None and videos > 0 and view.integer("plan.images_allowed") == 0
    return only_video and batched is not None and batched <= 4096


@derived(
    "plan.limit_mm_one_video", "str", "", "--limit-mm-per-prompt as given, with one video unless it states a number"
)
def _limit_mm_one_video(view: View) -> str | None:
    limits = _limits_given(view)
    return None if "video" in limits else _spelled_limits(view, {**limits, "video": 1})


@derived("derived.media_folder", "str", "", "the folder of the local file that a request named")
def _media_folder(view: View) -> str | None:
    file = view.text("match.file")
    folder = None if file is None else file.removeprefix("file://").rpartition("/")[0]
    return folder if folder and folder.startswith("/") and folder.count("/") > 1 else None


# --- adapters --------------------------------------------------------------------------------------------------------

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # vllm/config/lora.py MaxLoRARanks


@derived("plan.lora_rank", "int", "", "the smallest --max-lora-rank that vLLM accepts for the adapter")
def _lora_rank(view: View) -> int | None:
    rank = view.integer("match.rank")
    return None if rank is None else next((accepted for accepted in _LORA_RANKS if accepted >= rank), None)
