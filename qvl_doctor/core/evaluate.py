"""Judging: rules over facts become findings, the root cause first and its symptoms left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qvl_doctor.core.clauses import Clause, version_holds
from qvl_doctor.core.facts import Known, Value, View
from qvl_doctor.core.findings import CONFIDENCES, SEVERITIES, Edit, Evidence, Finding, Severity
from qvl_doctor.core.messages import filled, value_of
from qvl_doctor.core.records import record, replace
from qvl_doctor.core.rules import Fix, Rule, When, pattern_key

if TYPE_CHECKING:
    from qvl_doctor.core.logs import LogMatch, Matches

_EVIDENCE_LINES = 4  # of one finding
_EVIDENCE_CHARACTERS = 300
_INTERMEDIATE = ("derived", "effective", "item", "log", "match")  # results on the way: they prove nothing


@record
class Undecided:
    """A rule that the facts at hand neither confirm nor exclude, and what would decide it."""

    rule: str
    missing: tuple[str, ...]


@record
class Judgement:
    """All findings in order, and the rules that lack a fact."""

    findings: tuple[Finding, ...]
    undecided: tuple[Undecided, ...]


@record
class _Fired:
    rule: Rule
    finding: Finding
    line: int  # of the first evidence in the log; large where there is none


def judge(
    rules: Sequence[Rule],
    view: View,
    language: str,
    *,
    ignore: frozenset[str] = frozenset(),
    flag_exists: Callable[[str], bool | None] = lambda _flag: None,
) -> Judgement:
    """Evaluate every rule over the facts.

    `flag_exists` says of a flag whether the version at hand takes it; edits that set one it does not take are left
    out. Order: faults before risks, then severity, "possible" after surer ones, the rule's rank, the log's order.
    """
    fired: list[_Fired] = []
    undecided: list[Undecided] = []
    for rule in rules:
        if rule.id in ignore:
            continue
        missing: set[str] = set()
        found = list(_rule_findings(rule, view, language, flag_exists, missing))
        fired += found
        if not found and missing:
            undecided.append(Undecided(rule.id, tuple(sorted(missing))))
    return Judgement(tuple(one.finding for one in _arranged(fired)), tuple(undecided))


def _arranged(fired: Sequence[_Fired]) -> list[_Fired]:
    ordered = sorted(fired, key=_order)
    explained: set[str] = set()
    clusters: set[str] = set()
    kept: list[_Fired] = []
    for one in ordered:
        if one.rule.fallback or one.rule.id in explained:
            continue
        if one.rule.cluster is not None:
            if one.rule.cluster in clusters:
                continue
            clusters.add(one.rule.cluster)
        if not one.finding.risk:
            explained.update(one.rule.explains)
        kept.append(one)
    kept = [one for one in kept if one.rule.id not in explained]
    if not any(one.finding.severity in ("critical", "error") and not one.finding.risk for one in kept):
        kept += [one for one in ordered if one.rule.fallback and one.rule.id not in explained]
        kept.sort(key=_order)
    return kept


def _order(one: _Fired) -> tuple[bool, int, bool, int, int, int]:
    finding = one.finding
    return (
        finding.risk,
        SEVERITIES.index(finding.severity),
        finding.confidence == "possible",
        one.rule.rank,
        one.line,
        CONFIDENCES.index(finding.confidence),
    )


def _rule_findings(
    rule: Rule, view: View, language: str, flag_exists: Callable[[str], bool | None], missing: set[str]
) -> Iterator[_Fired]:
    per_item = tuple(when for when in rule.when if any(clause.fact.startswith("item.") for clause in when.facts))
    found = False
    for item in _items(rule, view):
        plain = {name: value for name, value in item.items() if isinstance(value, bool | int | float | str)}
        scope = view.over({f"item.{name}": Known(value) for name, value in plain.items()})
        fired = _fired(rule, per_item, scope, language, flag_exists, missing)
        if fired is not None:
            found = True
            yield _with_item(fired, item)
    if not found:
        fired = _fired(
            rule, tuple(when for when in rule.when if when not in per_item), view, language, flag_exists, missing
        )
        if fired is not None:
            yield fired


def _items(rule: Rule, view: View) -> Iterable[Mapping[str, object]]:
    if rule.foreach is None:
        return ()
    items = _list(view, f"derived.{rule.foreach}")
    if rule.foreach != "flags":
        return items
    # what the command's check found goes before what the log says of the same flag
    named = {item.get("name") for item in items}
    return (*items, *(item for item in _list(view, "derived.refused_flags") if item.get("name") not in named))


def _list(view: View, name: str) -> tuple[Mapping[str, object], ...]:
    value = view.value(name)
    return value if isinstance(value, tuple) else ()


def _with_item(fired: _Fired, item: Mapping[str, object]) -> _Fired:
    """The finding with the edits, evidence and confidence that the list item brings along."""
    edits = tuple(edit for edit in _entries(item, "edits") if isinstance(edit, Edit))
    evidence = tuple(one for one in _entries(item, "evidence") if isinstance(one, Evidence))
    confidence = item.get("confidence")
    finding = replace(
        fired.finding,
        edits=(*edits, *fired.finding.edits),
        evidence=_few(evidence) or fired.finding.evidence,
        confidence=next((one for one in CONFIDENCES if one == confidence), fired.finding.confidence),
    )
    return replace(fired, finding=finding)


def _entries(item: Mapping[str, object], key: str) -> tuple[object, ...]:
    value = item.get(key)
    return value if isinstance(value, tuple) else ()


def _fired(
    rule: Rule,
    alternatives: Sequence[When],
    view: View,
    language: str,
    flag_exists: Callable[[str], bool | None],
    missing: set[str],
) -> _Fired | None:
    """The rule's finding by the first of the alternatives that holds."""
    for when in alternatives:
        hit = _alternative(rule, when, view, missing)
        if hit is None:
            continue
        inner, evidence, line = hit
        title, why, todo = (filled(_text(rule, when, language, key), inner) for key in ("title", "why", "todo"))
        finding = Finding(
            rule=rule.id,
            severity=_severity(rule, when, view),
            confidence=when.confidence,
            risk=rule.risk if when.risk is None else when.risk,
            title=title,
            explanation=why,
            todo=todo,
            evidence=_few(evidence) or _command_shown(view),
            edits=tuple(_edits(rule.fix, inner, language, flag_exists)),
            status=rule.status,
            scope=rule.scope,
        )
        return _Fired(rule, finding, line)
    return None


