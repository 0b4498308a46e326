"""Numbers and flag values for the rules on multimodal limits, placeholders and refused pictures."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import Known, Objects, View
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.core.vision import tokens_at_cap
from qvl_doctor.sources.tables import model_spec
from qvl_doctor.sources.vllm_facts import knowledge

load_all()

QWEN25 = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"
QWEN3 = "vllm serve Qwen/Qwen3-VL-8B-Instruct"


def _view(command: str | None = QWEN25, version: str | None = "0.13.0", /, **match: object) -> View:
    known = knowledge(version)
    launch = None if command is None else parse_text(command, grammar=known).commands[0]
    facts = base_facts(Observed(launch=launch, version=version))
    model = model_spec(launch.model) if launch is not None and launch.model else None
    view = View(facts, Objects(launch=launch, knowledge=known, model=model))
    return view.over({f"match.{name}": Known(str(value)) for name, value in match.items()})


def _json(view: View, name: str) -> object:
    text = view.text(name)
    return None if text is None else json.loads(text)


# --- limits per prompt -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "version", "match", "value"),
    [
        (QWEN25, "0.8.3", {"modality": "image", "limit": 1}, "image=2"),
        (QWEN25, "0.13.0", {"modality": "image", "limit": 1}, '{"image":2}'),
        (
            f"{QWEN25} --limit-mm-per-prompt image=2,video=1",
            "0.7.3",
            {"modality": "image", "passed": 6},
            "image=6,video=1",
        ),
        (
            f"{QWEN25} --limit-mm-per-prompt.image 2",
            "0.13.0",
            {"modality": "video", "limit": 0},
            '{"image":2,"video":1}',
        ),
        (
            QWEN25 + """ --limit-mm-per-prompt '{"image":{"count":2,"width":64,"height":64}}'""",
            "0.13.0",
            {"modality": "image", "limit": 2},
            '{"image":{"count":3,"width":64,"height":64}}',
        ),
        (QWEN25, None, {"modality": "image", "passed": 3}, '{"image":3}'),
    ],
)
def test_limit_that_lets_the_request_in(
    command: str, version: str | None, match: dict[str, object], value: str
) -> None:
    assert _view(command, version, **match).text("plan.limit_mm_for_request") == value


def test_no_limit_is_proposed_without_a_modality_or_a_number() -> None:
    assert _view(QWEN25, "0.13.0", limit=1).value("plan.limit_mm_for_request") is None
    assert _view(QWEN25, "0.13.0", modality="image").value("plan.limit_mm_for_request") is None


def test_video_is_taken_off_the_limits_once() -> None:
    given_limit = f"{QWEN25} --limit-mm-per-prompt image=2,video=0"
    assert _view(given_limit, "0.8.3").value("plan.limit_mm_no_video") is None
    assert _view(QWEN25, "0.8.3").text("plan.limit_mm_no_video") == "video=0"


# --- caps ------------------------------------------------------------------------------------------------------------


def test_a_cap_is_spelled_as_the_family_obeys_it() -> None:
    assert _json(_view(QWEN25), "plan.max_pixels_kwargs") == {"max_pixels": 1003520}
    assert _json(_view(QWEN3), "plan.max_pixels_kwargs") == {"size": {"shortest_edge": 65536, "longest_edge": 1048576}}


def test_a_smaller_cap_in_force_is_left_alone() -> None:
    assert _view(f"{QWEN25} --mm-processor-kwargs.max_pixels 602112").value("plan.max_pixels_kwargs") is None


def test_a_cap_above_the_checkpoints_own_limit_is_none() -> None:
    assert _view(f"{QWEN25} --max-model-len 65536").value("plan.cap_kwargs_for_context") is None


@settings(max_examples=60)
@given(st.integers(1200, 120_000), st.integers(1, 40), st.sampled_from([QWEN25, QWEN3]))
def test_pictures_under_the_proposed_cap_fit_the_context(length: int, images: int, command: str) -> None:
    view = _view(f"{command} --max-model-len {length} --limit-mm-per-prompt.image {images}", "0.13.0")
    kwargs = _json(view, "plan.cap_kwargs_for_context")
    model = view.objects.model
    assert model is not None
    if isinstance(kwargs, dict):
        pixels = kwargs.get("max_pixels") or kwargs["size"]["longest_edge"]
        assert images * tokens_at_cap(model, pixels) < length


def test_max_pixels_becomes_size_with_other_keys_kept() -> None:
    command = QWEN3 + """ --mm-processor-kwargs '{"max_pixels":524288,"do_resize":true}'"""
    expected = {"do_resize": True, "size": {"shortest_edge": 65536, "longest_edge": 524288}}
    assert _json(_view(command), "plan.cap_as_size_kwargs") == expected


# --- lengths and frames ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "length"), [(9402, 12288), (60025, 65536), (20117, 24576), (127_900, 128_000)])
def test_a_round_context_holds_the_prompt(tokens: int, length: int) -> None:
    found = _view(QWEN25, "0.13.0", tokens=tokens).integer("plan.max_len_for_prompt")
    assert found == length or (found is None and tokens + 512 > length)


def test_no_context_beyond_the_checkpoint_is_proposed() -> None:
    assert _view(QWEN25, "0.13.0", tokens=400_000).value("plan.max_len_for_prompt") is None


def test_frames_are_cut_to_what_the_encoder_cache_holds() -> None:
    command = QWEN25 + """ --mm-processor-kwargs.max_pixels 602112 --media-io-kwargs '{"video":{"num_frames":256}}'"""
    view = _view(f"{command} --max-num-batched-tokens 8192", "0.11.0")
    asked, cache = view.integer("plan.video_tokens_asked"), view.integer("plan.encoder_cache_tokens")
    kwargs = _json(view, "plan.fewer_frames_kwargs")
    assert asked == 128 * 768
    assert cache == 8192
    assert isinstance(kwargs, dict)
    assert kwargs["video"]["num_frames"] // 2 * 768 <= cache


def test_few_frames_are_not_cut_further() -> None:
    command = QWEN25 + """ --mm-processor-kwargs.max_pixels 602112 --media-io-kwargs '{"video":{"num_frames":8}}'"""
    assert _view(f"{command} --max-num-batched-tokens 8192", "0.11.0").value("plan.fewer_frames_kwargs") is None


# --- text or picture -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "verdict"),
    [
        ({"length": 32768, "tokens": 411_746}, True),
        ({"length": 32768, "tokens": 35_096}, False),
        ({"length": 4096, "tokens": 60_000}, False),
        ({"length": 16384, "characters": 2_214_008}, True),
        ({"length": 131072, "characters": 700_000}, False),
        ({"tokens": 500_000}, None),
    ],
)
def test_base64_is_told_from_long_text(match: dict[str, object], verdict: bool | None) -> None:
    assert _view(QWEN25, "0.13.0", **match).value("derived.text_is_base64") is verdict


def _picture(command: str, *sizes: str) -> View:
    listed = ", ".join(f"<PIL.Image.Image image mode=RGB size={size} at 0x7F>" for size in sizes)
    return _view(command, "0.8.5", images=f"'images': [{listed}]}} with kwargs={{}}")


def test_the_picture_at_fault_is_found_among_others() -> None:
    small = _picture(QWEN25, "800x600", "120x12")
    assert (small.text("derived.refused_picture"), small.text("derived.refused_size")) == ("small", "120x12")
    thin = _picture(QWEN25, "800x600", "30x9000")
    assert (thin.text("derived.refused_picture"), thin.text("derived.refused_size")) == ("thin", "30x9000")
    assert _picture(QWEN25, "28x28").text("derived.refused_picture") == "other"
    assert _picture(QWEN3, "640x30").text("derived.refused_picture") == "small"
    assert _view(QWEN25, "0.8.5", images="'images': []").value("derived.refused_picture") is None


# --- placeholders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "version", "tokens", "places", "cause"),
    [
        (QWEN25, "0.8.2", 702, 703, "generated"),
        (QWEN25, "0.13.0", 702, 703, "version"),
        (QWEN25, "0.8.2", 75, 147, "prompt"),
        (QWEN25, "0.8.2", 147, 75, "prompt"),
        ("vllm serve /models/some-ocr", "0.9.1", 1580, 1581, "version"),
        (f"{QWEN25} --pipeline-parallel-size 2", "0.9.2", 702, 703, "pipeline"),
    ],
)
def test_cause_of_a_placeholder_mismatch(command: str, version: str, tokens: int, places: int, cause: str) -> None:
    view = _view(command, version, tokens=tokens, places=places)
    assert view.text("derived.placeholder_cause") == cause
    assert view.integer("derived.placeholder_excess") == places - tokens


def test_an_old_transformers_explains_one_place_too_many() -> None:
    view = _view(QWEN25, "0.8.2", tokens=702, places=703).over({"version.transformers": Known("4.51.3")})
    assert view.text("derived.placeholder_cause") == "version"


# --- adapters, folders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "accepted"), [(8, 8), (48, 64), (300, 320), (1024, None)])
def test_rank_of_an_adapter(rank: int, accepted: int | None) -> None:
    assert _view(QWEN25, "0.13.0", rank=rank).value("plan.lora_rank") == accepted


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("/data/b/shop/1.jpg", "/data/b/shop"),
        ("file:///srv/pics/a.png", "/srv/pics"),
        ("/a.png", None),
        ("a.png", None),
    ],
)
def test_folder_of_a_local_file(file: str, folder: str | None) -> None:
    assert _view(QWEN25, "0.13.0", file=file).value("derived.media_folder") == folder


def test_without_launch_and_model_nothing_is_made_up() -> None:
    view = _view(None, None)
    names = ("plan.tokens_per_picture", "plan.cap_as_size_kwargs", "plan.halved_cap_kwargs", "plan.video_tokens_asked",
             "derived.video_switched_off", "derived.frames_in_processor_kwargs", "derived.small_prefill_for_video",
             "derived.placeholder_cause", "derived.refused_size", "plan.cap_kwargs_for_cache")  # fmt: skip
    assert {name: view.value(name) for name in names} == dict.fromkeys(names)
