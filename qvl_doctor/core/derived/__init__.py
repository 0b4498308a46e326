"""Derived facts: named predicates and computed values, one module per area."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules


@cache
def load_all() -> None:
    """Import every module of this package, which registers its facts."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
