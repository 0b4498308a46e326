"""`plan.*` and `derived.*` of what media may be sent: limits per prompt, pixel caps, the size of the encoder cache.

Sources: the resize rule (see `core/vision.py`); vllm/v1/core/encoder_cache_manager.py (the cache holds
max(max_num_batched_tokens, largest item), 0.7-0.33); vllm/engine/arg_utils.py (form of --limit-mm-per-prompt).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from qvl_doctor.core import planning, profile_run, vision
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.planning import compact, limit_of

_PROMPT_TOKENS = 1024  # left for the text of a prompt and its answer beside the pictures
_TEXT_TOKENS = 512  # left for the text of a prompt alone
_LEAST_TOKENS = 256  # a picture below that many visual tokens is of little use
_LEAST_BATCH = 2048  # the smallest default of --max-num-batched-tokens on a GPU (vllm/engine/arg_utils.py, 0.8-0.33)
_MOST_ITEMS = 10_000  # of one request; more is no count of media
_CAP_KEYS = ("max_pixels", "size", "images_kwargs")


def processor_kwargs(view: View) -> dict[str, object]:
    """--mm-processor-kwargs as given, {} where none are known."""
    return planning.json_flag(view, "mm_processor_kwargs") or {}


# --- limits per prompt -----------------------------------------------------------------------------------------------


def _spelled(view: View, limits: Mapping[str, object]) -> str:
    """--limit-mm-per-prompt as this release takes it: JSON, or image=2,video=0 where it knows no other form."""
    if planning.accepts_json_limits(view) is not False:
        return compact(limits)
    return ",".join(f"{name}={limit_of(limits, name)}" for name in limits if limit_of(limits, name) is not None)


def _with_count(limits: Mapping[str, object], modality: str, count: int) -> dict[str, object]:
    """The limits with one count replaced; options beside a count (width, num_frames) stay."""
    given = limits.get(modality)
    value: object = {**given, "count": count} if isinstance(given, Mapping) else count
    return {**limits, modality: value}


@derived("plan.limit_mm_fewer", "str", "JSON", "--limit-mm-per-prompt with fewer pictures and no video")
def _limit_fewer(view: View) -> str | None:
    """Two pictures where more than two are allowed, else one. None where that is what is in force."""
    limits = planning.media_limits(view)
    if limits is None and view.flag("launch.present"):
        return None
    allowed = limit_of(limits, "image")
    count = allowed if allowed == 0 else 2 if allowed is not None and allowed > 2 else 1
    if allowed == count and limit_of(limits, "video") == 0:
        return None
    return _spelled(view, {**_with_count(limits or {}, "image", count or 0), "video": 0})


@derived("plan.limit_mm_for_request", "str", "JSON", "--limit-mm-per-prompt that lets the refused request in")
def _limit_for_request(view: View) -> str | None:
    """The count in the error, else one more than the limit in it; the other limits stay."""
    modality, limit = (view.text("match.modality") or "").lower(), view.integer("match.limit")
    count = view.integer("match.passed") or (None if limit is None else limit + 1)
    if count is None or not 0 < count <= _MOST_ITEMS or modality not in ("image", "video", "audio"):
        return None
    limits = planning.media_limits(view) or {}
    allowed = limit_of(limits, modality)
    if allowed is not None and allowed >= count:
        return None
    return _spelled(view, _with_count(limits, modality, count))


@derived("plan.limit_mm_no_video", "str", "JSON", "--limit-mm-per-prompt as given, without video")
def _limit_no_video(view: View) -> str | None:
    limits = planning.media_limits(view) or {}
    return None if limit_of(limits, "video") == 0 else _spelled(view, _with_count(limits, "video", 0))


@derived(
    "plan.limit_mm_one_video", "str", "JSON", "--limit-mm-per-prompt as given, with one video unless it states a number"
)
def _limit_one_video(view: View) -> str | None:
    limits = planning.media_limits(view) or {}
    return None if "video" in limits else _spelled(view, {**limits, "video": 1})


@derived("plan.images_allowed", "int", "", "pictures of one request that the launch allows in so many words")
def _images_allowed(view: View) -> int | None:
    return limit_of(planning.media_limits(view), "image")


@derived("plan.videos_allowed", "int", "", "videos of one request that the launch allows in so many words")
def _videos_allowed(view: View) -> int | None:
    return limit_of(planning.media_limits(view), "video")


# --- pixel caps ------------------------------------------------------------------------------------------------------


@derived("derived.pixels_capped", "bool", "", "the launch limits the pixels of a picture")
def _pixels_capped(view: View) -> bool | None:
    spec, kwargs = view.objects.model, planning.json_flag(view, "mm_processor_kwargs")
    if kwargs is None:
        return None
    cap = None if spec is None else planning.image_cap(view, spec)
    if spec is None or cap is None or spec.image_max_pixels is None:
        return any(key in kwargs for key in _CAP_KEYS)
    return cap.maximum < spec.image_max_pixels


@derived("plan.tokens_per_picture", "int", "tokens", "the most visual tokens that one picture can have on this server")
def _tokens_per_picture(view: View) -> int | None:
    spec = view.objects.model
    cap = None if spec is None else planning.image_cap(view, spec)
    return None if spec is None or cap is None else vision.tokens_at_cap(spec, cap.maximum)


@derived("plan.tokens_of_pictures", "int", "tokens", "visual tokens of all pictures that one request may hold")
def _tokens_of_pictures(view: View) -> int | None:
    """One picture where the launch states no number: what it states is meant, the default of 999 is not."""
    each, images = view.integer("plan.tokens_per_picture"), view.integer("plan.images_allowed")
    return None if each is None or images == 0 else each * (images or 1)


def _capped(view: View, tokens: int) -> str | None:
    """--mm-processor-kwargs as given, with a picture held to so many tokens; None where that changes nothing, or where
    model or release have no such option."""
    spec = view.objects.model
    in_force = None if spec is None else planning.image_cap(view, spec)
    if spec is None or planning.has_flag(view, "--mm-processor-kwargs") is False:
        return None
    pixels = vision.max_pixels_for_tokens(spec, tokens)
    if in_force is not None and in_force.maximum <= pixels:
        return None
    return compact(vision.capped_kwargs(processor_kwargs(view), spec, pixels))


def _tokens_each(view: View, length: int | None, beside: int) -> int | None:
    """Tokens for each of the pictures allowed (one, where no number is given), if all are to fit `length` tokens with
    `beside` others; in steps of 64. None where the length is unknown or no picture is allowed."""
    images = view.integer("plan.images_allowed")
    if length is None or images == 0:
        return None
    return max(0, length - beside) // (images or 1) // 64 * 64


@derived("plan.max_pixels_kwargs", "str", "JSON", "--mm-processor-kwargs with a pixel cap, merged with what is given")
def _max_pixels_kwargs(view: View) -> str | None:
    """The usual cap, or less where the pictures allowed would not fit the context beside the text."""
    spec = view.objects.model
    if spec is None:
        return None
    usual = vision.tokens_at_cap(spec, vision.default_cap_pixels(spec))
    each = _tokens_each(view, planning.context(view, spec), _PROMPT_TOKENS)
    tokens = usual if each is None else min(usual, each)
    return _capped(view, tokens) if tokens >= 64 else None


@derived(
    "plan.cap_kwargs_for_context",
    "str",
    "JSON",
    "--mm-processor-kwargs under which all allowed pictures fit the context",
)
def _cap_kwargs_for_context(view: View) -> str | None:
    """The largest such cap: all of the context but a little for text, shared among the pictures."""
    length = view.integer("match.length") or view.integer("effective.max_model_len")
    each = _tokens_each(view, length, _TEXT_TOKENS)
    return _capped(view, each) if each is not None and each >= _LEAST_TOKENS else None


@derived(
    "plan.cap_kwargs_for_cache", "str", "JSON", "--mm-processor-kwargs that keep one picture within the encoder cache"
)
def _cap_kwargs_for_cache(view: View) -> str | None:
    cache = view.integer("match.cache")
    if cache is None or cache < _LEAST_TOKENS or view.text("match.modality") == "video":
        return None
    return _capped(view, cache)


@derived(
    "plan.cap_as_size_kwargs", "str", "JSON", "the cap of --mm-processor-kwargs in the spelling that this family obeys"
)
def _cap_as_size_kwargs(view: View) -> str | None:
    spec, given = view.objects.model, processor_kwargs(view)
    wanted = given.get("max_pixels")
    if spec is None or not isinstance(wanted, int) or wanted < spec.pixels_per_token:
        return None
    return compact(vision.capped_kwargs(given, spec, wanted))


@derived("plan.cap_tokens", "int", "tokens", "visual tokens of one picture at the cap that the launch asks for")
def _cap_tokens(view: View) -> int | None:
    spec, wanted = view.objects.model, processor_kwargs(view).get("max_pixels")
    return None if spec is None or not isinstance(wanted, int) else vision.tokens_at_cap(spec, wanted)


@derived("plan.known_kwargs", "str", "JSON", "--mm-processor-kwargs without the names that vLLM says it drops")
def _known_kwargs(view: View) -> str | None:
    """A dropped name that speaks of pixels and holds a number was meant as the cap on a picture."""
    dropped = set(re.findall(r"[\w.-]{1,60}", view.text("match.dropped") or ""))
    given, spec = processor_kwargs(view), view.objects.model
    kept = {name: value for name, value in given.items() if name not in dropped}
    if spec is None or len(kept) == len(given):
        return None
    meant = [value for name, value in given.items() if name in dropped and "pixel" in name.lower()]
    sizes = [value for value in meant if isinstance(value, int) and value >= spec.pixels_per_token]
    if sizes:
        return compact(vision.capped_kwargs(kept, spec, max(sizes)))
    return compact(kept) if kept else None


@derived(
    "plan.halved_cap_kwargs", "str", "JSON", "--mm-processor-kwargs under which several videos fit the encoder cache"
)
def _halved_cap_kwargs(view: View) -> str | None:
    """The cache is as large as the largest item, a picture under the same limit. With `longest_edge` = share x 32 x 32,
    that picture takes twice the tokens of a video (two frames make one step), so the videos fit beside each other."""
    spec, videos = view.objects.model, view.integer("plan.videos_allowed")
    budget = view.integer("log.encoder_budget_tokens")
    if videos is None or videos < 2 or budget is None or (spec is not None and spec.patch_size == 14):
        return None
    share = budget // videos
    given = {name: value for name, value in processor_kwargs(view).items() if name != "max_pixels"}
    size = given.get("size")
    edges = dict(size) if isinstance(size, dict) else {}
    return compact({**given, "size": {"shortest_edge": 65536, **edges, "longest_edge": share * 1024}})


# --- the encoder cache -----------------------------------------------------------------------------------------------


@derived("plan.encoder_cache_tokens", "int", "tokens", "what the encoder cache holds: as printed, else as planned")
def _encoder_cache_tokens(view: View) -> int | None:
    stated = view.integer("log.encoder_budget_tokens") or view.integer("match.cache")
    if stated is not None:
        return stated
    spec, sizes, found = view.objects.model, planning.batch(view), planning.release(view)
    if spec is not None and sizes is not None and found is not None and sizes.sees:
        media = profile_run.profiled_media(spec, sizes, found)
        if media is not None:
            return media.budget_tokens
    return view.integer("effective.max_num_batched_tokens") or _LEAST_BATCH
