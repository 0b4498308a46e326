"""Flags that the server itself refused: its argument parser's last words in the log, judged like a command's flags.

People often bring only the line "vllm: error: unrecognized arguments: …", or, from Python, the keyword that
EngineArgs does not know. The flags quoted there are put into a command
of their own and checked against the release at hand. A refusal is a fact: where the release at hand would take the flag
(because its version was only assumed), the server is another release, and the flag's history says which.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.masking import masked
from qvl_doctor.core.records import record, replace
from qvl_doctor.core.vllm.flag_problems import INVALID, LIMIT, NOT_YET, QUOTING, Check, FlagProblem
from qvl_doctor.core.vllm.flags import check_flags

if TYPE_CHECKING:
    from qvl_doctor.core.facts import View
    from qvl_doctor.core.launch import Flag
    from qvl_doctor.core.logs import Failure, LogSummary
    from qvl_doctor.core.vllm.knowledge import Knowledge

_USAGE_ERROR = "usage error"  # type of such a failure in the log's summary
_MODEL = "MODEL"  # stands for the model in a command put together from a refusal
_KEYWORD = lazy_regex(
    r"\b(?:Async)?(?:EngineArgs|LLM|LLMEngine)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w{1,80})'"
)
_UNRECOGNIZED = lazy_regex(r"unrecognized arguments: (?P<words>.{1,2000})")
_AMBIGUOUS = lazy_regex(r"ambiguous option: (?P<words>\S{1,100}) could match")
_ARGUMENT = lazy_regex(r"argument (?:-\w+/)?(?P<flag>--[\w-]{1,80})(?:/\S{1,80})?: (?P<reason>.{1,600})")
_VALUES = (
    lazy_regex(r"Value (?P<value>.{0,300}?) cannot be converted"),
    lazy_regex(r"invalid choice: (?P<value>'[^']{0,200}'|\S{1,200}) \(choose"),
    lazy_regex(r"ignored explicit argument (?P<value>'[^']{0,200}')"),
    lazy_regex(r"invalid [\w.<>]{1,80} value: (?P<value>'.{0,300}')"),
)
_MAX_REFUSALS = 5  # failures of one log that are looked at


@record
class _Refusal:
    """What one line of the parser refuses: words of a command line, and whether the flags themselves are unknown.

    `complete` is False where the line names a flag whose value it keeps to itself.
    """

    words: tuple[str, ...]
    unknown: bool
    reason: str
    complete: bool = True


def refused_flags(log: LogSummary, known: Knowledge, view: View, language: str = "en") -> tuple[FlagProblem, ...]:
    """One problem for each flag that the log's argument errors name; `where` and `text` are those of the log's line."""
    found: dict[str, FlagProblem] = {}
    failures = [failure for failure in log.failures if failure.type in (_USAGE_ERROR, "TypeError")]
    for failure in failures[:_MAX_REFUSALS]:
        refusal = _refusal(failure.message)
        if refusal is None:
            continue
        for problem in _judged(refusal, failure, known, view, language):
            found.setdefault(problem.name, problem)
    return tuple(found.values())


def _refusal(message: str) -> _Refusal | None:
    keyword = _KEYWORD.search(message)
    if keyword:
        return _Refusal((f"--{keyword['name'].replace('_', '-')}",), True, message)
    unrecognized = _UNRECOGNIZED.search(message)
    if unrecognized:
        return _Refusal(tuple(unrecognized["words"].split()), True, message)
    ambiguous = _AMBIGUOUS.search(message)
    if ambiguous:
        return _Refusal((ambiguous["words"],), True, message)
    argument = _ARGUMENT.search(message)
    if argument is None:
        return None
    values = (pattern.search(argument["reason"]) for pattern in _VALUES)
    value = next((match["value"].strip("'") for match in values if match), None)
    words = (argument["flag"],) if value is None else (argument["flag"], value)
    return _Refusal(words, False, argument["reason"], value is not None or "expected" in argument["reason"])


def _judged(refusal: _Refusal, failure: Failure, known: Knowledge, view: View, language: str) -> Iterator[FlagProblem]:
    first = next((index for index, word in enumerate(refusal.words) if word.startswith("-")), None)
    if first is None:
        return
    text = shlex.join(["vllm", "serve", _MODEL, *refusal.words[first:]])
    commands = parse_text(text, grammar=known).commands
    if not commands:
        return
    checked = check_flags(commands[0], known, view, language) if refusal.complete else ()
    problems = {problem.flag: problem for problem in checked}
    check = Check(commands[0], known, view, language)
    for flag in commands[0].flags:
        problem = problems.get(flag.spelled) or (
            _of_unlike_release(check, flag) if refusal.unknown else _of_value(check, flag, refusal.reason)
        )
        if problem is not None:
            yield replace(problem, where=failure.where, text=failure.text)


def _of_unlike_release(check: Check, flag: Flag) -> FlagProblem | None:
    """A flag that the release at hand takes and this server does not: the server is older."""
    history = check.known.history(flag.name)
    if not history.existed or history.since is None:
        return None
    why = check.say("not_yet_here", flag=flag.spelled, since=history.since)
    edits = [
        check.edit("package", "vllm", f">={history.since}", check.say("upgrade", flag=flag.spelled), safety="manual")
    ]
    return check.problem(NOT_YET, flag, why, edits=edits, span=(history.since, history.until), sure=True)


def _of_value(check: Check, flag: Flag, reason: str) -> FlagProblem:
    """A value that the release at hand would take: the parser's own words say what it wanted."""
    kind = INVALID
    if "cannot be converted to <function" in reason or "invalid loads value" in reason or "KEY=VALUE" in reason:
        kind = LIMIT if flag.name == "--limit-mm-per-prompt" else QUOTING
    why = check.say("refused", flag=flag.spelled, reason=masked(reason)[:200])
    return check.problem(kind, flag, why, sure=True)
