"""Derived facts of memory and media, over a small view: a launch command, a card, a release, some log figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import REGISTRY, Known, Objects, View
from qvl_doctor.core.host import HostFacts
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.sources.tables import model_spec, parse_gpus
from qvl_doctor.sources.vllm_facts import knowledge

load_all()


def _view(
    command: str = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct",
    *,
    gpu: str | None = "RTX 3090",
    version: str = "0.11.0",
    model: str | None = None,
    **facts: Any,
) -> View:
    """Facts are given with "__" for the dot: match__est_len=4096."""
    known = knowledge(version)
    launch = parse_text(command, grammar=known).commands[0]
    gpus = parse_gpus(gpu) if gpu else ()
    observed = Observed(launch=launch, host=HostFacts(), gpus=gpus, gpu_text=gpu, version=version)
    more = {name.replace("__", "."): Known(value) for name, value in facts.items()}
    spec = model_spec(model or launch.model or "")
    return View({**base_facts(observed), **more}, Objects(launch, None, known, spec, gpus))


def _serve(*arguments: str, model: str = "Qwen/Qwen2.5-VL-7B-Instruct") -> str:
    return " ".join(("vllm serve", model, *arguments))


# --- memory --------------------------------------------------------------------------------------------------------


def test_budget_terms_add_up() -> None:
    view = _view(_serve("--max-model-len 16384", "--enforce-eager"))
    requested, weights = view.number("plan.requested_gib"), view.number("plan.weights_gib_per_gpu")
    peak, cache = view.number("plan.activation_peak_gib"), view.number("plan.kv_gib")
    assert requested == pytest.approx(0.9 * 23.56, abs=0.01)
    assert weights == pytest.approx(15.67, abs=0.1)
    assert peak is not None
    assert cache is not None
    assert requested is not None
    assert cache == pytest.approx(requested - 15.67 - peak - 0.23, abs=0.1)
    assert view.integer("plan.kv_bytes_per_token") == 57344


def test_log_figures_stand_above_the_model() -> None:
    view = _view(log__weights_gib=16.5, log__kv_tokens=23408, log__total_gib=23.69)
    assert view.number("plan.weights_gib_per_gpu") == 16.5
    assert view.integer("plan.kv_tokens") == 23408
    assert view.number("plan.gpu_total_gib") == 23.69


@pytest.mark.parametrize(
    ("command", "gpu", "verdict"),
    [
        (_serve(), "RTX 3090", "fine"),
        (_serve("--gpu-memory-utilization 0.6"), "RTX 3090", "over-budget"),
        (_serve("--gpu-memory-utilization 0.8"), "RTX 3090", "low-budget"),
        (_serve(model="Qwen/Qwen2.5-VL-72B-Instruct"), "A100 80GB", "no"),
        (_serve("-tp 4", model="Qwen/Qwen2.5-VL-72B-Instruct"), "4x A100 80GB", "fine"),
        (_serve("-tp 8", model="Qwen/Qwen3-VL-235B-A22B-Instruct"), "8x H20 96GB", "fine"),
        (_serve(model="Qwen/Qwen2.5-VL-7B-Instruct"), None, None),
        (_serve(model="org/some-model"), "RTX 3090", None),
    ],
)
def test_whether_weights_fit(command: str, gpu: str | None, verdict: str | None) -> None:
    assert _view(command, gpu=gpu).text("derived.weights_fit") == verdict


def test_memory_left_for_the_cache_proves_that_weights_fit() -> None:
    command = _serve("--gpu-memory-utilization 0.6", model="Qwen/Qwen2.5-VL-32B-Instruct")
    assert _view(command, gpu="A100 80GB").text("derived.weights_fit") == "over-budget"
    assert _view(command, gpu="A100 80GB", log__kv_available_gib=-3.2).text("derived.weights_fit") == "over-budget"
    left = _view(command, gpu="A100 80GB", log__kv_available_gib=5.1)
    assert left.text("derived.weights_fit") == "low-budget"
    assert left.flag("derived.encoder_over_card") is False


@pytest.mark.parametrize(
    ("weights", "left", "sequences", "little"),
    [(20.1, 0.5, 1.1, True), (20.1, 0.5, 4.0, False), (20.1, 10.3, 1.2, False), (15.7, -1.0, 1.0, False)],
)
def test_hardly_any_cache_beside_the_weights(weights: float, left: float, sequences: float, little: bool) -> None:
    view = _view(log__weights_gib=weights, log__kv_available_gib=left, log__max_concurrency=sequences)
    assert view.flag("derived.little_kv") is little
    assert _view().flag("derived.little_kv") is False


def test_max_model_len_prefers_what_vllm_says() -> None:
    assert _view(match__est_len="70,885").integer("plan.max_model_len") == 70880
    assert _view(match__need="1.75", match__have="1.20", match__len="32768").integer("plan.max_model_len") == 22448
    assert _view(log__kv_tokens=24327).integer("plan.max_model_len") == 24320
    assert _view(match__est_len=300).integer("plan.max_model_len") is None
    assert _view(match__est_len=999_999).integer("plan.max_model_len") == 128000
    planned = _view(_serve("--max-model-len 16384", "--enforce-eager")).integer("plan.max_model_len")
    assert planned is not None
    assert planned % 16 == 0


def test_fractions_from_free_memory() -> None:
    assert _view(match__free="19.20", match__total="23.57").number("plan.gpu_memory_utilization_free") == 0.80
    assert _view(match__free="0.49", match__total="79.32").number("plan.gpu_memory_utilization_free") is None
    others = _view(derived__oom_others_gib=8.6, log__oom__total_gib=23.69)
    assert others.number("plan.gpu_memory_utilization_free") == 0.62
    assert _view(gpu=None).number("plan.gpu_memory_utilization_free") is None


def test_smallest_fraction_holds_one_context() -> None:
    command = _serve("--max-model-len 8192", "--enforce-eager", '--limit-mm-per-prompt \'{"image":1,"video":0}\'')
    needed = _view(command).number("plan.gpu_memory_utilization_min")
    assert needed is not None
    enough = _view(f"{command} --gpu-memory-utilization {needed}").integer("plan.kv_tokens")
    short = _view(f"{command} --gpu-memory-utilization {needed - 0.01:.2f}").integer("plan.kv_tokens")
    assert enough is not None
    assert short is not None
    assert enough >= 8192 > short
    # a chosen fraction that should do by the plan, but did not: the usual one
    assert _view(f"{command} --gpu-memory-utilization 0.88").number("plan.gpu_memory_utilization_min") == 0.9
    assert _view(f"{command} --gpu-memory-utilization 0.95").number("plan.gpu_memory_utilization_min") is None
    assert _view(_serve(model="Qwen/Qwen2.5-VL-72B-Instruct")).number("plan.gpu_memory_utilization_min") is None


def test_headroom_after_an_out_of_memory() -> None:
    view = _view(
        _serve("--gpu-memory-utilization 0.95", model="Qwen/Qwen3-VL-4B-Instruct"),
        log__oom__tried_mib=232.0,
        log__oom__free_mib=154.25,
        log__oom__total_gib=23.57,
    )
    assert view.number("derived.oom_gap_gib") == 0.08
    assert view.number("plan.gpu_memory_utilization_headroom") == 0.88
    # what a runner leaves out of its budget has to stay outside: V2 of 0.25 does not profile the encoder
    default, unprofiled = _view(version="0.24.0"), _view(version="0.25.1")
    share = default.number("plan.gpu_memory_utilization_headroom")
    lower = unprofiled.number("plan.gpu_memory_utilization_headroom")
    assert share is not None
    assert lower is not None
    assert lower < share
    assert _view(_serve(), gpu="T4").number("plan.gpu_memory_utilization_headroom") is None


@pytest.mark.parametrize(
    ("model", "asked", "gpu", "valid", "copies"),
    [
        ("Qwen/Qwen2-VL-2B-Instruct", 8, "8x RTX 4090", 4, 2),  # 12 heads
        ("Qwen/Qwen2.5-VL-7B-Instruct", 8, "8x RTX 4090", 4, 2),  # 28 heads
        ("Qwen/Qwen2.5-VL-7B-Instruct", 4, "2x RTX 4090", 2, None),
        ("Qwen/Qwen2.5-VL-72B-Instruct", 8, "8x A100 80GB", 8, None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 3, None, 2, None),
        ("org/some-model", 8, "8x A100 80GB", None, None),
    ],
)
def test_valid_tensor_parallel_sizes(
    model: str, asked: int, gpu: str | None, valid: int | None, copies: int | None
) -> None:
    view = _view(_serve(f"--tensor-parallel-size {asked}", model=model), gpu=gpu)
    assert view.integer("plan.tensor_parallel_size_valid") == valid
    assert view.integer("plan.data_parallel_size_rest") == copies


def test_more_gpus_or_a_quantized_checkpoint_for_the_weights() -> None:
    large = _serve(model="Qwen/Qwen2.5-VL-72B-Instruct")
    assert _view(large, gpu="8x A100 80GB").integer("plan.tensor_parallel_size_for_weights") == 4
    assert _view(large, gpu="2x A100 80GB").integer("plan.tensor_parallel_size_for_weights") is None
    assert _view(large, gpu="A100 80GB").text("plan.quantized_model") == "Qwen/Qwen2.5-VL-72B-Instruct-AWQ"
    assert _view(large, gpu="RTX 3090").text("plan.quantized_model") is None
    thinking = _serve("-tp 4", model="Qwen/Qwen3-VL-235B-A22B-Thinking")
    assert _view(thinking, gpu="4x H20 96GB").text("plan.quantized_model") == "Qwen/Qwen3-VL-235B-A22B-Thinking-FP8"
    # V100 computes neither AWQ nor FP8
    second = _serve("-tp 4", model="Qwen/Qwen2-VL-72B-Instruct")
    assert _view(second, gpu="4x V100 32GB").text("plan.quantized_model") == "Qwen/Qwen2-VL-72B-Instruct-GPTQ-Int4"
    assert _view(_serve(model="Qwen/Qwen2.5-VL-7B-Instruct-AWQ")).text("plan.quantized_model") is None


def test_further_gpus_for_the_weights() -> None:
    large = _serve(model="Qwen/Qwen2.5-VL-32B-Instruct")
    assert _view(large).integer("plan.tensor_parallel_size_more_gpus") == 4
    assert _view(large, gpu="4x RTX 3090").integer("plan.tensor_parallel_size_more_gpus") is None  # these suffice
    assert _view(large, gpu=None).integer("plan.tensor_parallel_size_more_gpus") is None


def test_least_offload_lets_the_rest_fit() -> None:
    large = _serve(model="Qwen/Qwen2.5-VL-32B-Instruct")
    offload = _view(large, gpu="A100 40GB").integer("plan.cpu_offload_least")
    weights = _view(large, gpu="A100 40GB").number("plan.weights_gib_per_gpu")
    assert offload is not None
    assert weights is not None
    assert weights - offload < 0.9 * 0.9 * 39.5 < weights - offload + 3
    assert _view(gpu="A100 80GB").integer("plan.cpu_offload_least") == 1


def test_halves_of_a_size_that_cuts_blocks_of_an_unknown_model() -> None:
    view = _view(_serve("-tp 8", model="org/some-moe-FP8"), match__width="64", match__block="128")
    assert view.integer("plan.tensor_parallel_for_group") == 4
    absurd = _view(_serve("-tp 1000000000000", model="Qwen/Qwen2.5-VL-7B-Instruct-AWQ"))
    assert absurd.integer("plan.tensor_parallel_for_group") is None  # and at once
    odd = _view(_serve("-tp 4", model="org/some-awq"), match__width="7392", match__group="128")
    assert odd.integer("plan.tensor_parallel_for_group") is None


def test_fewer_sequences() -> None:
    # 0.8.3 dry-runs the sampler with 1024 rows on any card
    assert _view(version="0.8.3").integer("plan.max_num_seqs_sampler") == 256
    assert _view(version="0.8.3", gpu=None).integer("plan.max_num_seqs_sampler") == 64
    assert _view(_serve("--max-num-seqs 8")).integer("plan.max_num_seqs_sampler") is None
    assert _view(match__blocks="600").integer("plan.max_num_seqs_mamba") == 512
    assert _view(match__blocks="37").integer("plan.max_num_seqs_mamba") == 32
    assert _view(match__blocks="3").integer("plan.max_num_seqs_mamba") == 3


# --- media ---------------------------------------------------------------------------------------------------------


def test_tokens_of_pictures() -> None:
    plain = _view()
    capped = _view(_serve("--mm-processor-kwargs '{\"max_pixels\":1003520}'"))
    assert plain.integer("plan.tokens_per_picture") == 16384
    assert capped.integer("plan.tokens_per_picture") == 1280
    assert (plain.flag("derived.pixels_capped"), capped.flag("derived.pixels_capped")) == (False, True)
    nine = _view(_serve('--limit-mm-per-prompt \'{"image":9,"video":0}\'', "--max-model-len 32768"))
    assert nine.integer("plan.tokens_of_pictures") == 147456
    assert plain.integer("plan.tokens_of_pictures") == 16384
    unknown = _serve("--mm-processor-kwargs '{\"max_pixels\":1003520}'", model="org/some-model")
    assert _view(unknown).flag("derived.pixels_capped") is True


def test_encoder_cache_is_printed_or_planned() -> None:
    small = _serve("--max-model-len 8192", model="Qwen/Qwen3-VL-8B-Instruct")
    assert _view(small, version="0.16.0").integer("plan.encoder_cache_tokens") == 16384
    printed = _view(small, version="0.16.0", log__encoder_budget_tokens=98304)
    assert printed.integer("plan.encoder_cache_tokens") == 98304
    assert _view(small, version="0.16.0", match__cache="5120").integer("plan.encoder_cache_tokens") == 5120


@pytest.mark.parametrize(
    ("command", "version", "expected"),
    [
        (_serve(), "0.11.0", {"max_pixels": 1003520}),
        (_serve("--mm-processor-kwargs '{\"fps\":1}'"), "0.11.0", {"fps": 1, "max_pixels": 1003520}),
        (_serve("--mm-processor-kwargs '{\"max_pixels\":1003520}'"), "0.11.0", None),
        (_serve("--mm-processor-kwargs '{\"max_pixels\":602112}'"), "0.11.0", None),
        (
            _serve(model="Qwen/Qwen3-VL-8B-Instruct"),
            "0.16.0",
            {"size": {"shortest_edge": 65536, "longest_edge": 1048576}},
        ),
        # ten pictures beside 1024 tokens of text in 8192: 704 tokens each
        (
            _serve("--max-model-len 8192", "--limit-mm-per-prompt '{\"image\":10}'"),
            "0.11.0",
            {"max_pixels": 704 * 784},
        ),
        (_serve(model="org/some-model"), "0.11.0", None),
    ],
)
def test_pixel_caps(command: str, version: str, expected: dict[str, Any] | None) -> None:
    value = _view(command, version=version).text("plan.max_pixels_kwargs")
    assert (None if value is None else json.loads(value)) == expected


@pytest.mark.parametrize(
    ("given", "version", "fewer"),
    [
        ("", "0.11.0", '{"image":1,"video":0}'),
        ("", "0.7.2", "image=1,video=0"),
        ("--limit-mm-per-prompt image=10,video=1", "0.7.2", "image=2,video=0"),
        ('--limit-mm-per-prompt \'{"image":10,"video":1}\'', "0.9.1", '{"image":2,"video":0}'),
        ("--limit-mm-per-prompt.image 4", "0.11.0", '{"image":2,"video":0}'),
        ('--limit-mm-per-prompt \'{"image":1,"video":0}\'', "0.11.0", None),
        (
            '--limit-mm-per-prompt \'{"image":{"count":4,"width":640,"height":480}}\'',
            "0.12.0",
            '{"image":{"count":2,"width":640,"height":480},"video":0}',
        ),
    ],
)
def test_fewer_items(given: str, version: str, fewer: str | None) -> None:
    assert _view(_serve(given), version=version).text("plan.limit_mm_fewer") == fewer


def test_limits_that_let_a_request_through() -> None:
    needed = "plan.limit_mm_for_request"
    assert _view(match__passed=3, match__modality="image").text(needed) == '{"image":3}'
    assert _view(version="0.7.2", match__limit="1", match__modality="image").text(needed) == "image=2"
    kept = _view(_serve('--limit-mm-per-prompt \'{"image":1,"video":0}\''), match__passed=3, match__modality="image")
    assert kept.text(needed) == '{"image":3,"video":0}'
    enough = _view(_serve("--limit-mm-per-prompt '{\"image\":5}'"), match__passed=3, match__modality="image")
    assert enough.text(needed) is None
    assert _view(match__passed=3, match__modality="; rm -rf").text(needed) is None


def test_room_for_a_prompt() -> None:
    short = _serve("--max-model-len 4096")
    assert _view(short, match__tokens="15321").integer("plan.max_len_for_prompt") == 16384
    # no more than the KV cache of this start holds
    assert _view(short, match__tokens="15321", log__kv_tokens=15900).integer("plan.max_len_for_prompt") == 15888
    assert _view(short, match__tokens="15321", log__kv_tokens=9000).integer("plan.max_len_for_prompt") is None
    assert _view(short, match__tokens="200000").integer("plan.max_len_for_prompt") is None


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("AAAAGGZ0eXBoZWljAAAAAG1pZjE", "HEIC"),
        ("JVBERi0xLjQK", "a PDF document"),
        ("PCFET0NUWVBFIGh0bWw+PGh0bWw+", "a web page (HTML)"),
        ("AAAAIGZ0eXBpc29tAAACAGlzb20", "an MP4 video"),
        ("/9j/4AAQSkZJRgABAQ", None),
        ("iVBORw0KGgoAAAANSUhEUg", None),
        ("====", None),
    ],
)
def test_a_file_shows_its_kind_in_base64(head: str, kind: str | None) -> None:
    assert _view(match__head=head).text("derived.undecodable_type") == kind


def test_names_that_were_dropped_are_written_as_the_processor_has_them() -> None:
    command = _serve('--mm-processor-kwargs \'{"max_pixel":602112,"fps":1}\'')
    assert _view(command, match__dropped="'max_pixel'").text("plan.known_kwargs") == '{"fps":1,"max_pixels":602112}'
    assert _view(command, match__dropped="'fps'").text("plan.known_kwargs") == '{"max_pixel":602112}'
    assert _view(command, match__dropped="'other'").text("plan.known_kwargs") is None


# --- all of them ---------------------------------------------------------------------------------------------------

_OURS = [
    name
    for name, entry in REGISTRY.items()
    if entry.compute.__module__.endswith(("derived.memory", "derived.media", "derived.parallel"))
]


def test_facts_are_documented() -> None:
    assert len(_OURS) >= 30
    for name in _OURS:
        entry = REGISTRY[name]
        assert entry.kind in ("int", "float", "str", "bool"), name
        assert entry.meaning, name


_INPUTS = [
    "match.est_len",
    "match.need",
    "match.have",
    "match.len",
    "match.free",
    "match.total",
    "match.blocks",
    "match.passed",
    "match.modality",
    "match.length",
    "log.kv_tokens",
    "log.total_gib",
    "log.oom.tried_mib",
    "log.oom.free_mib",
    "launch.tensor_parallel_size",
    "launch.max_num_seqs",
    "launch.max_model_len",
    "launch.gpu_memory_utilization",
    "launch.max_num_batched_tokens",
    "gpu.count",
    "launch.kv_cache_memory_bytes",
]


@settings(max_examples=60, deadline=None)
@given(
    facts=st.dictionaries(
        st.sampled_from(_INPUTS),
        st.integers(-5, 10**12)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=12)
        | st.booleans(),
    ),
    model=st.sampled_from(["Qwen2.5-VL-7B", "Qwen3-VL-30B-A3B", "Qwen3.8-27B-FP8", "Qwen3-Omni-30B-A3B", "Qwen2-VL"]),
    version=st.sampled_from(["0.7.2", "0.8.3", "0.11.0", "0.25.1", "0.33.0"]),
)
def test_odd_facts_give_a_value_or_none(facts: dict[str, Any], model: str, version: str) -> None:
    view = _view(_serve(model=model), version=version).over({name: Known(value) for name, value in facts.items()})
    for name in _OURS:
        value = view.value(name)
        assert value is None or isinstance(value, bool | int | float | str), name
        if name.startswith("plan.gpu_memory_utilization") and value is not None:
            assert 0.1 <= float(str(value)) <= 0.97
