"""What says the same in another release: `data/vllm/replacements.toml` as values, and its choice for one release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qvl_doctor.core.records import record
from qvl_doctor.core.vllm.knowledge import Knowledge


@record
class Move:
    """A flag that some releases do not take, and what to use instead. See the head of the data file for the fields."""

    flag: str
    to: str | None
    into: str | None
    key: str | None
    use: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    pixels: str | None
    env: str | None
    constructor: str | None  # releases whose Python LLM(...) still takes it, with a warning
    same: bool
    folklore: bool
    why: Mapping[str, str]
    source: str

    def uses(self, value: str | None) -> tuple[str, ...]:
        """The flags to set for a given value, each "--flag" or "--flag value"."""
        if not self.values:
            return self.use
        return self.values.get((value or "").strip().lower(), self.values.get("*", self.use))

    def targets(self, value: str | None) -> tuple[str, ...]:
        """The names of all flags that this entry would set."""
        names = tuple(text.split(" ", 1)[0] for text in self.uses(value))
        return (*names, *(n.partition(".")[0] for n in (self.to, self.into) if n is not None))


@record
class Effect:
    """A flag that is taken and does nothing, where these conditions hold."""

    flag: str
    vllm: str | None
    engine: str | None
    families: tuple[str, ...]
    harmless: bool
    why: Mapping[str, str]


@record
class Advice:
    """The whole data file."""

    moves: Mapping[str, tuple[Move, ...]]
    effects: Mapping[str, tuple[Effect, ...]]
    meant: Mapping[str, Mapping[str, str]]
    plugin_flags: frozenset[str]
    opening_flags: frozenset[str]
    text: Mapping[str, Mapping[str, str]]

    def move(self, flag: str, value: str | None, known: Knowledge) -> Move | None:
        """The first entry for a flag whose targets the release takes, None if there is none."""
        for entry in self.moves.get(flag, ()):
            if all(known.flag(name) is not None for name in entry.targets(value)):
                return entry
        return None

    def folklore(self, flag: str) -> bool:
        """Whether the flag is one of those that much advice rests on and no release has."""
        return any(entry.folklore for entry in self.moves.get(flag, ()))

    def say(self, language: str, key: str, /, **names: object) -> str:
        """A text with its names filled in; English where the language is not there."""
        template = self.text.get(language, {}).get(key) or self.text["en"][key]
        return template.format_map({name: str(value) for name, value in names.items()})


def advice_of(document: Mapping[str, Any]) -> Advice:
    """The values of the parsed data file. Raises KeyError for a document that is not one."""
    moves: dict[str, list[Move]] = {}
    for kind in ("move", "folklore"):
        for row in document[kind]:
            moves.setdefault(row["flag"], []).append(_move(row, folklore=kind == "folklore"))
    effects: dict[str, list[Effect]] = {}
    for row in document["effect"]:
        effects.setdefault(row["flag"], []).append(_effect(row))
    plugins = document["plugin"]
    return Advice(
        moves={flag: tuple(rows) for flag, rows in moves.items()},
        effects={flag: tuple(rows) for flag, rows in effects.items()},
        meant={row["flag"]: row["meant"] for row in document["value"]},
        plugin_flags=frozenset(flag for plugin in plugins for flag in plugin["flags"]),
        opening_flags=frozenset(flag for plugin in plugins if plugin.get("opens") for flag in plugin["flags"]),
        text=document["text"],
    )


def _move(row: Mapping[str, Any], *, folklore: bool) -> Move:
    return Move(
        flag=row["flag"],
        to=row.get("to"),
        into=row.get("into"),
        key=row.get("key"),
        use=tuple(row.get("use", ())),
        values={value: tuple(use) for value, use in row.get("values", {}).items()},
        pixels=row.get("pixels"),
        env=row.get("env"),
        constructor=row.get("constructor"),
        same=row.get("same", not folklore),
        folklore=folklore,
        why=_why(row),
        source=row.get("source", ""),
    )


def _effect(row: Mapping[str, Any]) -> Effect:
    return Effect(
        flag=row["flag"],
        vllm=row.get("vllm"),
        engine=row.get("engine"),
        families=tuple(row.get("families", ())),
        harmless=row.get("harmless", False),
        why=_why(row),
    )


def _why(row: Mapping[str, Any]) -> Mapping[str, str]:
    return {language: row[language] for language in ("en", "zh") if language in row}