def _severity(rule: Rule, when: When, view: View) -> Severity:
    """A refused request is no fault of a server that answers others."""
    severity = when.severity or rule.severity
    return "info" if rule.scope == "request" and view.flag("derived.answers_requests") else severity


def _text(rule: Rule, when: When, language: str, key: str) -> str:
    own = when.text.get(language, {})
    return own.get(key) or rule.text.get(language, rule.text["en"]).get(key, "")


def _alternative(
    rule: Rule, when: When, view: View, missing: set[str]
) -> tuple[View, tuple[Evidence, ...], int] | None:
    """The view with the match laid over, the evidence and its line, where the alternative holds; else None."""
    matches = view.objects.log.matches if view.objects.log is not None else {}
    others = _other_lines(rule, when, matches)
    if others is None:
        return None
    in_range = version_holds(when.vllm, view)
    if in_range is False:
        return None
    lacking: set[str] = set() if in_range else {"version.vllm"}
    for match in _candidates(rule, when, matches):
        groups = {} if match is None else match.groups
        inner = view.over({f"match.{name}": Known(text) for name, text in groups.items()})
        verdicts = [(clause, clause.holds(inner)) for clause in when.facts]
        if any(holds is False for _, holds in verdicts):
            continue
        unknown = {name for clause, holds in verdicts if holds is None for name in _missing(clause, inner)} | lacking
        if unknown:
            if match is not None or others or any(holds for _, holds in verdicts):
                missing |= unknown
            continue
        evidence = [] if match is None else [Evidence("log", match.where, match.text)]
        evidence += [Evidence("log", other.where, other.text) for other in others]
        for clause in when.facts:
            evidence += clause.evidence(inner)
        line = match.line_number if match is not None else others[0].line_number if others else 1 << 60
        return inner, tuple(evidence), line
    return None


