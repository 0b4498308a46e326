"""The documents of `qvl-doctor flags`: what a release accepts, and one flag's history."""

from __future__ import annotations

from typing import Any

from qvl_doctor.core.vllm.advice import Move
from qvl_doctor.core.vllm.history import as_version
from qvl_doctor.core.vllm.knowledge import FlagFact, Knowledge

SCHEMA = "qvl-doctor/flags/1"
HISTORY_SCHEMA = "qvl-doctor/flag-history/1"


def flags_document(known: Knowledge, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The JSON form of everything that a release accepts (or of the flags named, in their order).

    `since` and `until` are over all known releases, `until` null while the newest still has the flag; `replaced_by`
    is what says the same in the newest release, for flags that are on their way out.
    """
    facts = known.flags()
    chosen = list(facts.values()) if names is None else [f for n in names if (f := known.flag(n)) is not None]
    return {
        "schema": SCHEMA,
        "vllm_version": known.asked or known.release,
        "knowledge": known.basis,
        "flags": [_flag(known, fact) for fact in chosen],
    }


def _flag(known: Knowledge, fact: FlagFact) -> dict[str, Any]:
    history = known.history(fact.name)
    leaving = fact.deprecated or history.until is not None
    return {
        "name": fact.name,
        **_taken(fact),
        "since": history.since,
        "until": history.until,
        "replaced_by": _replaced_by(known, fact.name) if leaving else None,
    }


def _taken(fact: FlagFact) -> dict[str, Any]:
    """How a release takes the flag."""
    return {
        "aliases": list(fact.aliases),
        "negation": fact.negation,
        "value": base_kind(fact),
        "form": fact.value,
        "choices": None if fact.choices is None else list(fact.choices),
        "default": fact.default,
        "deprecated": fact.deprecated,
    }


def base_kind(fact: FlagFact) -> str:
    """bool, int, float, str or json; "pairs" where only KEY=VALUE is taken. The finer `form` is FlagFact.value."""
    if fact.takes_json:
        return "json"
    return "int" if fact.value.startswith("human-int") else fact.value


def flag_history_document(known: Knowledge, name: str) -> dict[str, Any] | None:
    """One flag over all releases: the spans in which it was taken one and the same way, oldest first.

    `known` may be any release; None if no release ever had an option of that name.
    """
    history = known.history(name)
    if not history.existed:
        return None
    return {
        "schema": HISTORY_SCHEMA,
        "name": name,
        "since": history.since,
        "since_or_earlier": history.earlier_possible,
        "until": history.until,
        "deprecated_since": history.deprecated_since,
        "replaced_by": _replaced_by(known, name) if history.until or history.deprecated_since else None,
        "spans": [_span(first, last, fact) for first, last, fact in known.history_spans(name)],
    }


def _span(first: str, last: str, fact: FlagFact) -> dict[str, Any]:
    return {
        "first": first,
        "last": last,
        **_taken(fact),
        "note": fact.note or None,
        "source": fact.source,
    }


def never_existed_document(known: Knowledge, name: str, language: str = "en") -> dict[str, Any]:
    """What can be said of an option that no release ever had."""
    moves = known.advice.moves.get(name, ())
    why = moves[0].why.get(language) or moves[0].why.get("en") if moves else None
    return {
        "schema": HISTORY_SCHEMA,
        "name": name,
        "since": None,
        "until": None,
        "replaced_by": _replaced_by(known, name),
        "why": why,
        "spans": [],
    }


def _replaced_by(known: Knowledge, name: str) -> str | None:
    """What says the same in releases that do not have the flag any more, in words of the command line."""
    history = known.history(name)
    moves = known.advice.moves.get(name, ())
    last = as_version(history.until) if history.until else None
    for move in moves:
        text = _in_words(move)
        if text is None:
            continue
        target = text.split(" ", 1)[0].partition(".")[0]
        later = known.history(target)
        if later.existed and (last is None or later.after(last) is not None):
            return text
    return None


def _in_words(move: Move) -> str | None:
    if move.to is not None:
        return move.to
    if move.into is not None:
        return f"{move.into}.{move.key}" if move.key else move.into
    if move.use:
        return " ".join(move.use)
    if move.values:
        return next((use[0].split(" ", 1)[0] for use in move.values.values() if use), None)
    return "--mm-processor-kwargs" if move.pixels is not None else None
