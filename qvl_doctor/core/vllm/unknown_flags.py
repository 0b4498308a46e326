"""Flags that the release at hand does not take: removed, not there yet, mistyped, or never there at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qvl_doctor.core.findings import Edit
from qvl_doctor.core.records import replace
from qvl_doctor.core.vllm.advice import Move
from qvl_doctor.core.vllm.flag_problems import NEVER, NO_EFFECT, NOT_YET, REMOVED, TYPO, Check, FlagProblem, Spelled
from qvl_doctor.core.vllm.flag_values import judge_value
from qvl_doctor.core.vllm.history import as_version, fits
from qvl_doctor.core.vllm.json_values import dumps, leaves, merged, scalar
from qvl_doctor.core.vllm.pixel_caps import capped
from qvl_doctor.core.vllm.spelling import nearest_option

if TYPE_CHECKING:
    from qvl_doctor.core.launch import Flag

NO_MEDIA = '{"image":0,"video":0}'
NO_MEDIA_PAIRS = "image=0,video=0"


def judge_unknown(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """The problem of an option that the release's parser does not have."""
    option = spelled.option
    if option in check.advice.plugin_flags:
        return None
    history = check.known.history(option)
    if history.existed:
        return _ignored(check, flag, option) or _of_other_release(check, flag, option)
    if check.advice.folklore(option):
        return _never(check, flag, option, sure=True)
    if check.command.server == "llm":
        return None  # the constructor takes fields that have no flag
    if len(spelled.prefixes) > 1:
        why = check.say("ambiguous", flag=option, options=", ".join(spelled.prefixes[:6]))
        return check.problem(TYPO, flag, why, detail={"options": ", ".join(spelled.prefixes)})
    near = nearest_option(option, check.known.spellings)
    if near is not None:
        return _typo(check, flag, option, near)
    return _never(check, flag, option, sure=False)


def _ignored(check: Check, flag: Flag, option: str) -> FlagProblem | None:
    """A keyword that Python's LLM class goes on taking, without using it, after the flag is gone."""
    move = check.advice.move(option, flag.value, check.known)
    if check.command.server != "llm" or move is None or move.constructor is None:
        return None
    if not fits(check.known.version, move.constructor):
        return None
    why = f"{check.say('effect', flag=flag.spelled)} {check.why(move.why)}".strip()
    return check.problem(NO_EFFECT, flag, why, edits=[check.edit("unset", flag.name, None, check.say("no_use"))])


def _of_other_release(check: Check, flag: Flag, option: str) -> FlagProblem:
    history = check.known.history(option)
    version = check.known.version
    earlier, later = history.before(version), history.after(version)
    removed = earlier is not None and not (later is not None and history.releases[0] == later)
    edits, instead = replacement(check, flag, option)
    if removed:
        why = check.say("removed", flag=option, until=earlier)
        kind = REMOVED
    else:
        since = later or history.since
        why = check.say("not_yet", flag=option, since=since)
        kind = NOT_YET
        if since is not None:
            upgrade = check.edit(
                "package", "vllm", f">={since}", check.say("upgrade", flag=option), safety="manual"
            )  # the flag may be what the user came for
            edits = (*edits, upgrade)
    move = check.advice.move(option, flag.value, check.known)
    detail = {"instead": instead} if instead else {}
    if move is not None and check.why(move.why):
        why = f"{why} {check.why(move.why)}"
    return check.problem(
        kind, flag, why, edits=edits, span=(history.since, earlier if removed else history.until), detail=detail
    )


def _never(check: Check, flag: Flag, option: str, *, sure: bool) -> FlagProblem:
    releases = check.known.all_releases
    why = check.say("never", flag=option, oldest=releases[0], newest=releases[-1])
    edits, instead = replacement(check, flag, option)
    move = check.advice.move(option, flag.value, check.known)
    if move is not None and check.why(move.why):
        why = f"{why} {check.why(move.why)}"
    newer = check.known.asked is not None and _is_newer(check)
    return check.problem(
        NEVER, flag, why, edits=edits, sure=sure or not newer, detail={"instead": instead} if instead else {}
    )


def _is_newer(check: Check) -> bool:
    """Whether the version stated is newer than all that the data describes: the flag may be new there."""
    return as_version(check.known.asked or "0") > as_version(check.known.all_releases[-1])


