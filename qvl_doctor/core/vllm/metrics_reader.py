"""Reads the Prometheus metrics that a release registers: name, type, labels, which engine's code does it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.vllm.knowledge import MetricFact
from qvl_doctor.core.vllm.source_tree import SourceTree, parse

_KINDS = ("gauge", "counter", "histogram", "summary", "info")
_ROOT = "vllm/"
_PREFIX = "vllm:"
_NAME = lazy_regex(r"vllm:[a-z0-9_]{1,80}")


def metric_files(tree: SourceTree) -> list[str]:
    """The files that may register metrics."""
    return [
        path
        for path in tree.names(_ROOT)
        if "metric" in path or path in {"vllm/v1/engine/async_llm.py", "vllm/compilation/cuda_graph.py"}
    ]


def read_metrics(tree: SourceTree) -> tuple[MetricFact, ...]:
    """All metrics whose name starts with "vllm:", by name."""
    found: dict[str, MetricFact] = {}
    for path in metric_files(tree):
        text = tree.read(path)
        parsed = parse(text) if text and "vllm:" in text else None
        if parsed is None:
            continue
        for metric in _metrics_of(parsed, path):
            earlier = found.get(metric.name)
            found[metric.name] = metric if earlier is None else _joined(earlier, metric)
    # a counter's name before its suffix, where a table names it a second time, is no metric of its own
    return tuple(found[name] for name in sorted(found) if f"{name}_total" not in found)


def _joined(first: MetricFact, second: MetricFact) -> MetricFact:
    engines = tuple(sorted({*first.engines, *second.engines}))
    labels = first.labels if second.labels is None or first.labels is not None else second.labels
    return MetricFact(first.name, first.kind, labels, engines, first.hidden and second.hidden, first.source)


def _metrics_of(tree: ast.Module, path: str) -> Iterator[MetricFact]:
    labels = _label_lists(tree)
    engine = "V1" if path.startswith("vllm/v1/") else "V0" if path.startswith("vllm/engine/") else "server"
    for node, hidden in _calls(tree, hidden=False):
        name, kind = _text(_argument(node, "name", 0)), _kind(node)
        if name is not None and name.startswith(_PREFIX) and kind is not None:
            label_names = _labels(_argument(node, "labelnames", 2), labels)
            yield MetricFact(_scraped(name, kind), kind, label_names, (engine,), hidden, path)
    for name, kind in _named_by_variable(tree):
        yield MetricFact(_scraped(name, kind), kind, None, (engine,), False, path)


def _kind(call: ast.Call) -> str | None:
    called = (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")).lower()
    return next((kind for kind in _KINDS if kind in called), None)


def _scraped(name: str, kind: str) -> str:
    """The name that a scrape shows: prometheus_client adds the suffixes of counters and infos."""
    suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
    return name if name.endswith(suffix) else name + suffix


def _named_by_variable(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, kind) of metrics whose call takes its name from a variable: every "vllm:…" text of that function that no
    other call names outright (`name = "vllm:cache_config_info"`, a list of names that a comprehension walks over)."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _kind(node) is not None]
        kinds = {_kind(call) for call in calls if isinstance(_argument(call, "name", 0), ast.Name)}
        outright = {_text(_argument(call, "name", 0)) for call in calls}
        texts = [n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        if len(kinds) == 1 and (kind := kinds.pop()) is not None:
            yield from ((text, kind) for text in texts if _NAME.fullmatch(text) and text not in outright)


def _calls(node: ast.AST, *, hidden: bool) -> Iterator[tuple[ast.Call, bool]]:
    """Every call below a node, and whether it stands under an `if` that asks for hidden metrics."""
    for child in ast.iter_child_nodes(node):
        below = hidden
        if isinstance(child, ast.If):
            words = {n.attr for n in ast.walk(child.test) if isinstance(n, ast.Attribute)}
            below = hidden or "show_hidden_metrics" in words
        if isinstance(child, ast.Call):
            yield child, below
        yield from _calls(child, hidden=below)


def _argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    keyword = next((k.value for k in call.keywords if k.arg == name), None)
    if keyword is not None:
        return keyword
    return call.args[position] if len(call.args) > position else None


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _label_lists(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """Names that are bound to a list of strings anywhere in the file."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            values = _labels(node.value, found)
            if values is not None and isinstance(target, ast.Name):
                found[target.id] = values
            elif values is not None and isinstance(target, ast.Attribute):
                found[target.attr] = values
    return found


def _labels(node: ast.expr | None, known: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            values = [_text(item) for item in items]
            return tuple(v for v in values if v is not None) if all(v is not None for v in values) else None
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return known.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _labels(left, known), _labels(right, known)
            return None if first is None or second is None else first + second
        case _:
            return None
