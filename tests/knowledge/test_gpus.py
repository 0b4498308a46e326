"""What people write about their GPUs, and what the table says of each card."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core import gpus
from qvl_doctor.core.gpus import GIB, MIB
from qvl_doctor.sources.tables import gpu_models, parse_gpus


@pytest.mark.parametrize(
    ("text", "count", "name", "gib"),
    [
        ("RTX 3090", 1, "NVIDIA GeForce RTX 3090", 24),
        ("4x A100 80GB", 4, "NVIDIA A100-SXM4-80GB", 80),
        ("h200:2", 2, "NVIDIA H200", 140),
        ("8x RTX 4090 24GB", 8, "NVIDIA GeForce RTX 4090", 24),
        ("2 x A10", 2, "NVIDIA A10", 22),
        ("A100-SXM4-80GB x2", 2, "NVIDIA A100-SXM4-80GB", 80),
        ("1x RTX 3090 24GB under WSL2", 1, "NVIDIA GeForce RTX 3090", 24),
        ("8x A100 80GB / 8x H800 80GB", 8, "NVIDIA A100-SXM4-80GB", 80),
        ("4 of 8x RTX 4090 24GB", 4, "NVIDIA GeForce RTX 4090", 24),
        ("双卡3090", 2, "NVIDIA GeForce RTX 3090", 24),
        ("8卡H20 96GB", 8, "NVIDIA H20", 96),
        ("4张4090", 4, "NVIDIA GeForce RTX 4090", 24),
        ("T4 16GB", 1, "Tesla T4", 15),
        ("RTX4090x4", 4, "NVIDIA GeForce RTX 4090", 24),
        ("4090D*8", 8, "NVIDIA GeForce RTX 4090 D", 24),
        ("2×4090", 2, "NVIDIA GeForce RTX 4090", 24),
        ("4090 48G", 1, "NVIDIA GeForce RTX 4090", 48),
        ("RTX 4090 Laptop", 1, "NVIDIA GeForce RTX 4090 Laptop GPU", 16),
        ("7900 XTX", 1, "AMD Radeon RX 7900 XTX", 24),
        ("L40S", 1, "NVIDIA L40S", 45),
        ("4x L40 46GB (indexes 0,3,6,7)", 4, "NVIDIA L40", 45),
        ("2x A100 80GB (indexes 1 and 5)", 2, "NVIDIA A100-SXM4-80GB", 80),
        ("A100 40G x 4", 4, "NVIDIA A100-SXM4-40GB", 40),
        ("H100 NVL 94GB", 1, "NVIDIA H100 NVL", 94),
        ("H20 141GB", 1, "NVIDIA H20-3e", 140),
        ("RTX 6000 Ada", 1, "NVIDIA RTX 6000 Ada Generation", 48),
        ("RTX 6000 48GB", 1, "NVIDIA RTX 6000 Ada Generation", 48),
        ("RTX A6000", 1, "NVIDIA RTX A6000", 48),
        ("NVIDIA GH200 480GB", 1, "NVIDIA GH200 480GB", 96),
        ("0, NVIDIA L40S, 46068 MiB", 1, "NVIDIA L40S", 45),
        ("RTX 3090, 24GB each", 1, "NVIDIA GeForce RTX 3090", 24),
        ("8x H20, driver 560.35.05 (CUDA 12.6)", 8, "NVIDIA H20", 96),
        ("16GB", 1, None, 16),
        ("2x 80GB", 2, None, 80),
        ("2 nodes x 2 x 48GB, Ray", 4, None, 48),
        ("1x 40GB+", 1, None, 40),
        ("5 nodes x 8", 40, None, None),
        ("8x (NVLink, 1 TB RAM host)", 8, None, None),
        ("1 GPU (docker)", 1, None, None),
    ],
)
def test_counts_names_and_sizes(text: str, count: int, name: str | None, gib: int | None) -> None:
    cards = parse_gpus(text)
    assert len(cards) == count
    assert {card.name for card in cards} == {name}
    total = cards[0].memory_total_bytes
    assert (None if total is None else round(total / GIB)) == gib


@pytest.mark.parametrize(
    "text", ["", "not stated", "any", "CUDA 12.4", "production", "small cards", "k8s pod", "0x A100"]
)
def test_texts_without_a_card(text: str) -> None:
    assert all(card.name is not None for card in parse_gpus(text)) or parse_gpus(text) == ()
    if text != "0x A100":
        assert parse_gpus(text) == ()


def test_what_is_written_in_brackets_is_the_usable_memory() -> None:
    cards = parse_gpus("4x V100 32GB (31.74 GiB usable)")
    assert [card.memory_usable_bytes for card in cards] == [int(31.74 * GIB)] * 4
    assert parse_gpus("1x 24GB (23.69 GiB), shared with six other processes")[0].budget_base_bytes == int(23.69 * GIB)
    # a figure that cannot be the card's total is not taken for it
    assert parse_gpus("A100 80GB (3.50 GiB free)")[0].memory_usable_bytes != int(3.5 * GIB)


def test_mixed_cards_keep_their_own_memory() -> None:
    cards = parse_gpus("2x RTX 3090 + 1x A100 80GB")
    assert [round((card.memory_total_bytes or 0) / GIB) for card in cards] == [24, 24, 80]


def test_a_mig_slice_has_its_profiles_memory_and_its_cards_abilities() -> None:
    (card,) = parse_gpus("1x H100, MIG 2g.20gb")
    assert (card.mig, card.compute_capability, card.nvlink) == ("2g.20gb", 9.0, False)
    assert 19 * GIB < (card.memory_total_bytes or 0) < 20 * GIB


def test_a_size_nobody_sells_is_believed_but_marked() -> None:
    (card,) = parse_gpus("RTX 3090 48GB")
    assert (card.memory_total_bytes, card.memory_basis, card.compute_capability) == (48 * GIB, "stated", 8.6)
    assert parse_gpus("V100")[0].memory_basis == "assumed"


def test_abilities_follow_the_compute_capability() -> None:
    abilities = {
        name: (card.bf16, card.fp8, card.fp4)
        for name in ("V100", "A100", "L40S", "H20", "B200")
        for card in parse_gpus(name)
    }
    assert abilities == {
        "V100": (False, False, False),
        "A100": (True, False, False),
        "L40S": (True, True, False),
        "H20": (True, True, False),
        "B200": (True, True, True),
    }
    assert not parse_gpus("2x MI300X")[0].cuda
    assert not parse_gpus("16 NPUs, Docker")[0].cuda


def test_facts_stand_above_the_table() -> None:
    card = gpus.gpu_from_facts(
        {"name": "NVIDIA A100-SXM4-80GB", "memory_total_mib": 81920, "memory_used_mib": 5120}, gpu_models()
    )
    assert (card.memory_used_bytes, card.compute_capability, card.memory_basis) == (5120 * MIB, 8.0, "measured")
    assert card.memory_usable_bytes == int(79.15 * GIB)
    odd = gpus.gpu_from_facts(
        {"name": ["x"], "memory_total_mib": "many", "compute_capability": "nan", "memory_used_mib": -1}, gpu_models()
    )
    assert (odd.memory_total_bytes, odd.memory_used_bytes) == (None, None)


def test_every_row_is_sound() -> None:
    models = gpu_models()
    assert len({model.name for model in models}) >= 60
    for model in models:
        size = model.memory_total_bytes / GIB
        assert 0.85 * model.size_gb < size <= 1.01 * model.size_gb, model.name
        if model.memory_usable_bytes is not None:
            assert 0.94 * model.memory_total_bytes < model.memory_usable_bytes <= model.memory_total_bytes, model.name
        assert (model.compute_capability is None) == (model.vendor != "nvidia"), model.name


def test_every_card_is_found_by_its_own_names() -> None:
    for model in gpu_models():
        for text in (f"2x {model.name}", f"{model.aliases[0]} {model.size_gb}GB"):
            names = {card.name for card in parse_gpus(text)}
            assert names, text
        assert {card.name for card in parse_gpus(model.name)} == {model.name}


def test_estimates_of_the_usable_part_are_near_the_known_ones() -> None:
    for model in gpu_models():
        if model.memory_usable_bytes is not None and model.vendor == "nvidia" and model.memory_basis == "driver":
            error = gpus.usable_estimate(model.memory_total_bytes) - model.memory_usable_bytes
            assert abs(error) < 0.04 * model.memory_total_bytes, model.name


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="0123456789xX*:., gGbBiI/()h2aA卡张-", max_size=60))
def test_never_raises(text: str) -> None:
    assert len(parse_gpus(text)) <= 1024