def _typo(check: Check, flag: Flag, option: str, near: str) -> FlagProblem:
    reason = check.say("replace", flag=flag.spelled)
    # Where only the dashes differ there is no other name to give; of one given twice, once is enough.
    again = flag.name == near or len(check.command.find(flag.name)) > 1 or check.command.has(near)
    edits: list[Edit] = [check.edit("unset" if again else "rename", flag.name, None if again else near, reason)]
    edits.extend(_under(check, flag, near, reason))
    why = check.say("typo", flag=option, nearest=near)
    return check.problem(TYPO, flag, why, edits=edits, nearest=near)


def _under(check: Check, flag: Flag, name: str, reason: str) -> list[Edit]:
    """The edits that give a flag its value under another name, put right if it is not one for that flag."""
    fact = check.known.flag(name)
    if fact is None or name in fact.negations:
        return []
    if fact.nargs == "switch":
        return [check.edit("set", name, "true", reason)]
    problem = judge_value(check, replace(flag, name=name, spelled=name), Spelled(name, fact, False))
    if problem is not None and problem.edits:
        return list(problem.edits)
    return [check.edit("set", name, flag.value, reason)]


def replacement(check: Check, flag: Flag, option: str, *, reason: str = "drop") -> tuple[tuple[Edit, ...], str]:
    """The edits that take the flag away and say the same in this release, and that replacement in words."""
    drop = check.edit("unset", flag.name, None, check.say(reason, flag=flag.spelled))
    move = check.advice.move(option, flag.value, check.known)
    if move is None:
        return (drop,), ""
    if _same_value(check, flag, move):
        target = move.to or ""
        because = check.say("replace", flag=flag.spelled)
        return (check.edit("rename", flag.name, target, because), *_under(check, flag, target, because)), target
    sets = _sets(check, flag, move)
    return (drop, *sets), "; ".join(e.name if e.value in (None, "true") else f"{e.name} {e.value}" for e in sets)


def _same_value(check: Check, flag: Flag, move: Move) -> bool:
    """Whether only the name changes: the value stays where and as it is written."""
    given = (flag.value or "").strip().lower()
    return (
        move.to is not None
        and flag.value is not None
        and not (given in move.values or "*" in move.values)
        and not check.command.has(move.to)
        and len(check.command.find(flag.name)) == 1
    )


def _sets(check: Check, flag: Flag, move: Move) -> list[Edit]:
    reason = check.say("replace", flag=flag.name)
    safety = "safe" if move.same else "unsafe"
    if move.pixels is not None:
        return capped(check)
    if flag.unresolved:
        safety = "unsafe"
    if move.env is not None:
        return [check.edit("env", move.env, flag.value, reason)] if flag.value else []
    named = _named(check, flag, move)
    if named is not None:
        return [check.edit("set", name, value, reason, safety=safety) for name, value in named]  # type: ignore[arg-type]
    if move.into is not None:
        return [check.edit("set", move.into, gathered(check, move.into), reason, safety=safety)]  # type: ignore[arg-type]
    return []


def _named(check: Check, flag: Flag, move: Move) -> list[tuple[str, str | None]] | None:
    """(flag, value) of the plain replacements of an entry; None where the value goes into a JSON flag."""
    value = (flag.value or "").strip().lower()
    if (move.values and (value in move.values or "*" in move.values)) or (move.use and not move.values):
        found: list[tuple[str, str | None]] = []
        for text in move.uses(flag.value):
            name, _, given = text.partition(" ")
            fact = check.known.flag(name)
            media = NO_MEDIA_PAIRS if fact is not None and fact.value == "pairs" else NO_MEDIA
            given = given.replace("{no_media}", media).replace("{value}", flag.value or "")
            found.append((name, given or "true"))
        return found
    if move.to is not None and flag.value is not None and not check.command.has(move.to):
        return [(move.to, flag.value)]
    return None if move.into is not None else []


def gathered(check: Check, into: str) -> str:
    """The JSON of a flag with everything that flags of this command move into it."""
    present = check.command.json_value(into)
    result = dict(present) if isinstance(present, dict) else {}
    for other in check.command.flags:
        fact = check.known.flag(other.name)
        if fact is not None and not fact.deprecated:
            continue
        move = check.advice.move(other.name, other.value, check.known)
        if move is None or move.into != into or move.key is None:
            continue
        value = True if other.value is None else scalar(other.value)
        if move.key == "model" and other.value == "[ngram]":  # the one value that was a method, not a model
            result = merged(result, ("method",), "ngram")
            continue
        result = merged(result, tuple(move.key.split(".")), value)
    fact = check.known.flag(into)
    if fact is not None and fact.value == "pairs":
        return ",".join(f"{'.'.join(path)}={value}" for path, value in leaves(result))
    return dumps(result)
