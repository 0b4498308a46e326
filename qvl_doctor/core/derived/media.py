"""`plan.*` and `derived.*` of pictures and videos: visual tokens, pixel caps, limits per prompt, room for a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qvl_doctor.core import planning, profile_run, vision
from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.model import ModelSpec
from qvl_doctor.core.planning import compact, limit_of
from qvl_doctor.core.profile_run import Batch, Release

_TEXT_TOKENS = 1024  # left for the text of a prompt and its answer beside the pictures
_ANSWER_TOKENS = 512
_STEP = 1024


def _round_up(tokens: int, step: int = _STEP) -> int:
    return math.ceil(tokens / step) * step


def _batch(view: View, spec: ModelSpec) -> Batch | None:
    """The batch in force as far as media need it; None where the context is unknown."""
    length = planning.context(view, spec)
    if length is None:
        return None
    sizes = planning.batch_sizes(view, length) or (2048, 256)
    limits, cap = planning.media_limits(view), planning.image_cap(view, spec)
    return Batch(
        max_model_len=length,
        max_num_batched_tokens=sizes[0],
        max_num_seqs=sizes[1],
        image_limit=limit_of(limits, "image"),
        video_limit=limit_of(limits, "video"),
        image_max_pixels=None if cap is None else cap.maximum,
    )


def _question(view: View) -> tuple[ModelSpec, Batch, Release] | None:
    spec, found = view.objects.model, planning.release(view)
    batch = None if spec is None else _batch(view, spec)
    return None if spec is None or batch is None or found is None else (spec, batch, found)


# --- tokens --------------------------------------------------------------------------------------------------------


@derived("derived.image_tokens_at_cap", "int", "tokens", "visual tokens of the largest picture that is let through")
def _image_tokens(view: View) -> int | None:
    spec = view.objects.model
    cap = None if spec is None else planning.image_cap(view, spec)
    return None if spec is None or cap is None else vision.tokens_at_cap(spec, cap.maximum)


@derived("derived.image_tokens_default", "int", "tokens", "visual tokens of the checkpoint's own largest picture")
def _image_tokens_default(view: View) -> int | None:
    spec = view.objects.model
    if spec is None or spec.image_max_pixels is None:
        return None
    return vision.tokens_at_cap(spec, spec.image_max_pixels)


@derived("derived.pixels_capped", "bool", "", "the launch limits the pixels of a picture")
def _pixels_capped(view: View) -> bool | None:
    spec, kwargs = view.objects.model, planning.json_flag(view, "mm_processor_kwargs")
    cap = None if spec is None else planning.image_cap(view, spec)
    if spec is None or kwargs is None or cap is None or spec.image_max_pixels is None:
        return None
    return cap.maximum < spec.image_max_pixels


@derived(
    "derived.worst_case_mm_tokens",
    "int",
    "tokens",
    "visual tokens of one request with every allowed item at its largest",
)
def _worst_case(view: View) -> int | None:
    """Only of limits that are given: without one a request may hold any number (999 from 0.8.4 on)."""
    asked = _question(view)
    if asked is None:
        return None
    spec, batch, found = asked
    image, video = profile_run.image_tokens(spec, batch), profile_run.video_tokens(spec, batch, found)
    if image is None or video is None or batch.image_limit is None:
        return None
    return batch.image_limit * image + (1 if batch.video_limit is None else batch.video_limit) * video


@derived("derived.encoder_budget_tokens", "int", "tokens", "budget of the encoder cache: as printed, else as planned")
def _encoder_budget(view: View) -> int | None:
    printed = view.integer("log.encoder_budget_tokens")
    asked = _question(view)
    if printed is not None or asked is None:
        return printed
    media = profile_run.profiled_media(*asked) if asked[1].sees else None
    return None if media is None else media.budget_tokens


@derived(
    "derived.budget_tokens_from_default_pixels",
    "int",
    "tokens",
    "the encoder's budget, where it follows the checkpoint's largest item",
)
def _budget_from_default(view: View) -> int | None:
    """None where a cap or the batch decides the budget: then memory does not follow a picture nobody may ever send."""
    budget, capped = view.integer("derived.encoder_budget_tokens"), view.flag("derived.pixels_capped")
    largest, asked = view.integer("derived.image_tokens_default"), _question(view)
    if budget is None or capped is not False or largest is None or asked is None:
        return None
    return budget if budget >= largest and budget > asked[1].max_num_batched_tokens else None


# --- caps ----------------------------------------------------------------------------------------------------------


@derived("plan.max_pixels", "int", "px", "pixel cap for one picture")
def _max_pixels(view: View) -> int | None:
    """The usual cap, or less where the pictures allowed would not fit the context beside the text; None where a cap
    that small is in force already."""
    spec = view.objects.model
    in_force = None if spec is None else planning.image_cap(view, spec)
    if spec is None:
        return None
    tokens = vision.tokens_at_cap(spec, vision.default_cap_pixels(spec))
    budget = _image_budget(view, spec)
    if budget is not None:
        tokens = min(tokens, budget)
    pixels = vision.max_pixels_for_tokens(spec, tokens)
    if in_force is not None and in_force.maximum <= pixels:
        return None
    return pixels if tokens >= 64 else None


def _image_budget(view: View, spec: ModelSpec) -> int | None:
    """Tokens for each of the pictures allowed, if all of them are to fit the context; in steps of 64."""
    length, count = planning.context(view, spec), limit_of(planning.media_limits(view), "image")
    if length is None or not count:
        return None
    return max(0, length - _TEXT_TOKENS) // count // 64 * 64


@derived("plan.max_pixels_kwargs", "str", "JSON", "--mm-processor-kwargs with a pixel cap, merged with what is given")
def _max_pixels_kwargs(view: View) -> str | None:
    spec, pixels = view.objects.model, view.integer("plan.max_pixels")
    given = planning.json_flag(view, "mm_processor_kwargs")
    if spec is None or pixels is None or planning.has_flag(view, "--mm-processor-kwargs") is False:
        return None
    return compact(vision.capped_kwargs(given or {}, spec, pixels))


@derived("plan.max_pixels_tokens", "int", "tokens", "visual tokens of one picture under the proposed cap")
def _max_pixels_tokens(view: View) -> int | None:
    spec, pixels = view.objects.model, view.integer("plan.max_pixels")
    return None if spec is None or pixels is None else vision.tokens_at_cap(spec, pixels)


# --- limits per prompt ---------------------------------------------------------------------------------------------


def _spelled(view: View, limits: Mapping[str, object]) -> str | None:
    """--limit-mm-per-prompt as this release takes it: JSON, or image=2,video=0 up to 0.8.4."""
    as_json = planning.accepts_json_limits(view)
    if as_json is None:
        return None
    if as_json:
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


@derived("plan.limit_mm_needed", "str", "JSON", "--limit-mm-per-prompt that lets the refused request through")
def _limit_needed(view: View) -> str | None:
    """The count in the error for the modality in the error; the other limits stay."""
    count, modality = view.integer("match.count"), (view.text("match.modality") or "image").lower().rstrip("s")
    if count is None or not 0 < count <= 10_000 or modality not in ("image", "video", "audio"):
        return None
    limits = planning.media_limits(view) or {}
    allowed = limit_of(limits, modality)
    if allowed is not None and allowed >= count:
        return None
    return _spelled(view, _with_count(limits, modality, count))


# --- room in batch and context -------------------------------------------------------------------------------------


@derived(
    "plan.max_num_batched_tokens_item", "int", "tokens", "--max-num-batched-tokens that holds the refused item whole"
)
def _batched_tokens_item(view: View) -> int | None:
    """The item's own length where the message states it, else the largest that may be sent."""
    length = next(
        (
            view.integer(f"match.{name}")
            for name in ("length", "item_tokens", "tokens", "need")
            if view.integer(f"match.{name}") is not None
        ),
        None,
    )
    if length is None:
        asked = _question(view)
        media = profile_run.profiled_media(*asked) if asked is not None and asked[1].sees else None
        length = None if media is None else media.item_tokens
    if length is None or not 0 < length <= 1_000_000:
        return None
    wanted = _round_up(length)
    now = view.integer("effective.max_num_batched_tokens")
    return wanted if now is None or wanted > now else None


@derived("plan.max_model_len_prompt", "int", "tokens", "--max-model-len that holds the refused prompt and an answer")
def _model_len_prompt(view: View) -> int | None:
    """Never above the checkpoint's own maximum, nor above what the KV cache is known to hold; None where the prompt is
    longer than either, or fits already."""
    length, spec = view.integer("match.length"), view.objects.model
    if length is None or not 0 < length <= 4_000_000:
        return None
    limits = [
        value
        for value in (None if spec is None else spec.max_position_embeddings, view.integer("plan.kv_tokens"))
        if value is not None
    ]
    wanted = _round_up(length + _ANSWER_TOKENS)
    if limits and wanted > min(limits):
        wanted = min(limits) // 16 * 16
    now = view.integer("effective.max_model_len") or view.integer("match.max_len")
    return wanted if wanted > length and (now is None or wanted > now) else None