def _missing(clause: Clause, view: View) -> tuple[str, ...]:
    return clause.unknown_facts(view) or (clause.fact,)


def _candidates(rule: Rule, when: When, matches: Mapping[str, Matches]) -> Iterator[LogMatch | None]:
    """The log lines to try, in order; a single None for an alternative that rests on facts alone."""
    if not when.log:
        yield None
        return
    found: list[LogMatch] = []
    for position in range(len(when.log)):
        entry = matches.get(pattern_key(rule.id, when.index, "log", position))
        if entry is not None:
            found += (*entry.first, entry.last)
    found.sort(key=lambda match: match.line_number, reverse=when.pick == "last")
    previous = -1
    for match in found:
        if match.line_number != previous and (not when.phase or match.phase in when.phase):
            yield match
        previous = match.line_number


def _other_lines(rule: Rule, when: When, matches: Mapping[str, Matches]) -> list[LogMatch] | None:
    """The lines that `also` asks for, or None where one is missing or a line of `never` is there."""
    if any(pattern_key(rule.id, when.index, "never", position) in matches for position in range(len(when.never))):
        return None
    lines = []
    for position in range(len(when.also)):
        entry = matches.get(pattern_key(rule.id, when.index, "also", position))
        if entry is None:
            return None
        lines.append(entry.first[0])
    return lines


def _few(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    kept: dict[tuple[str, str], Evidence] = {}
    for one in evidence:
        kept.setdefault((one.source, one.text), one)
    observed = [one for one in kept.values() if one.source != "plan"]
    computed = [one for one in kept.values() if one.source == "plan" and one.where not in _INTERMEDIATE]
    return tuple((observed + computed)[:_EVIDENCE_LINES])


def _command_shown(view: View) -> tuple[Evidence, ...]:
    """What a finding about a command as a whole rests on: the command."""
    launch = view.objects.launch
    return () if launch is None else (Evidence("launch", launch.where, launch.text[:_EVIDENCE_CHARACTERS]),)


def _edits(
    fixes: Sequence[Fix], view: View, language: str, flag_exists: Callable[[str], bool | None]
) -> Iterator[Edit]:
    taken: set[str] = set()
    for fix in fixes:
        if fix.group in taken or version_holds(fix.vllm, view) is not True:
            continue
        if any(clause.holds(view) is not True for clause in fix.facts):
            continue
        template = fix.value_zh if language == "zh" and fix.value_zh is not None else fix.value
        value = None if template is None else value_of(template, view)
        if value is None and fix.value is not None:
            continue
        if fix.op in ("set", "rename") and _refused(fix, value, flag_exists):
            continue
        if fix.op == "unset" and fix.name.startswith("--") and _value_given(view, fix.name) is None:
            continue
        if fix.op == "set" and value is not None and _value_given(view, fix.name) == value:
            continue  # it is already so
        if fix.group is not None:
            taken.add(fix.group)
        reason = filled(fix.reason.get(language) or fix.reason["en"], view)
        yield Edit(fix.op, fix.name, value, reason, fix.safety)


def _refused(fix: Fix, value: str | None, flag_exists: Callable[[str], bool | None]) -> bool:
    target = value if fix.op == "rename" else fix.name
    return target is not None and target.startswith("--") and flag_exists(target.partition(".")[0]) is False


def _value_given(view: View, name: str) -> Value | str | None:
    return view.text(f"launch.{name.removeprefix('--').replace('-', '_')}")
