"""Derived facts: named predicates and computed values, one module per area."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path


@cache
def load_all() -> None:
    """Import every module of this package, which registers its facts."""
    for file in sorted(Path(__file__).parent.glob("[!_]*.py")):  # pkgutil would import inspect: 5 ms
        import_module(f"{__name__}.{file.stem}")
