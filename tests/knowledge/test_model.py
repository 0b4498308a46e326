"""Models by name, by path and by config.json; parameter totals against the published checkpoints."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor import resources
from qvl_doctor.core import model
from qvl_doctor.sources.tables import model_spec, model_table

_PUBLISHED = [
    row for row in tomllib.loads(resources.data_text("models.toml"))["model"] if "published_parameters" in row
]


@pytest.mark.parametrize("row", _PUBLISHED, ids=lambda row: row["name"])
def test_parameters_are_those_of_the_checkpoint(row: dict[str, Any]) -> None:
    spec = model_spec(row["name"])
    assert spec is not None
    assert spec.parameters == row["published_parameters"]


def test_ten_checkpoints_were_counted() -> None:
    assert len(_PUBLISHED) == 10


@pytest.mark.parametrize(
    ("name", "family", "size", "layers"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl", "7b", 28),
        ("/models/Qwen2.5-VL-7B-Instruct/", "qwen2_5_vl", "7b", 28),
        ("/models/qwen3-vl-4b-ocr-v2/", "qwen3_vl", "4b", 36),
        ("/data/qwen2_5_vl_7b_sft", "qwen2_5_vl", "7b", 28),
        ("qwen25vl-7b", "qwen2_5_vl", "7b", 28),
        ("/mnt/qwen2-vl/Qwen2.5-VL-3B-Instruct-AWQ", "qwen2_5_vl", "3b", 36),
        ("Qwen/QVQ-72B-Preview", "qwen2_vl", "qvq-72b", 80),
        ("Qwen3-VL-235B-A22B-Thinking-FP8", "qwen3_vl", "235b-a22b", 94),
        ("Qwen3-VL-30B", "qwen3_vl", "30b-a3b", 48),
        ("Qwen/Qwen2.5-Omni-7B", "qwen2_5_omni", "7b", 28),
        ("Qwen/Qwen3-Omni-30B-A3B-Instruct", "qwen3_omni", "30b-a3b", 48),
        ("Qwen/Qwen3.5-27B", "qwen3_5", "27b", 64),
        ("Qwen3.8-27B-FP8", "qwen3_5", "27b", None),
        ("Qwen2-VL", "qwen2_vl", None, None),
    ],
)
def test_names_and_paths(name: str, family: str, size: str | None, layers: int | None) -> None:
    spec = model_spec(name)
    assert spec is not None
    assert (spec.family, spec.size, spec.layers) == (family, size, layers)


@pytest.mark.parametrize(
    "name", ["", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B-Instruct", "/models/"]
)
def test_other_models_are_not_guessed(name: str) -> None:
    assert model_spec(name) is None


@pytest.mark.parametrize(
    ("name", "method", "bits"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", None, None),
        ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", "awq", 4),
        ("Qwen2-VL-72B-Instruct-GPTQ-Int4", "gptq", 4),
        ("Qwen2-VL-7B-Instruct-GPTQ-Int8", "gptq", 8),
        ("Qwen/Qwen3-VL-8B-Instruct-FP8", "fp8", 8),
        ("org/Qwen2.5-VL-72B-Instruct-quantized.w4a16", "compressed-tensors", 4),
        ("org/Qwen2.5-VL-72B-Instruct-quantized.w8a8", "compressed-tensors", 8),
        ("org/Qwen3-VL-32B-Instruct-NVFP4", "modelopt_fp4", 4),
        ("unsloth/Qwen2.5-VL-7B-Instruct-unsloth-bnb-4bit", "bitsandbytes", 4),
        ("Qwen3-VL-8B-Instruct-Q4_K_M.gguf", "gguf", 4.85),
    ],
)
def test_quantization_in_the_name(name: str, method: str | None, bits: float | None) -> None:
    spec = model_spec(name)
    assert spec is not None
    found = spec.quantization
    assert (None if found is None else found.method, None if found is None else found.bits) == (method, bits)


def _config_of(spec: model.ModelSpec) -> dict[str, Any]:
    """A config.json in the layout of the family, out of the table's numbers."""
    text = {
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.attention_heads,
        "num_key_value_heads": spec.key_value_heads,
        "intermediate_size": spec.intermediate_size,
        "vocab_size": spec.vocabulary,
        "max_position_embeddings": spec.max_position_embeddings,
        "tie_word_embeddings": spec.tied,
    }
    tower = spec.vision
    assert tower is not None
    vision: dict[str, Any] = {"depth": tower.depth, "num_heads": tower.heads}
    if spec.family == "qwen2_vl":
        vision |= {"embed_dim": tower.hidden, "mlp_ratio": 4, "hidden_size": spec.hidden_size}
    else:
        vision |= {"hidden_size": tower.hidden, "intermediate_size": tower.intermediate}
    if spec.family != "qwen3_vl":
        return {"model_type": spec.family, **text, "vision_config": vision}
    vision |= {"num_position_embeddings": tower.position_embeddings, "deepstack_visual_indexes": [5, 11, 17]}
    text["head_dim"] = spec.head_dim
    if spec.experts:
        text |= {
            "num_experts": spec.experts,
            "num_experts_per_tok": spec.experts_per_token,
            "moe_intermediate_size": spec.moe_intermediate_size,
        }
    kind = "qwen3_vl_moe" if spec.experts else "qwen3_vl"
    return {"model_type": kind, "text_config": text, "vision_config": vision, "tie_word_embeddings": spec.tied}


@pytest.mark.parametrize("row", _PUBLISHED, ids=lambda row: row["name"])
def test_a_config_gives_the_same_numbers(row: dict[str, Any]) -> None:
    published = model_spec(row["name"])
    assert published is not None
    spec = model.model_spec_from_config(_config_of(published), model_table(), name=row["name"])
    assert spec is not None
    assert spec.basis == "config"
    assert spec.parameters == row["published_parameters"]
    assert spec.vision == published.vision


def test_quantization_in_a_config() -> None:
    base = {"model_type": "qwen2_5_vl"}
    cases: list[tuple[dict[str, Any], str, float, int]] = [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 4, 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 64}, "gptq", 8, 64),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8, 0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            "compressed-tensors",
            4,
            32,
        ),
    ]
    for quantization, method, bits, group in cases:
        spec = model.model_spec_from_config({**base, "quantization_config": quantization}, model_table())
        assert spec is not None
        assert spec.quantization == model.Quantization(method, bits, group)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_KEYS = [
    "text_config",
    "vision_config",
    "thinker_config",
    "quantization_config",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "layer_types",
    "architectures",
    "torch_dtype",
]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe", "qwen3_5", "qwen2_5_omni"]),
    st.dictionaries(st.sampled_from(_KEYS), _JSON),
)
def test_hostile_configs_never_raise(kind: str, rest: dict[str, Any]) -> None:
    spec = model.model_spec_from_config({"model_type": kind, **rest}, model_table())
    assert spec is not None
    assert spec.parameters is None or spec.parameters >= 0


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="qwen2.53-vlVLomni7b_/ awqfp8", max_size=40))
def test_names_never_raise(name: str) -> None:
    spec = model_spec(name)
    assert spec is None or spec.family in model_table().families
