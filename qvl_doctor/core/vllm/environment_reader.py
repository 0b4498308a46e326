"""Reads the environment variables of a release from the table in `vllm/envs.py`."""

from __future__ import annotations

import ast
from typing import Any

from qvl_doctor.core.vllm.knowledge import EnvironmentFact
from qvl_doctor.core.vllm.source_tree import Module, Program

ENVS = "vllm.envs"


def read_environment(program: Program) -> tuple[EnvironmentFact, ...]:
    """All variables of the release's own table, by name; () where there is no such table (before 0.4.1)."""
    module = program.module(ENVS)
    if module is None:
        return ()
    readers = _readers(module)
    annotated = _annotations(module)
    found = []
    for name in sorted(readers):
        kind, default = annotated.get(name, ("", None))
        found.append(EnvironmentFact(name, kind, default, _choices(readers[name], name)))
    return tuple(found)


def _readers(module: Module) -> dict[str, ast.expr]:
    """Name -> the lambda that reads it."""
    readers: dict[str, ast.expr] = {}
    for node in module.tree.body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        if not (isinstance(target, ast.Name) and target.id.endswith("environment_variables")):
            continue
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Dict):
            for key, reader in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    readers[key.value] = reader
    return readers


def _annotations(module: Module) -> dict[str, tuple[str, Any]]:
    """Name -> (annotation, default) from the block that is there for type checkers."""
    found: dict[str, tuple[str, Any]] = {}
    for node in module.tree.body:
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in module.source(node.test)):
            continue
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = (_kind(module, statement.annotation), _literal(statement.value))
    return found


def _kind(module: Module, annotation: ast.expr) -> str:
    text = " ".join(module.source(annotation).split())
    if text.startswith("Optional[") and text.endswith("]"):
        text = f"{text[9:-1]} | None"
    return "Literal" if text.startswith("Literal") else text[:60]


def _literal(node: ast.expr | None) -> Any:
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _choices(reader: ast.expr, name: str) -> tuple[str, ...] | None:
    """The values of `env_with_choices("NAME", default, ["a", "b"])`."""
    for node in ast.walk(reader):
        if not (isinstance(node, ast.Call) and len(node.args) >= 3 and _literal(node.args[0]) == name):
            continue
        if isinstance(node.args[2], ast.List | ast.Tuple):
            values = [_literal(item) for item in node.args[2].elts]
            if values and all(isinstance(v, str) for v in values):
                return tuple(str(v) for v in values)
    return None
