"""The planner against starts of a real vLLM on an H200, and the inequalities that must hold for any input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from qvl_doctor.core import memory, profile_run
from qvl_doctor.core.memory import Measured, Request
from qvl_doctor.core.model import Quantization
from qvl_doctor.core.profile_run import GIB, Batch, Release
from qvl_doctor.core.records import replace
from qvl_doctor.core.weights import Sharding, weights_bytes
from qvl_doctor.sources.tables import model_spec

_RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "h200_starts.json").read_text())
_STARTS: list[dict[str, Any]] = _RECORDED["starts"]


def _spec(name: str) -> Any:
    spec = model_spec(name)
    assert spec is not None
    return spec


def _request(start: dict[str, Any]) -> Request:
    batch = Batch(
        max_model_len=start["max_model_len"],
        max_num_batched_tokens=start["max_num_batched_tokens"],
        max_num_seqs=start["max_num_seqs"],
        image_limit=start["image_limit"],
        video_limit=start["video_limit"],
        image_max_pixels=start["image_max_pixels"],
        eager=start["eager"],
    )
    return Request(
        spec=_spec(start["model"]),
        release=Release(Version("0.25.1"), "V1", start["runner"]),
        batch=batch,
        total_bytes=int(_RECORDED["total_gib"] * GIB),
        utilization=start["utilization"],
        kv_element_bytes=start["kv_element_bytes"],
        skip_mm_profiling=start["skip_mm_profiling"],
    )


def _small(name: str = "Qwen/Qwen2.5-VL-7B-Instruct", version: str = "0.11.0", **changes: Any) -> Request:
    """A 24 GB card with the defaults of a small one."""
    request = Request(_spec(name), Release(Version(version)), Batch(16384, 2048, 256), int(23.57 * GIB), 0.9)
    return replace(request, **changes)


@pytest.mark.parametrize("start", _STARTS, ids=lambda start: start["name"])
def test_recorded_starts(start: dict[str, Any]) -> None:
    planned = memory.plan(_request(start))
    assert planned is not None
    printed = start["printed"]
    assert planned.weights.bytes / GIB == pytest.approx(printed["weights_gib"], rel=0.01)
    if "torch_peak_gib" in printed:
        assert planned.activation_peak.bytes / GIB == pytest.approx(printed["torch_peak_gib"], abs=0.05)
    if "available_kv_gib" in printed:
        assert planned.kv_cache.bytes / GIB == pytest.approx(printed["available_kv_gib"], abs=0.15)
    if "kv_tokens" in printed:
        assert planned.kv_tokens == pytest.approx(printed["kv_tokens"], rel=0.005)


def test_the_recording_has_both_runners_and_six_models() -> None:
    assert {start["runner"] for start in _STARTS} == {"V1", "V2"}
    assert len({start["model"] for start in _STARTS}) >= 6


@pytest.mark.parametrize(
    ("name", "gib"),
    # "Model loading took" of further starts of the same series (max_num_batched_tokens 8192)
    [
        ("Qwen2.5-VL-32B", 62.44),
        ("Qwen2-VL-2B", 4.26),
        ("Qwen3-VL-2B", 4.31),
        ("Qwen3-VL-4B", 8.69),
        ("Qwen2.5-VL-7B-Instruct-AWQ", 6.76),
    ],
)
def test_weights_of_further_models(name: str, gib: float) -> None:
    found = weights_bytes(_spec(name), max_num_batched_tokens=8192)
    assert found is not None
    assert found.bytes / GIB == pytest.approx(gib, rel=0.01)
    assert found.low < gib * GIB < found.high


def test_weights_without_a_tower_and_quantized_at_load() -> None:
    spec = _spec("Qwen2.5-VL-7B-Instruct")
    text_only = weights_bytes(spec, vision=False)
    online = weights_bytes(spec, quantization=Quantization("fp8", 8, vision=True))
    assert text_only is not None
    assert online is not None
    assert text_only.bytes / GIB == pytest.approx(14.40, abs=0.05)
    assert online.low / GIB < 8.97 < online.high / GIB


def test_kv_bytes_stop_falling_where_heads_are_replicated() -> None:
    spec = _spec("Qwen2.5-VL-72B-Instruct")
    per_token = [memory.kv_bytes_per_token(spec, Sharding(tensor=size)) for size in (1, 8, 16)]
    assert per_token == [327680, 40960, 40960]
    assert memory.kv_bytes_per_token(_spec("Qwen3-VL-30B-A3B"), Sharding()) == 98304
    assert memory.kv_bytes_per_token(_spec("Qwen3-VL-8B"), Sharding(pipeline=2), 1) == 36864
    assert memory.kv_bytes_per_token(_spec("Qwen3.8-27B"), Sharding()) is None


@pytest.mark.parametrize(
    ("version", "tokens"),
    # what a profile of Qwen2.5-VL with max_model_len 128000 and one picture announces and really encodes
    [("0.8.5", (98304, 16384)), ("0.10.0", (98304, 98304)), ("0.10.2", (114688, 16384)), ("0.11.0", (114688, 114688))],
)
def test_the_profiled_video_by_release(version: str, tokens: tuple[int, int]) -> None:
    batch = Batch(128000, 8192, 256, image_limit=1)
    media = profile_run.profiled_media(_spec("Qwen2.5-VL-7B"), batch, Release(Version(version)))
    assert media is not None
    assert media.modality == "video"
    assert (media.budget_tokens, media.run_tokens) == tokens


def test_encoder_peaks_by_release() -> None:
    spec = _spec("Qwen2.5-VL-7B")
    peaks = {
        version: profile_run.encoder_peak(spec, 16384, Release(Version(version))) / GIB
        for version in ("0.8.5", "0.10.2", "0.11.0", "0.12.0", "0.25.1")
    }
    assert peaks["0.11.0"] == pytest.approx(3.3, abs=0.1)
    assert peaks["0.10.2"] == pytest.approx(2.2, abs=0.1)
    assert peaks["0.25.1"] == pytest.approx(1.92, abs=0.02)
    assert peaks["0.8.5"] > peaks["0.10.2"] > peaks["0.12.0"] > peaks["0.25.1"]


def test_a_v2_runner_that_does_not_profile_leaves_the_encoder_outside() -> None:
    start = next(start for start in _STARTS if start["name"] == "7b_v2_eager")
    planned = memory.plan(_request(start))
    assert planned is not None
    assert planned.encoder_peak.bytes == 0
    assert planned.outside.bytes / GIB == pytest.approx(1.92, abs=0.05)
    newer = memory.plan(replace(_request(start), release=Release(Version("0.27.1"), "V1", "V2")))
    assert newer is not None
    assert newer.encoder_peak.bytes > 0
    assert newer.outside.bytes == 0


def test_a_log_replaces_what_is_modelled() -> None:
    planned = memory.plan(
        _small(), Measured(weights_gib=16.2, torch_peak_gib=2.5, kv_available_gib=1.25, kv_tokens=23408)
    )
    assert planned is not None
    assert (planned.weights.basis, planned.activation_peak.basis, planned.kv_cache.basis) == ("measured",) * 3
    assert (planned.kv_tokens, planned.weights.bytes) == (23408, int(16.2 * GIB))
    assert planned.graphs.basis == "exact"


def test_whether_weights_fit() -> None:
    def fits(name: str, cards: int) -> bool:
        planned = memory.plan(_small(name, sharding=Sharding(tensor=cards)))
        assert planned is not None
        return planned.weights_fit

    assert fits("Qwen2.5-VL-7B", 1)
    assert not fits("Qwen2.5-VL-32B", 2)
    assert fits("Qwen2.5-VL-32B", 4)
    assert fits("Qwen2.5-VL-32B-Instruct-AWQ", 1)
    assert not fits("Qwen2.5-VL-72B-Instruct-AWQ", 1)


def test_needed_utilization_is_the_smallest_that_holds_the_context() -> None:
    request = _small(batch=Batch(16384, 2048, 256, image_limit=1, video_limit=0, eager=True))
    needed = memory.needed_utilization(request, 16384)
    assert needed is not None
    at = memory.plan(replace(request, utilization=needed))
    below = memory.plan(replace(request, utilization=needed - 0.01))
    assert at is not None
    assert below is not None
    assert at.kv_tokens >= 16384 > below.kv_tokens
    assert memory.needed_utilization(request, 10_000_000) is None


def test_v0_carries_every_allowed_item_at_once() -> None:
    def peak(limit: int) -> int:
        batch = Batch(32768, 32768, 256, image_limit=limit, video_limit=0)
        planned = memory.plan(_small(version="0.7.2", batch=batch, release=Release(Version("0.7.2"), "V0")))
        assert planned is not None
        return planned.encoder_peak.bytes

    assert peak(0) == 0
    assert peak(9) > 4 * peak(2) > 4 * GIB


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["Qwen2-VL-7B", "Qwen2.5-VL-32B", "Qwen3-VL-8B", "Qwen3-VL-30B-A3B", "Qwen2.5-VL-7B-AWQ"]),
    version=st.sampled_from(["0.7.3", "0.8.5", "0.10.2", "0.11.0", "0.14.1", "0.19.1", "0.25.1", "0.33.0"]),
    runner=st.sampled_from(["V1", "V2"]),
    length=st.integers(256, 262144),
    tokens=st.integers(128, 32768),
    seqs=st.integers(1, 1024),
    tensor=st.sampled_from([1, 2, 4, 8]),
)
def test_more_of_anything_never_leaves_more_cache(
    name: str, version: str, runner: Any, length: int, tokens: int, seqs: int, tensor: int
) -> None:
    release = Release(Version(version), "V1", runner)
    request = _small(name, release=release, batch=Batch(length, tokens, seqs), sharding=Sharding(tensor=tensor))
    base = memory.plan(request)
    assert base is not None
    assert base.kv_tokens >= 0
    for batch in (
        replace(request.batch, max_num_seqs=seqs * 2, max_num_batched_tokens=tokens),
        replace(request.batch, eager=True),
        replace(request.batch, image_limit=0, video_limit=0),
    ):
        other = memory.plan(replace(request, batch=batch))
        assert other is not None
        if batch.max_num_seqs > seqs:
            assert other.kv_cache.bytes <= base.kv_cache.bytes
        else:
            assert other.kv_cache.bytes >= base.kv_cache.bytes
    more = memory.plan(replace(request, utilization=0.95))
    assert more is not None
    assert more.kv_cache.bytes > base.kv_cache.bytes
