"""Numbers and flag values for prompts, pictures, videos and adapters that a server refuses or is slow with."""

from __future__ import annotations

from qvl_doctor.core import planning
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.memory import BLOCK_TOKENS
from qvl_doctor.core.vision import MAX_ASPECT_RATIO

_ANSWER_TOKENS = 512  # left for the answer to a prompt
_FEW_FRAMES = 32
_SIZE_IN_ERROR = lazy_regex(r"\bsize=(\d{1,6})x(\d{1,6})\b")


# --- lengths and budgets ---------------------------------------------------------------------------------------------


@derived("plan.max_len_for_prompt", "int", "tokens", "a --max-model-len that holds the refused prompt and an answer")
def _max_len_for_prompt(view: View) -> int | None:
    """The next round length (2^k or 3 x 2^k), where checkpoint and KV cache go that far."""
    tokens = view.integer("match.tokens")
    if tokens is None or not 0 < tokens < 1 << 21:
        return None
    wanted = tokens + _ANSWER_TOKENS
    length = next(step for k in range(10, 23) for step in (1 << k, 3 << (k - 1)) if step >= wanted)
    limits = (view.integer("model.max_position_embeddings"), view.integer("log.kv_tokens"))
    limit = min((one for one in limits if one is not None), default=length)
    if length > limit:
        return limit // BLOCK_TOKENS * BLOCK_TOKENS if wanted <= limit else None
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
    each = view.integer("plan.tokens_per_picture")
    return None if each is None else (frames + 1) // 2 * each


@derived("plan.fewer_frames_kwargs", "str", "", "--media-io-kwargs with fewer frames of a video")
def _fewer_frames_kwargs(view: View) -> str | None:
    """As many frames as the encoder cache holds at the pixel cap in force, where that can be told; else 32."""
    given = planning.json_flag(view, "media_io_kwargs") or {}
    before = view.integer("launch.media_io_kwargs.video.num_frames")
    frames = _FEW_FRAMES
    asked, cache = view.integer("plan.video_tokens_asked"), view.integer("plan.encoder_cache_tokens")
    if asked is not None and before is not None and cache is not None and asked > cache:
        frames = max(2, before * cache // asked // 2 * 2)
    if before is not None and 0 < before <= frames:
        return None
    video = given.get("video")
    merged = {**video} if isinstance(video, dict) else {}
    return planning.compact({**given, "video": {**merged, "num_frames": frames}})


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
    given = planning.json_flag(view, "mm_processor_kwargs") or {}
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
