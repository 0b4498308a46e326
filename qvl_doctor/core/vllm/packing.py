"""Packs the facts of many releases into small documents and looks single facts up in them.

A packed table is {"releases": [...], "facts": [...], "runs": {name: [first, last, fact, first, last, fact, …]}}:
for each name the spans of releases (indexes, both ends included) over which one fact holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TABLES = ("flags", "config_keys", "environment", "metrics", "architectures", "quantization")
Packed = dict[str, Any]


def pack(releases: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Packed]:
    """The documents by file stem: a packed table for each of TABLES, and "releases" with what each release has once."""
    documents: dict[str, Packed] = {
        table: _table(releases, [facts[release][table] for release in releases]) for table in TABLES
    }
    traits = _table(releases, [{"parser": facts[release]["traits"]} for release in releases])
    documents["flags"]["parser"] = {"facts": traits["facts"], "runs": traits["runs"]["parser"]}
    documents["releases"] = _table(
        releases,
        [
            {"batch": facts[r]["batch"], **{f"requires {n}": s for n, s in facts[r]["requires"].items()}}
            for r in releases
        ],
    )
    return documents


def _table(releases: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> Packed:
    facts: list[Any] = []
    index_of: dict[str, int] = {}
    runs: dict[str, list[int]] = {}
    for position, column in enumerate(columns):
        for name, fact in column.items():
            key = json.dumps(fact, sort_keys=True, ensure_ascii=False)
            if key not in index_of:
                index_of[key] = len(facts)
                facts.append(fact)
            run = runs.setdefault(name, [])
            if run and run[-2] == position - 1 and run[-1] == index_of[key]:
                run[-2] = position
            else:
                run.extend((position, position, index_of[key]))
    return {"releases": list(releases), "facts": facts, "runs": {name: runs[name] for name in sorted(runs)}}


def dumps(document: Packed) -> str:
    """The text of a document: one line, the same bytes for the same facts."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def spans(run: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """(first, last, fact) of each span of a run."""
    return zip(run[0::3], run[1::3], run[2::3], strict=True)


def fact_at(table: Packed, name: str, position: int) -> Any:
    """The fact that holds for a name in one release; None where the release has none of that name."""
    found = index_at(table["runs"].get(name, ()), position)
    return None if found is None else table["facts"][found]


def index_at(run: Sequence[int], position: int) -> int | None:
    """The number of the fact in force in one release, None where there is none."""
    for first, last, fact in spans(run):
        if first <= position <= last:
            return fact
    return None


def names_at(table: Packed, position: int) -> list[str]:
    """All names that one release has, in the order of the table."""
    return [name for name, run in table["runs"].items() if index_at(run, position) is not None]
