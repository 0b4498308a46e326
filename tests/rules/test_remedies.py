"""Derived facts about free memory, shorter contexts, and splitting a model over GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import Known, Objects, View
from qvl_doctor.core.host import HostFacts
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.sources.tables import model_spec, parse_gpus
from qvl_doctor.sources.vllm_facts import knowledge

load_all()


def _view(command: str, *, gpu: str = "", version: str = "0.11.0", os: str | None = None, **facts: Any) -> View:
    """Facts are given with "__" for the dot."""
    known = knowledge(version)
    launch = parse_text(command, grammar=known).commands[0]
    gpus = parse_gpus(gpu) if gpu else ()
    observed = Observed(launch=launch, host=HostFacts(os=os), gpus=gpus, gpu_text=gpu or None, version=version)
    more = {name.replace("__", "."): Known(value) for name, value in facts.items()}
    return View({**base_facts(observed), **more}, Objects(launch, None, known, model_spec(launch.model or ""), gpus))


@pytest.mark.parametrize(
    ("free", "total", "want", "command", "os", "verdict"),
    [
        (22.9, 23.52, 23.05, "vllm serve Qwen/Qwen3-VL-2B-Instruct", None, "slightly"),
        (19.77, 22.05, 19.84, "vllm serve Qwen/Qwen3-VL-2B-Instruct", None, "slightly"),
        (22.9, 24.0, 23.05, "vllm serve Qwen/Qwen3-VL-2B-Instruct", "WSL2", "wsl"),
        (0.49, 79.32, 47.59, "vllm serve Qwen/Qwen3-VL-2B-Instruct --gpu-memory-utilization 0.6", None, "busy"),
        (40.0, 79.32, 71.4, "vllm serve Qwen/Qwen3-VL-2B-Instruct", None, "busy"),
        (40.0, 79.32, 47.59, "vllm serve Qwen/Qwen3-VL-2B-Instruct --gpu-memory-utilization 0.6", None, "shared"),
        (12.0, 79.32, 47.59, "vllm serve Qwen/Qwen3-VL-8B-Instruct --gpu-memory-utilization 0.6", None, "busy"),
    ],
)
def test_why_too_little_is_free(
    free: float, total: float, want: float, command: str, os: str | None, verdict: str
) -> None:
    view = _view(command, os=os, match__free=free, match__total=total, match__want=want)
    assert view.text("derived.free_memory") == verdict


def test_a_shorter_context_is_half_and_at_most_32768() -> None:
    view = _view("vllm serve Qwen/Qwen3-VL-8B-Instruct")
    assert view.integer("plan.half_context") == 131072
    assert view.integer("plan.shorter_context") == 32768
    assert _view("vllm serve Qwen/Qwen3-VL-8B-Instruct --max-model-len 16384").integer("plan.shorter_context") == 8192
    assert _view("vllm serve Qwen/Qwen3-VL-8B-Instruct --max-model-len 4096").integer("plan.shorter_context") is None


def test_graphs_explain_a_shortfall_up_to_their_size() -> None:
    command = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"
    within = _view(command, match__need=3.5, match__have=3.2, log__cudagraph_estimate_gib=0.46)
    beyond = _view(command, match__need=6.8, match__have=3.2, log__cudagraph_estimate_gib=0.46)
    assert within.flag("derived.short_by_graphs") is True
    assert beyond.flag("derived.short_by_graphs") is False
    named = _view(
        command, gpu="RTX 4090", match__need=3.5, match__have=3.2,
        log__gpu_memory_utilization=0.92, log__utilization_without_graphs=0.9,
    )  # fmt: skip
    assert named.flag("derived.short_by_graphs") is True
    assert _view(command, match__need=3.5, match__have=3.2).flag("derived.graphs_unstated") is True


@pytest.mark.parametrize(
    ("model", "size", "misaligned", "smaller"),
    [
        ("Qwen/Qwen3-VL-235B-A22B-Instruct-FP8", 8, True, 4),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct-FP8", 4, False, 2),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct-FP8", 4, True, 2),
        ("Qwen/Qwen3-VL-8B-Instruct-FP8", 2, False, 1),
    ],
)
def test_fp8_blocks_and_tensor_parallel(model: str, size: int, misaligned: bool, smaller: int) -> None:
    view = _view(f"vllm serve {model} --tensor-parallel-size {size}")
    assert view.flag("derived.fp8_block_misaligned") is misaligned
    assert view.integer("plan.tensor_parallel_for_group") == smaller


def test_whole_experts_are_not_cut() -> None:
    command = "vllm serve Qwen/Qwen3-VL-235B-A22B-Instruct-FP8 -tp 8 --enable-expert-parallel"
    assert _view(command).flag("derived.fp8_block_misaligned") is False


def test_only_qwens_own_72b_is_padded() -> None:
    own = _view("vllm serve Qwen/Qwen2.5-VL-72B-Instruct-AWQ --tensor-parallel-size 4")
    other = _view("vllm serve acme/Qwen2.5-VL-72B-Instruct-4bit-AWQ --tensor-parallel-size 4")
    assert own.flag("derived.group_misaligned") is False
    assert other.flag("derived.group_misaligned") is True
    assert other.text("plan.official_same_method") == "Qwen/Qwen2.5-VL-72B-Instruct-AWQ"
    assert own.text("plan.official_same_method") is None


def test_visible_gpus_bound_the_tensor_parallel_size() -> None:
    view = _view("CUDA_VISIBLE_DEVICES=2,5,7 vllm serve Qwen/Qwen2.5-VL-7B-Instruct -tp 4", match__gpus=3)
    assert view.integer("derived.visible_gpus") == 3
    assert view.integer("plan.tensor_parallel_size_valid") == 2


@pytest.mark.parametrize(
    ("command", "version", "expected"),
    [
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "0.25.1", True),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "0.27.1", False),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "0.19.1", False),
        ("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "0.25.1", False),
        ("vllm serve Qwen/Qwen3-VL-30B-A3B-Instruct", "0.25.1", False),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct --skip-mm-profiling", "0.19.1", True),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct --language-model-only", "0.25.1", False),
        ("""vllm serve Qwen/Qwen2.5-VL-7B-Instruct --limit-mm-per-prompt '{"image":0,"video":0}'""", "0.25.1", False),
    ],
)
def test_which_starts_do_not_profile_the_vision_encoder(command: str, version: str, expected: bool) -> None:
    assert _view(command, version=version).flag("derived.vision_unprofiled") is expected


@pytest.mark.parametrize(("tenant", "verdict"), [("tritonserver", "shared"), (None, "busy")])
def test_a_listed_service_of_another_kind_is_a_tenant(tenant: str | None, verdict: str) -> None:
    seen = {} if tenant is None else {"log__gpu_tenant": tenant}
    view = _view("vllm serve Qwen/Qwen3-VL-2B-Instruct", match__free=40.0, match__total=79.32, match__want=71.4, **seen)
    assert view.text("derived.free_memory") == verdict


@pytest.mark.parametrize(
    ("ran", "usage", "most", "size"), [(17, 99.4, 200, 17), (17, 60.0, 200, None), (170, 99.4, 200, None)]
)
def test_sequences_that_a_full_cache_holds(ran: int, usage: float, most: int, size: int | None) -> None:
    command = f"vllm serve Qwen/Qwen3-VL-2B-Instruct --max-num-seqs {most}"
    view = _view(command, log__stats__running_last=ran, log__stats__kv_usage_last_percent=usage)
    assert view.integer("plan.max_num_seqs_kv") == size


def test_gpus_left_over_take_copies_where_they_fit_and_layers_else() -> None:
    small = _view("vllm serve Qwen/Qwen3-VL-30B-A3B-Instruct-FP8 -tp 8", gpu="8x H100 80GB")
    assert small.integer("plan.tensor_parallel_for_group") is not None
    assert small.integer("plan.copies_for_group") == 8 // (small.integer("plan.tensor_parallel_for_group") or 1)
    unknown = _view("vllm serve acme/moe-int4 -tp 8", gpu="8x A100 40GB")
    assert unknown.integer("plan.tensor_parallel_for_group") == 4
    assert (unknown.value("plan.copies_for_group"), unknown.integer("plan.stages_for_group")) == (None, 2)
