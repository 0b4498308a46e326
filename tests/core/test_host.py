"""Facts about the host: what is not of the documented form is named, key by key."""

from __future__ import annotations

import pytest

from qvl_doctor.core.host import HostFacts, host_facts


def test_the_documented_form() -> None:
    facts, problems = host_facts(
        {
            "gpus": [{"name": "NVIDIA A100-SXM4-80GB", "memory_total_mib": 81920, "compute_capability": "8.0"}],
            "shm_bytes": 67108864,
            "container": True,
            "env": {"CUDA_VISIBLE_DEVICES": "0,1"},
            "packages": {"vllm": "0.8.5"},
        }
    )
    assert problems == ()
    assert facts.gpus[0].memory_total_bytes == 81920 << 20
    assert facts.gpus[0].compute_capability == 8.0
    assert (facts.shm_bytes, facts.container, facts.packages["vllm"]) == (67108864, True, "0.8.5")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("docker", True), ("kubernetes", True), (True, True), ("", False), ("none", False), (False, False)],
)
def test_a_container_may_be_named_by_its_kind(value: object, expected: bool) -> None:
    facts, problems = host_facts({"container": value})
    assert (facts.container, problems) == (expected, ())


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"container": 3},
        {"shm_bytes": "64M"},
        {"shm_bytes": True},
        {"shm_bytes": -1},
        {"gpus": {}},
        {"gpus": [3]},
        {"gpus": [{"compute_capability": "x"}]},
        {"env": []},
        {"driver": {}},
    ],
)
def test_what_is_of_another_form_is_named(document: object) -> None:
    facts, problems = host_facts(document)
    assert len(problems) == 1
    assert facts == HostFacts(gpus=facts.gpus)


def test_unknown_keys_are_named_and_the_rest_is_read() -> None:
    facts, problems = host_facts({"shm_bytes": 1, "colour": "red"})
    assert facts.shm_bytes == 1
    assert [(one.key, one.values["name"]) for one in problems] == [("facts_unknown_key", "'colour'")]
