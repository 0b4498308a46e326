"""Rules from their folders, and the log patterns in them. What was found good is kept, see `sources.kept`.

The kept rules are those of files with just these paths, sizes and times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qvl_doctor import resources
from qvl_doctor.core.logs.model import LinePattern
from qvl_doctor.core.rules import Rule, RuleProblem, checked_rule, parse_rule, rests_on_log
from qvl_doctor.core.safe_text import printable
from qvl_doctor.errors import DoctorError
from qvl_doctor.sources.kept import Kept, kept

TYPE_CHECKING = False  # as typing's own
if TYPE_CHECKING:
    from qvl_doctor.core.logs.rows import Prepared, Rows

_Entry = tuple[int, str, Mapping[str, Any]]  # position, where, document without its samples


def load_rules(folders: Iterable[str], *, with_log: bool = True) -> tuple[Rule, ...]:
    """The built-in rules and those of the folders; a rule of the user's replaces the built-in one of its id.

    `with_log` = False leaves out the rules that only a log can make fire. Samples are not loaded.
    Raises DoctorError naming every problem of every file.
    """
    places = (resources.rules_folder(), *(Path(folder) for folder in folders))
    for place in places:
        if not place.is_dir():
            raise DoctorError("error_no_rules_folder", path=printable(str(place)))
    files = [path for place in places for path in resources.rule_files(place)]
    store = _kept_rules(files)
    found = _built(_read(store, with_log), with_log)
    if found is None:
        found = _built(_selected(_checked(files, store), with_log), with_log)
    return tuple(found or ())


def rows_of_rules(rules: Iterable[Rule]) -> Rows:
    """The log patterns of checked rules, ready for log readers. Raises `re.error` for a rule that is not checked."""
    from qvl_doctor.core.logs.rows import Rows, prepare, regexes_of  # noqa: PLC0415 - many runs have no log

    patterns = [LinePattern(key, regex) for rule in rules for key, regex in rule.patterns()]
    regexes = regexes_of(patterns)
    store = kept("regexes", regexes)
    found = _read_prepared(store)
    if len(found) == len(regexes):
        return Rows(patterns, found)
    prepared = prepare(patterns)
    store.write([json.dumps([[row.reach, *row.literals] for row in prepared], ensure_ascii=False)])
    return Rows(patterns, prepared)


def _read_prepared(store: Kept) -> list[Prepared]:
    from qvl_doctor.core.logs.rows import Prepared  # noqa: PLC0415

    try:
        rows = json.loads("".join(store.read() or ()))
        return [Prepared(int(reach), tuple(map(str, literals))) for reach, *literals in rows]
    except (ValueError, TypeError, RecursionError):
        return []


def _built(entries: Sequence[_Entry] | None, with_log: bool) -> list[Rule] | None:
    """The rules of checked documents; None where one of them is none (a damaged cache)."""
    if entries is None:
        return None
    rules = [checked_rule(document, where, with_log=with_log) for _, where, document in entries]
    return None if None in rules else [rule for rule in rules if rule is not None]


def read_rule(path: Path) -> tuple[Rule | None, tuple[RuleProblem, ...]]:
    """One rule file with its samples; what cannot be read is a problem like any other."""
    from qvl_doctor.core.derived import load_all  # noqa: PLC0415 - names of facts are checked here only

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


def _checked(files: Sequence[Path], store: Kept | None) -> list[_Entry]:
    import tomllib  # noqa: PLC0415 - not needed where all rules are kept

    problems: list[RuleProblem] = []
    entries: dict[str, _Entry] = {}
    for position, path in enumerate(files):
        rule, found = read_rule(path)
        problems += found
        if rule is not None:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            document.pop("sample", None)
            before = entries.get(rule.id)
            entries[rule.id] = (position if before is None else before[0], rule.where, document)
    if problems:
        spelled = "; ".join(f"{one.where}: {one.message}" for one in problems)
        raise DoctorError("error_rules", hint="hint_rules_format", problems=spelled)
    parts = [[entry for entry in entries.values() if rests_on_log(entry[2]) == on_log] for on_log in (False, True)]
    if store is not None:
        store.write([json.dumps(part, ensure_ascii=False) for part in parts])
    return list(entries.values())


def _selected(entries: Sequence[_Entry], with_log: bool) -> list[_Entry]:
    return [entry for entry in entries if with_log or not rests_on_log(entry[2])]


def _kept_rules(files: Sequence[Path]) -> Kept | None:
    """The kept form of exactly these files: a line of rules that a command alone can make fire, a line of the others.

    None where a file cannot be looked at.
    """
    try:
        ingredients = [str(Path.cwd())]  # problems and lists name paths from here
        for path in files:
            status = path.stat()
            ingredients.append(f"{path}\0{status.st_size}\0{status.st_mtime_ns}")
    except OSError:
        return None
    return kept("rules", ingredients)


def _read(store: Kept | None, with_log: bool) -> list[_Entry] | None:
    lines = None if store is None else store.read(lines=2 if with_log else 1)
    try:
        entries = [entry for line in lines or () for entry in json.loads(line)]
        if lines is None or not all(isinstance(document, dict) for _, _, document in entries):
            return None
        return sorted(entries, key=lambda entry: int(entry[0]))
    except (ValueError, TypeError, RecursionError):
        return None
