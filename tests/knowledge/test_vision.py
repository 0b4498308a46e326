"""Visual tokens against what real processors and a real server counted, and the arithmetic of caps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core import vision
from qvl_doctor.core.model import ModelSpec
from qvl_doctor.core.vision import MediaRefusedError, Pixels
from qvl_doctor.sources.tables import model_spec, model_table

_SERVED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "served_tokens.json").read_text())
_FAMILIES = model_table().families


def _spec(name: str) -> ModelSpec:
    spec = model_spec(name)
    assert spec is not None
    return spec


@pytest.mark.parametrize("row", _SERVED["rows"], ids=lambda row: f"{row[0]}-{row[1]}x{row[2]}")
def test_tokens_are_those_of_the_server(row: list[Any]) -> None:
    family, width, height, expected, served, grid = row
    if expected is None:
        with pytest.raises(MediaRefusedError, match="absolute aspect ratio must be smaller than 200"):
            vision.image_size(_FAMILIES[family], width, height)
        return
    size = vision.image_size(_FAMILIES[family], width, height)
    assert size is not None
    assert size.tokens == expected == served
    if grid is not None:
        assert list(size.grid) == grid


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    # seen on one H200 with max_pixels 1003520 on Qwen2.5-VL-7B (prompt tokens less text and the two markers)
    [(1024, 1024, 1225), (1280, 720, 1196), (4000, 3000, 1230)],
)
def test_tokens_under_a_cap(width: int, height: int, tokens: int) -> None:
    spec = _spec("Qwen/Qwen2.5-VL-7B-Instruct")
    limits = vision.cap_in_force({"max_pixels": 1003520}, spec)
    size = vision.image_size(spec, width, height, limits)
    assert size is not None
    assert size.tokens == tokens


def test_videos_count_pairs_of_frames() -> None:
    # Qwen2.5-VL limits each frame: 1280x720 under 490000 pixels is 924x504, 594 tokens a pair
    second = vision.video_size(_spec("Qwen2.5-VL-7B"), 9, 1280, 720, Pixels(3136, 490000))
    assert second is not None
    assert (second.width, second.height, second.grid[0], second.tokens) == (924, 504, 5, 5 * 594)
    # Qwen3-VL limits the whole: more frames, smaller frames
    short = vision.video_size(_spec("Qwen3-VL-8B"), 8, 1920, 1080)
    long = vision.video_size(_spec("Qwen3-VL-8B"), 512, 1920, 1080)
    assert short is not None
    assert long is not None
    assert short.height > long.height
    assert long.tokens * 1024 * 2 <= 25165824


@settings(max_examples=150, deadline=None)
@given(
    width=st.integers(1, 20000),
    height=st.integers(1, 20000),
    maximum=st.integers(100_000, 20_000_000),
    name=st.sampled_from(["Qwen2-VL-7B", "Qwen3-VL-8B"]),
)
def test_resized_pictures_stay_in_their_limits(width: int, height: int, maximum: int, name: str) -> None:
    spec = _spec(name)
    limits = Pixels(spec.image_min_pixels or 0, max(maximum, 2 * (spec.image_min_pixels or 0)))
    if max(width, height) / min(width, height) > 200:
        with pytest.raises(MediaRefusedError):
            vision.image_size(spec, width, height, limits)
        return
    size = vision.image_size(spec, width, height, limits)
    turned = vision.image_size(spec, height, width, limits)
    assert size is not None
    assert turned is not None
    factor = 28 if spec.patch_size == 14 else 32
    assert size.width % factor == size.height % factor == 0
    assert size.tokens == turned.tokens
    if min(size.width, size.height) > factor:  # a side never falls below one token: thin pictures may pass the limit
        assert size.width * size.height <= limits.maximum
        assert size.tokens <= vision.tokens_at_cap(spec, limits.maximum)


def test_small_sides_were_refused_by_older_processors() -> None:
    spec = _spec("Qwen2-VL-7B")
    with pytest.raises(MediaRefusedError, match="must be larger than factor:28"):
        vision.image_size(spec, 27, 400, refuse_small=True)
    with pytest.raises(MediaRefusedError, match="at least one pixel"):
        vision.image_size(spec, 0, 400)


def test_caps_are_spelled_as_the_family_reads_them() -> None:
    second, third = _spec("Qwen2.5-VL-7B"), _spec("Qwen3-VL-8B")
    assert vision.capped_kwargs({}, second, 1003520) == {"max_pixels": 1003520}
    assert vision.capped_kwargs({"fps": 1, "max_pixels": 9}, second, 1003520) == {"fps": 1, "max_pixels": 1003520}
    assert vision.capped_kwargs({"fps": 1, "max_pixels": 5_000_000}, third, 1048576) == {
        "fps": 1,
        "size": {"shortest_edge": 65536, "longest_edge": 1048576},
    }
    assert vision.capped_kwargs({"size": {"shortest_edge": 4096}}, third, 1048576) == {
        "size": {"shortest_edge": 4096, "longest_edge": 1048576}
    }


@pytest.mark.parametrize("name", ["Qwen2-VL-2B", "Qwen2.5-VL-7B", "Qwen3-VL-8B", "Qwen3.5-27B"])
def test_a_written_cap_is_in_force_and_stable(name: str) -> None:
    spec = _spec(name)
    cap = vision.default_cap_pixels(spec)
    once = vision.capped_kwargs({"max_pixels": 7_000_000}, spec, cap)
    limits = vision.cap_in_force(once, spec)
    assert limits is not None
    assert limits.maximum == cap
    assert vision.capped_kwargs(once, spec, cap) == once
    assert vision.tokens_at_cap(spec, cap) == (1280 if spec.patch_size == 14 else 1024)
