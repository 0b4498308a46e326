"""Rules from their folders. What was found good is kept as one JSON file, which is read in milliseconds.

The kept file is keyed by the program's version and each rule file's path, size and time; it is data (nothing in it is
executed), lies in the user's own cache folder and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qvl_doctor import __version__, resources
from qvl_doctor.core.derived import load_all
from qvl_doctor.core.rules import Rule, RuleProblem, checked_rule, parse_rule, rests_on_log
from qvl_doctor.core.safe_text import printable
from qvl_doctor.errors import DoctorError

_KEPT_FILES = 8  # older ones are removed
_Entry = tuple[str, Mapping[str, Any]]  # where, document without its samples


def load_rules(folders: Iterable[str], *, with_log: bool = True) -> tuple[Rule, ...]:
    """The built-in rules and those of the folders; a rule of the user's replaces the built-in one of its id.

    `with_log` = False leaves out the rules that only a log can make fire. Samples are not loaded.
    Raises DoctorError naming every problem of every file.
    """
    places = (resources.rules_folder(), *(Path(folder) for folder in folders))
    for place in places:
        if not place.is_dir():
            raise DoctorError(f"rules folder {printable(str(place))} does not exist")
    files = [path for place in places for path in resources.rule_files(place)]
    kept = _cache_file(files)
    found = _built(_read_kept(kept), with_log)
    if found is None:
        found = _built(_checked(files, kept), with_log)
    return tuple({rule.id: rule for rule in found or ()}.values())


def _built(entries: Sequence[_Entry] | None, with_log: bool) -> list[Rule] | None:
    """The rules of checked documents; None where one of them is none (a damaged cache)."""
    if entries is None:
        return None
    rules = [checked_rule(doc, where) for where, doc in entries if with_log or not rests_on_log(doc)]
    return None if None in rules else [rule for rule in rules if rule is not None]


def read_rule(path: Path) -> tuple[Rule | None, tuple[RuleProblem, ...]]:
    """One rule file with its samples; what cannot be read is a problem like any other."""
    load_all()
    where = printable(shortest(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, (RuleProblem(f"{where}:1", f"cannot be read: {error}"),)
    return parse_rule(text, where, file_stem=path.stem)


def shortest(path: Path) -> str:
    """The path relative to the current folder where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _checked(files: Sequence[Path], kept: Path | None) -> list[_Entry]:
    problems: list[RuleProblem] = []
    entries: list[_Entry] = []
    for path in files:
        rule, found = read_rule(path)
        problems += found
        if rule is not None:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            document.pop("sample", None)
            entries.append((rule.where, document))
    if problems:
        raise DoctorError("; ".join(f"{one.where}: {one.message}" for one in problems), hint="see docs/rules-format.md")
    _keep(kept, entries)
    return entries


def _cache_file(files: Sequence[Path]) -> Path | None:
    """Where the checked form of exactly these files is kept; None where there is no cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and str(Path(os.environ["HOME"]) / ".cache"))
    if not base or not Path(base).is_absolute():
        return None
    digest = hashlib.sha256(__version__.encode())
    try:
        digest.update(os.fsencode(Path.cwd()))  # problems and lists name paths from here
        for path in files:
            status = path.stat()
            digest.update(f"\0{path}\0{status.st_size}\0{status.st_mtime_ns}".encode(errors="surrogateescape"))
    except OSError:
        return None
    return Path(base) / "qvl-doctor" / f"rules-{digest.hexdigest()[:24]}.json"


def _read_kept(kept: Path | None) -> list[_Entry] | None:
    if kept is None:
        return None
    try:
        entries = json.loads(kept.read_text(encoding="utf-8"))
        return [(str(where), document) for where, document in entries if isinstance(document, dict)]
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _keep(kept: Path | None, entries: Sequence[_Entry]) -> None:
    """Write the checked rules beside; that it cannot be done (read-only home, full disk) costs time only."""
    if kept is None:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, suffix=".tmp", delete=False, encoding="utf-8") as stream:
            json.dump(entries, stream, ensure_ascii=False)
        Path(stream.name).replace(kept)
        others = sorted(kept.parent.glob("rules-*.json"), key=lambda path: path.stat().st_mtime)
        for path in others[:-_KEPT_FILES]:
            path.unlink(missing_ok=True)
    except OSError:
        return
