"""The static reader: each way in which vLLM has built its parser, and trees that are out for trouble."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.vllm.cli_reader import CommandLine, read_command_line
from qvl_doctor.core.vllm.environment_reader import read_environment
from qvl_doctor.core.vllm.knowledge import FlagFact
from qvl_doctor.core.vllm.metrics_reader import read_metrics
from qvl_doctor.core.vllm.model_reader import read_requirements, read_version
from qvl_doctor.core.vllm.release_facts import read_release
from qvl_doctor.core.vllm.source_tree import Program
from tests.vllm.trees import CONFIGS, PLAIN, TextTree


def read(tree: TextTree) -> tuple[CommandLine, dict[str, FlagFact]]:
    command_line = read_command_line(Program(tree))
    assert command_line is not None
    return command_line, {fact.name: fact for fact in command_line.flags}


def test_plain_parser_of_old_releases() -> None:
    command_line, flags = read(PLAIN)
    assert len(flags) == 14
    assert {f.servers for f in flags.values()} == {("api_server",)}
    assert flags["--tensor-parallel-size"].aliases == ("-tp",)
    assert flags["--block-size"].choices == (8, 16, 32, 64)
    assert flags["--block-size"].default == 16
    assert flags["--mode"].choices == ("fast", "safe")
    assert flags["--port"].default == 8000
    assert flags["--extra"].value == "json"
    assert (flags["--revision"].value, flags["--revision"].nullable) == ("str", True)
    assert (flags["--disable-log-requests"].value, flags["--disable-log-requests"].nargs) == ("bool", "switch")
    assert flags["--old-way"].deprecated
    assert flags["--old-way"].note == "(DEPRECATED. Use --mode instead)"
    assert not command_line.traits.underscores
    assert not command_line.traits.dotted


def test_parser_made_of_configuration_classes() -> None:
    command_line, flags = read(CONFIGS)
    traits = command_line.traits
    assert (traits.underscores, traits.dotted, traits.config, traits.level) == (
        True,
        True,
        True,
        "--optimization-level",
    )
    assert flags["--dtype"].choices == ("auto", "half")
    assert flags["--dtype"].nullable
    assert flags["--max-model-len"].value == "human-int"
    assert flags["--enforce-eager"].negations == ("--no-enforce-eager",)
    assert flags["--enable-caching"].negations == ("--disable-caching", "--no-enable-caching")
    assert flags["--hf-overrides"].value == "json-or-text"
    assert flags["--limits"].value == "json"
    assert flags["--kv-dtype"].choices == ("a", "auto")  # nested Literal, one value taken out by the caller
    assert flags["--open-kind"].choices is None  # Literal | str is shown, not enforced
    assert (flags["--sizes"].value, flags["--sizes"].nargs, flags["--sizes"].default) == ("int", "many", [1, 2])
    assert flags["--cache"].value == "json-config"
    assert command_line.config_keys == {"--cache": ("enable_caching", "kv_dtype", "open_kind", "sizes")}
    assert flags["--gone-soon"].deprecated
    assert flags["--origins"].value == "json"
    assert flags["--origins"].nargs == "one"
    assert flags["--host"].default == "::"  # set by the subclass, behind super()
    assert flags["--kv-dtype"].source == "vllm/config/__init__.py"
    assert flags["--headless"].servers == ("serve",)


def test_environment_and_metrics() -> None:
    variables = {v.name: v for v in read_environment(Program(CONFIGS))}
    assert (variables["VLLM_A"].kind, variables["VLLM_A"].default) == ("int", 5)
    assert (variables["VLLM_B"].kind, variables["VLLM_B"].choices) == ("str | None", ("x", "y"))
    metrics = {m.name: m for m in read_metrics(CONFIGS)}
    assert metrics["vllm:running"].labels == ("model_name", "engine")
    assert metrics["vllm:tokens_total"].labels == ("model_name", "engine", "reason")
    assert metrics["vllm:old"].hidden
    assert {m.engines for m in metrics.values()} == {("V1",)}


def test_requirements_and_version() -> None:
    assert read_requirements(PLAIN.metadata()) == {"torch": "==2.1.2"}
    assert read_version(PLAIN.metadata()) == "0.4.9"
    assert read_version(None) is None
    assert read_requirements("Requires-Dist: ???\nRequires-Dist: torch (>=2)\n") == {"torch": ">=2"}


METHOD = "class AsyncEngineArgs:\n    @staticmethod\n    def add_cli_args(p):\n"
LOOPS = "".join(f"{' ' * (8 + i)}for a{i} in [{', '.join('1' * 200)}]:\n" for i in range(6))
HOSTILE = [
    "def add_cli_args(p):\n    return add_cli_args(p)\nclass AsyncEngineArgs:\n    add_cli_args = add_cli_args",
    "X = " + "(" * 300 + ")" * 300,
    "class AsyncEngineArgs(AsyncEngineArgs):\n    pass",
    "class A(B): pass\nclass B(A): pass\nclass AsyncEngineArgs(A): pass",
    METHOD + "        s = 'x' * 10**9 + 'y' * (2**2**2**70)\n        p.add_argument(s, '--x')\n        return p",
    METHOD + "        l = [1]\n        for i in range(9):\n            l = l + l\n        return p",
    METHOD + LOOPS + " " * 20 + "p.add_argument('--y')\n        return p",
    METHOD + "        a = b = a\n        a.b.c.d(**x)(*y)[1:2]\n        p.add_argument(*p, **p)\n        return p",
    METHOD + "        p.add_argument()\n        del p['x'], q\n        return p",
    "AsyncEngineArgs = AsyncEngineArgs\nfrom vllm.engine.arg_utils import *",
    "\x00",
    "def f(:",
]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_trees_end_in_nothing(source: str) -> None:
    files = {**PLAIN.files, "vllm/engine/arg_utils.py": source}
    result = read_command_line(Program(TextTree(files)))
    assert result is None or len(result.flags) < 14


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.sampled_from(sorted(CONFIGS.files)), st.integers(0, 3000))
def test_damaged_trees_never_raise(text: str, path: str, position: int) -> None:
    original = CONFIGS.files[path]
    cut = position % (len(original) + 1)
    damaged = TextTree({**CONFIGS.files, path: original[:cut] + text + original[cut:]})
    facts: dict[str, Any] | None = read_release(damaged)
    assert facts is None or facts["flags"]


def test_no_tree_at_all() -> None:
    assert read_release(TextTree({})) is None
