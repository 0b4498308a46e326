"""Reads what a release can load: architectures, quantization methods, and the packages that it requires."""

from __future__ import annotations

import ast
import re
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record
from qvl_doctor.core.vllm.interpreter import Interpreter, OutOfBudgetError
from qvl_doctor.core.vllm.source_tree import Module, Program
from qvl_doctor.core.vllm.static_values import ClassValue, FuncValue

REGISTRIES = ("vllm.model_executor.models.registry", "vllm.model_executor.models")
QUANTIZATION = "vllm.model_executor.layers.quantization"
_TABLE = lazy_regex(r"^_[A-Z_]*MODELS$")
_NOT_SUPPORTED = lazy_regex(r"PREVIOUSLY|ROCM|OOT|VLLM")
_REQUIREMENTS = frozenset(
    {"torch", "torchvision", "transformers", "numpy", "xformers", "compressed-tensors", "flashinfer-python", "triton",
     "mistral-common", "tokenizers", "xgrammar", "ray", "pydantic", "fastapi", "prometheus-client",
     "opencv-python-headless", "pillow", "vllm-flash-attn", "huggingface-hub"}
)  # fmt: skip


@record
class Architecture:
    """A model class name (of config.json) that the release loads; `group` is the table of the registry."""

    name: str
    group: str


@record
class QuantizationMethod:
    """A value of --quantization; `min_capability` is 75 for compute capability 7.5, None where it is not stated."""

    name: str
    min_capability: int | None


def read_architectures(program: Program) -> tuple[Architecture, ...]:
    """The architectures of all tables of the registry."""
    found: dict[str, str] = {}
    for module_name in REGISTRIES:
        module = program.module(module_name)
        if module is None:
            continue
        for name, binding in module.bindings.items():
            if not (_TABLE.match(name) and isinstance(binding, ast.Dict)) or _NOT_SUPPORTED.search(name):
                continue
            for key in binding.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.setdefault(key.value, name.strip("_").removesuffix("_MODELS").lower())
    return tuple(Architecture(name, found[name]) for name in sorted(found))


def read_quantization(program: Program) -> tuple[QuantizationMethod, ...]:
    """The quantization methods with the compute capability that their configuration class asks for."""
    module = program.module(QUANTIZATION)
    if module is None:
        return ()
    interpreter = Interpreter(program, {})
    try:
        methods = interpreter.lookup(module, "QUANTIZATION_METHODS")
        classes = methods if isinstance(methods, dict) else _method_classes(interpreter, module)
        names = [n for n in interpreter.iterate(methods) if isinstance(n, str)]
        return tuple(
            QuantizationMethod(name, _min_capability(interpreter, classes.get(name))) for name in sorted(set(names))
        )
    except OutOfBudgetError:
        return ()


def _method_classes(interpreter: Interpreter, module: Module) -> dict[str, Any]:
    """The table of classes inside `get_quantization_config`."""
    function = module.bindings.get("get_quantization_config")
    if not isinstance(function, ast.FunctionDef):
        return {}
    scope: dict[str, Any] = {}
    body: list[ast.stmt] = [s for s in function.body if isinstance(s, ast.ImportFrom | ast.Assign | ast.AnnAssign)]
    interpreter.execute(body, scope, module)
    table = scope.get("method_to_config")
    return table if isinstance(table, dict) else {}


def _min_capability(interpreter: Interpreter, cls: Any) -> int | None:
    """The number that `get_min_capability` returns, if it returns one constant."""
    if not isinstance(cls, ClassValue):
        return None
    method = interpreter.class_attribute(cls, "get_min_capability")
    if not isinstance(method, FuncValue):
        return None
    returns = [s.value for s in ast.walk(method.node) if isinstance(s, ast.Return)]
    if len(returns) == 1 and isinstance(returns[0], ast.Constant) and isinstance(returns[0].value, int):
        return returns[0].value
    return None


def read_requirements(metadata: str | None) -> dict[str, str]:
    """Package -> specifier ("==2.6.0") of the packages that matter here; {} without METADATA. "" means any version."""
    found: dict[str, str] = {}
    for line in (metadata or "")[:400_000].splitlines():
        if not line.startswith("Requires-Dist:"):
            continue
        try:
            requirement = Requirement(line.partition(":")[2].strip())
        except InvalidRequirement:
            continue
        marker = str(requirement.marker or "")
        name = requirement.name.lower().replace("_", "-")
        if name in _REQUIREMENTS and "extra" not in marker and "python_version" not in marker:
            found.setdefault(name, str(requirement.specifier))
    return dict(sorted(found.items()))


def read_version(metadata: str | None) -> str | None:
    """The version of the distribution."""
    match = re.search(r"^Version:\s*(\S{1,60})\s*$", (metadata or "")[:5_000], re.MULTILINE)
    return match.group(1) if match else None
