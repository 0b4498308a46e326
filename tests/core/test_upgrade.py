"""What another release means for one command, in both directions."""

from __future__ import annotations

from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.observe import Observed
from qvl_doctor.core.upgrade import Upgrade, explain_upgrade
from qvl_doctor.sources import tables, vllm_facts


def upgraded(command: str, old: str, new: str, gpu: str = "RTX 3090") -> Upgrade:
    first, second = vllm_facts.knowledge(old), vllm_facts.knowledge(new)
    (launch,) = parse_text(command, grammar=first).commands
    observed = Observed(launch=launch, gpus=tables.parse_gpus(gpu), gpu_text=gpu)
    return explain_upgrade(observed, first, second, "en")


def names(upgrade: Upgrade, kind: str) -> set[str]:
    return {change.name for change in upgrade.changes if change.kind == kind}


def test_flags_are_translated_and_what_is_gone_is_removed() -> None:
    upgrade = upgraded(
        "vllm serve Qwen/Qwen2-VL-7B-Instruct --limit-mm-per-prompt image=4 --swap-space 8 --max-model-len 32768",
        "0.6.3",
        "0.33.0",
    )
    assert names(upgrade, "flag") == {"--limit-mm-per-prompt", "--swap-space"}
    assert upgrade.after == (
        "vllm serve Qwen/Qwen2-VL-7B-Instruct --limit-mm-per-prompt '{\"image\":4}' --max-model-len 32768"
    )


def test_the_way_back_works_too() -> None:
    upgrade = upgraded(
        "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --limit-mm-per-prompt '{\"image\":4}'", "0.11.0", "0.7.3"
    )
    assert "image=4" in upgrade.after


def test_defaults_left_open_and_those_given() -> None:
    command = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"
    assert "--gpu-memory-utilization" in names(upgraded(command, "0.19.1", "0.20.0"), "default")
    given = upgraded(f"{command} --gpu-memory-utilization 0.9", "0.19.1", "0.20.0")
    assert "--gpu-memory-utilization" not in names(given, "default")


def test_engine_requirements_and_metrics() -> None:
    upgrade = upgraded("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "0.7.3", "0.11.2")
    assert ("engine", "V0", "V1") in {(one.name, one.before, one.after) for one in upgrade.changes}
    assert "torch" in names(upgrade, "requirement")
    gone = names(upgrade, "metric")
    assert "vllm:num_requests_swapped" in gone
    assert "vllm:num_requests_running" not in gone
    assert "vllm:cache_config_info" not in gone


def test_the_same_release_changes_nothing() -> None:
    upgrade = upgraded("vllm serve Qwen/Qwen2.5-VL-7B-Instruct --max-model-len 8192", "0.11.0", "0.11.0")
    assert upgrade.changes == ()
    assert upgrade.after == upgrade.before
