"""Reads the defaults of --max-num-batched-tokens and --max-num-seqs, which depend on the GPU and on who asks."""

from __future__ import annotations

import ast

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.vllm.knowledge import BatchDefaults
from qvl_doctor.core.vllm.source_tree import Module, Program

_MEMORY = lazy_regex(r"device_memory\s*>=\s*(\d+)\s*\*\s*GiB_bytes")
_NOT_NAMED = lazy_regex(r"[\"'](\w+)[\"']\s+not in device_name")
_NAMED = lazy_regex(r"[\"'](\w+)[\"']\s+in device_name")
_TOKENS, _SEQUENCES = "default_max_num_batched_tokens", "default_max_num_seqs"


def read_batch_defaults(program: Program) -> tuple[BatchDefaults, ...]:
    """The rows in the order in which the release tries them; () for releases with one default for all GPUs."""
    module = program.module("vllm.engine.arg_utils")
    if module is None:
        return ()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If) and _assigned(node.body, _TOKENS) and "device_" in module.source(node.test):
            return _rows(module, node)
    return ()


def _rows(module: Module, branch: ast.If) -> tuple[BatchDefaults, ...]:
    rows = [_row(module.source(branch.test), branch.body)]
    rest = branch.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If) and len(rows) < 10:
        rows.append(_row(module.source(rest[0].test), rest[0].body))
        rest = rest[0].orelse
    if rest:
        rows.append(_row("", rest))
    return tuple(rows)


def _row(test: str, body: list[ast.stmt]) -> BatchDefaults:
    memory = _MEMORY.search(test)
    tokens, seqs = _values(_assigned(body, _TOKENS)), _values(_assigned(body, _SEQUENCES))
    without = tuple(_NOT_NAMED.findall(test))
    return BatchDefaults(
        min_memory_gib=int(memory.group(1)) if memory else 0,
        without=(*without, "gb10") if "is_gb10" in test else without,
        named=tuple(_NAMED.findall(test)),
        tokens_server=tokens.get("server"),
        tokens_llm=tokens.get("llm"),
        seqs_server=seqs.get("server"),
        seqs_llm=seqs.get("llm"),
    )


def _assigned(body: list[ast.stmt], name: str) -> ast.expr | None:
    for statement in body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and target.id == name:
            return statement.value
    return None


def _values(node: ast.expr | None) -> dict[str, int]:
    """{UsageContext.LLM_CLASS: 16384, …} or one number for both."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return {"server": node.value, "llm": node.value}
    found: dict[str, int] = {}
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Attribute) and isinstance(value, ast.Constant) and isinstance(value.value, int):
                found["llm" if key.attr == "LLM_CLASS" else "server"] = value.value
    return found
