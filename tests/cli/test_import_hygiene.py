"""Which modules each command loads. Names fail alike on every machine; clocks do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.harness import COMMAND, FAILED_LOG, doctor

# Each costs 40 to 500 ms, or belongs to a part that these commands have no use for.
HEAVY = (
    *("textual", "rich", "asyncio", "psutil", "pynvml", "prometheus_client", "urllib.request", "http.client"),
    *("importlib.metadata", "ruamel", "ssl", "email", "multiprocessing", "unittest", "pkg_resources", "setuptools"),
)
COMPOSE = """\
services:
  vllm:
    image: vllm/vllm-openai:v0.11.0
    command: --model Qwen/Qwen2.5-VL-7B-Instruct --host 127.0.0.1
"""


def loaded(*arguments: str) -> set[str]:
    """Every module imported by a fresh process, by its full name."""
    trace = doctor(*arguments, interpreter=["-X", "importtime"]).err
    return {line.rpartition("|")[2].strip() for line in trace.splitlines() if line.startswith("import time:")}


def heavy(modules: set[str]) -> set[str]:
    return {name for name in HEAVY if name in modules or any(module.startswith(name + ".") for module in modules)}


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "server.log"
    path.write_text(FAILED_LOG)
    return str(path)


def test_the_trace_sees_the_package_itself() -> None:
    assert {"qvl_doctor", "qvl_doctor.cli", "argparse"} <= loaded("--help")


def test_help_loads_nothing_heavy_and_no_core() -> None:
    modules = loaded("--help")
    assert heavy(modules) == set()
    assert not {name for name in modules if name.startswith("qvl_doctor.core.")}


def test_diagnose_of_a_log_loads_nothing_heavy(log: str) -> None:
    assert heavy(loaded("diagnose", "--log", log)) == set()


def test_diagnose_of_a_command_loads_what_commands_need_only() -> None:
    modules = loaded("diagnose", "--command", COMMAND)
    assert heavy(modules) == set()
    assert "qvl_doctor.core.launch.shell" in modules
    unneeded = {
        f"qvl_doctor.core.{name}" for name in ("logs.reader", "logs.lines", "launch.article", "gpus", "refusals")
    }
    unneeded |= {"qvl_doctor.core.launch.yaml_nodes", "qvl_doctor.core.launch.python_source"}
    assert modules.isdisjoint({*unneeded, "dataclasses", "inspect", "ast", "difflib", "packaging.specifiers"})


def test_rules_list_loads_nothing_heavy() -> None:
    assert heavy(loaded("rules", "list")) == set()


def test_yaml_is_loaded_for_yaml_only(tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    compose = tmp_path / "compose.yaml"
    compose.write_text(COMPOSE)
    assert "ruamel" in heavy(loaded("diagnose", "--command-file", str(compose)))
