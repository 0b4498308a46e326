"""The data files that ship with the program: facts about vLLM, GPUs and models, texts, rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@cache
def data_text(name: str) -> str:
    """The text of `qvl_doctor/data/<name>`. Raises FileNotFoundError for a file that is not shipped."""
    return (_PACKAGE / "data" / name).read_text(encoding="utf-8")


def rules_folder() -> Path:
    """The folder of the built-in rules: inside the wheel, or the repository's own in an editable installation."""
    shipped = _PACKAGE / "_rules"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "rules"


def rule_files(folder: Path) -> Iterator[Path]:
    """Every rule file below `folder`, in a stable order. Links to folders are not followed."""
    found = [Path(base, name) for base, _, names in os.walk(folder) for name in names if name.endswith(".toml")]
    yield from sorted(found)
