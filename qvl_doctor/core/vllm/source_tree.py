"""A tree of Python sources, indexed by module without importing or executing any of it."""

from __future__ import annotations

import ast
import warnings
from typing import Protocol

from qvl_doctor.core.records import field, record

MAX_SOURCE_BYTES = 4_000_000  # the largest module of any vLLM release is below 400 kB


class SourceTree(Protocol):
    """Where sources come from: an installation, a checkout, a wheel. Paths are relative: "vllm/envs.py"."""

    def read(self, path: str) -> str | None:
        """The text of one file, or None if there is no such file or it can't be read."""

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all Python files below a folder ("vllm/v1/metrics/"), sorted."""

    def metadata(self) -> str | None:
        """The METADATA file of the distribution, or None (a checkout has none)."""


@record
class Imported:
    """A name bound by an import: `attribute` is None where the module itself is bound."""

    module: str
    attribute: str | None


Binding = ast.expr | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | Imported


@record(frozen=False)
class Module:
    """One parsed file: what each top-level name is bound to at run time, as far as that is plain to see."""

    name: str
    path: str
    tree: ast.Module
    text: str
    bindings: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    @property
    def package(self) -> str:
        """The package that relative imports in this file start from."""
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    def source(self, node: ast.AST) -> str:
        """The text of a node (used to look for tell-tale words in a function), or ""."""
        return ast.get_source_segment(self.text, node) or ""


class Program:
    """Modules of a tree by dotted name, parsed on first use."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module "vllm.config", whether it is a file or a package; None if the tree has no such module."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        stem = name.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            text = self.tree.read(path)
            if text is None:
                continue
            parsed = parse(text)
            if parsed is None:
                return None
            module = Module(name, path, parsed, text)
            _bind(module, parsed.body, module.package, override=True)
            return module
        return None


def parse(text: str) -> ast.Module | None:
    """The syntax tree of a file; None where Python can't parse it (or it is absurdly large)."""
    if len(text) > MAX_SOURCE_BYTES:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in somebody else's strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bind(  # noqa: PLR0912 # one case a kind of statement
    module: Module, body: list[ast.stmt], package: str, *, override: bool
) -> None:
    """Bind the names of top-level statements. Of a branch that can't be decided, the first binding stands."""
    for statement in body:
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                _set(module, statement.name, statement, override)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        _set(module, target.id, value, override)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _set(module, name, value, override)
            case ast.Import(names=names):
                for alias in names:
                    target_module = alias.name if alias.asname else alias.name.partition(".")[0]
                    _set(module, alias.asname or target_module, Imported(target_module, None), override)
            case ast.ImportFrom():
                _bind_from(module, statement, package, override)
            case ast.If(test=test, body=then, orelse=other):
                if _is_type_checking(test):
                    _bind(module, other, package, override=override)
                else:
                    _bind(module, then, package, override=override)
                    _bind(module, other, package, override=False)
            case ast.Try(body=then, handlers=handlers):
                _bind(module, then, package, override=override)
                for handler in handlers:
                    _bind(module, handler.body, package, override=False)
            case ast.With(body=then):
                _bind(module, then, package, override=override)
            case _:
                pass


def import_base(statement: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module that `from … import` names, seen from a package."""
    base = statement.module or ""
    if not statement.level:
        return base
    parts = package.split(".")
    kept = parts[: max(0, len(parts) - statement.level + 1)]
    return ".".join([*kept, base] if base else kept)


def _bind_from(module: Module, statement: ast.ImportFrom, package: str, override: bool) -> None:
    base = import_base(statement, package)
    for alias in statement.names:
        if alias.name == "*":
            module.stars.append(base)
        else:
            _set(module, alias.asname or alias.name, Imported(base, alias.name), override)


def _set(module: Module, name: str, binding: Binding, override: bool) -> None:
    if override or name not in module.bindings:
        module.bindings[name] = binding


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
