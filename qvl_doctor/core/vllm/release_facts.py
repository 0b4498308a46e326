"""Everything that is read from one source tree, in the JSON form that the data files are made of."""

from __future__ import annotations

from typing import Any

from qvl_doctor.core.records import astuple
from qvl_doctor.core.vllm.batch_reader import read_batch_defaults
from qvl_doctor.core.vllm.cli_reader import read_command_line
from qvl_doctor.core.vllm.environment_reader import read_environment
from qvl_doctor.core.vllm.knowledge import FlagFact, ParserTraits
from qvl_doctor.core.vllm.metrics_reader import read_metrics
from qvl_doctor.core.vllm.model_reader import (
    read_architectures,
    read_quantization,
    read_requirements,
    read_version,
)
from qvl_doctor.core.vllm.source_tree import Program, SourceTree

WANTED = (  # what a reader of wheels should have at hand before it starts
    "vllm/config.py",
    "vllm/config/",
    "vllm/engine/arg_utils.py",
    "vllm/engine/metrics",
    "vllm/entrypoints/",
    "vllm/envs.py",
    "vllm/model_executor/layers/quantization/",
    "vllm/model_executor/models/__init__.py",
    "vllm/model_executor/models/registry.py",
    "vllm/scripts.py",
    "vllm/utils",
    "vllm/v1/metrics/",
    "vllm/v1/attention/backends/registry.py",
)


def read_release(tree: SourceTree) -> dict[str, Any] | None:
    """The facts of a tree: {"version", "traits", "flags", "environment", …}; None if it holds no vLLM command line."""
    program = Program(tree)
    command_line = read_command_line(program)
    if command_line is None:
        return None
    metadata = tree.metadata()
    return {
        "version": read_version(metadata),
        "traits": traits_record(command_line.traits),
        "flags": {fact.name: flag_record(fact) for fact in command_line.flags},
        "config_keys": {f"{flag} {key}": 1 for flag, keys in command_line.config_keys.items() for key in sorted(keys)},
        "environment": {
            v.name: [v.kind, v.default, None if v.choices is None else list(v.choices)]
            for v in read_environment(program)
        },
        "metrics": {
            m.name: [m.kind, None if m.labels is None else list(m.labels), list(m.engines), m.hidden, m.source]
            for m in read_metrics(tree)
        },
        "architectures": {a.name: a.group for a in read_architectures(program)},
        "quantization": {q.name: q.min_capability for q in read_quantization(program)},
        "requires": read_requirements(metadata),
        "batch": [list(astuple(row)) for row in read_batch_defaults(program)],
    }


def traits_record(traits: ParserTraits) -> list[Any]:
    """The JSON form of the parser's traits."""
    return [
        traits.underscores, traits.dotted, traits.config, traits.model_option, traits.level,
        [list(pair) for pair in traits.inverse], traits.source,
    ]  # fmt: skip


def flag_record(fact: FlagFact) -> list[Any]:
    """The JSON form of a flag; `negations` is 1 where it is a pair (they follow from the traits), else 0."""
    return [
        list(fact.aliases), 1 if fact.negations else 0, fact.value, fact.nargs,
        None if fact.choices is None else list(fact.choices), fact.default, fact.nullable, fact.deprecated, fact.note,
        fact.source, list(fact.servers),
    ]  # fmt: skip
