"""YAML of any kind to launch commands: compose files, manifests, vLLM's own configuration."""

from __future__ import annotations

import itertools
import re

from qvl_doctor.core.launch.assemble import Context
from qvl_doctor.core.launch.command import Kind, LaunchCommand
from qvl_doctor.core.launch.compose import compose_commands
from qvl_doctor.core.launch.config_file import config_command, is_config
from qvl_doctor.core.launch.kubernetes import kubernetes_commands
from qvl_doctor.core.launch.values import Layer, Problem
from qvl_doctor.core.launch.yaml_nodes import YamlError, documents
from qvl_doctor.core.lazy_regex import lazy_regex

_SEPARATOR = lazy_regex(r"^---(?:[ \t][^\n]*)?(?:\r?\n|$)", re.MULTILINE)


def yaml_commands(layer: Layer, kind: Kind, context: Context) -> tuple[Kind, list[LaunchCommand], list[Problem]]:
    """The documents of a YAML stream, one by one: those without a word of vLLM are not even parsed."""
    commands: list[LaunchCommand] = []
    problems: list[Problem] = []
    for start, end in _parts(layer.text):
        part = layer.part(start, end)
        lowered = part.text.lower()
        if kind in ("compose", "kubernetes") and "vllm" not in lowered:
            continue
        try:
            for root in documents(part):
                if root.get("services") is not None:
                    kind = "compose" if kind == "yaml" else kind
                    commands.extend(compose_commands(root, context))
                elif root.get("apiVersion") is not None or root.get("spec") is not None or root.get("kind") is not None:
                    kind = "kubernetes" if kind == "yaml" else kind
                    commands.extend(kubernetes_commands(root, context))
                elif root.kind == "mapping" and is_config(root):
                    kind = "config" if kind == "yaml" else kind
                    command = config_command(root, context)
                    commands.extend([command] if command else [])
        except YamlError as error:
            line = context.lines.line(part.begin(0))
            problems.append(Problem("unreadable", f"not readable as YAML: {error}", line))
    return kind, commands, problems


def _parts(text: str) -> list[tuple[int, int]]:
    """The spans of a stream's documents."""
    cuts = [match.end() for match in _SEPARATOR.finditer(text)][:1000]
    bounds = [0, *cuts, len(text)]
    return [(start, end) for start, end in itertools.pairwise(bounds) if text[start:end].strip()]
