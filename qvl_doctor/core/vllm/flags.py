"""Checks every flag of a launch command against what a release takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qvl_doctor.core.vllm.flag_conflicts import judge_effect, judge_together
from qvl_doctor.core.vllm.flag_problems import INVALID, NOT_YET, TYPO, Check, FlagProblem, Spelled
from qvl_doctor.core.vllm.flag_values import judge_value
from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.core.vllm.spelling import ALWAYS, spelled_option
from qvl_doctor.core.vllm.unknown_flags import judge_unknown

if TYPE_CHECKING:
    from qvl_doctor.core.facts import View
    from qvl_doctor.core.launch import Flag, LaunchCommand

MAX_FLAGS = 500


def check_flags(command: LaunchCommand, known: Knowledge, view: View, language: str = "en") -> tuple[FlagProblem, ...]:
    """All problems of a command's flags, in their order; those that take several flags to see come last.

    A command of another front end ("other") is not judged. Where the version is not known for sure
    (`known.basis` is "nearest"), what depends on it carries `detail["assumed"]`. Pure; never raises on any command.
    """
    if command.server == "other":
        return ()
    check = Check(command, known, view, language)
    foreign = any(flag.name in check.advice.opening_flags for flag in command.flags)
    found: list[FlagProblem] = []
    for flag in command.flags[:MAX_FLAGS]:
        problem = _judge(check, flag, foreign=foreign)
        if problem is not None:
            found.append(problem)
    found.extend(judge_together(check, frozenset(p.name for p in found if p.edits)))
    return tuple(found)


def _judge(check: Check, flag: Flag, *, foreign: bool) -> FlagProblem | None:
    if flag.spelled in ALWAYS or not flag.name.startswith("-") or _is_level(check, flag):
        return None
    spelled = spelled_option(flag, check.known)
    if spelled.fact is None:
        if foreign or check.command.server == "legacy":
            return None  # another parser is in charge
        return _negation(check, flag, spelled) or _underscores(check, flag) or judge_unknown(check, flag, spelled)
    return (
        _front_end(check, flag, spelled)
        or _dashes(check, flag, spelled)
        or judge_value(check, flag, spelled)
        or judge_effect(check, flag, spelled)
    )


def _is_level(check: Check, flag: Flag) -> bool:
    """-O3, which the parser itself turns into a flag with a value."""
    return flag.spelled == "-O" and bool(check.known.traits.level) and (flag.value or "").strip().isdigit()


def _negation(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """--no-x where the release has --x, but not yet (or no longer) as a pair."""
    base = check.known.flag(flag.name) if flag.negated or spelled.option.startswith("--no-") else None
    if base is None:
        return None
    history = check.known.history(spelled.option)
    why = check.say("negation", name=base.name, flag=spelled.option)
    edits = [check.edit("unset", flag.name, None, why)]
    return check.problem(NOT_YET, flag, why, edits=edits, span=(history.since, history.until))


def _underscores(check: Check, flag: Flag) -> FlagProblem | None:
    """--max_model_len in releases whose parser was plain argparse."""
    if "_" not in flag.spelled or check.known.traits.underscores:
        return None
    fact = check.known.flag(flag.name)
    if fact is None:
        return None
    why = check.say("underscores")
    value = "true" if fact.nargs == "switch" else flag.value
    edits = [check.edit("unset", flag.name, None, why), check.edit("set", fact.name, value, why)]
    return check.problem(TYPO, flag, why, edits=edits, nearest=fact.name)


def _front_end(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """A flag that only `vllm serve` takes, given to the API server module."""
    fact, server = spelled.fact, check.command.server
    if fact is None or server not in ("serve", "api_server") or server in fact.servers:
        return None
    if not any(server in other.servers for other in check.known.flags().values()):
        return None  # the release has no such front end that could be read
    why = check.say("front_end", flag=flag.spelled)
    return check.problem(INVALID, flag, why, edits=[check.edit("unset", flag.name, None, why)])


def _dashes(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """Typographic dashes in place of hyphens: right to the eye, another word to the parser."""
    if flag.spelled.isascii() or spelled.fact is None:
        return None
    reason = check.say("replace", flag=flag.spelled)
    value = "true" if spelled.fact.nargs == "switch" and flag.value is None else flag.value
    edits = [check.edit("rename", flag.spelled, spelled.option, reason), check.edit("set", flag.name, value, reason)]
    why = check.say("typo", flag=flag.spelled, nearest=spelled.option)
    return check.problem(TYPO, flag, why, edits=edits, nearest=spelled.option)
