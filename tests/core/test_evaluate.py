"""Judging: the root cause first, symptoms left out, unknown facts leave a rule undecided."""

from __future__ import annotations

from collections.abc import Mapping

from qvl_doctor.core.evaluate import Judgement, judge
from qvl_doctor.core.facts import Known, Objects, Value, View
from qvl_doctor.core.findings import Edit, Evidence
from qvl_doctor.core.logs import LinePattern, LogReader
from qvl_doctor.core.rules import Rule, parse_rule


def rule(rule_id: str, when: str, top: str = "", fix: str = "") -> Rule:
    text = f"""\
schema = 1
id = "{rule_id}"
{top}
{when}
{fix}
[en]
title = "{rule_id}"
why = "why"
todo = "todo"
[zh]
title = "{rule_id}"
why = "why"
todo = "todo"
"""
    parsed, problems = parse_rule(text, f"{rule_id}.toml")
    assert parsed is not None, problems
    return parsed


def judged(rules: list[Rule], log: str = "", facts: Mapping[str, Value] | None = None) -> Judgement:
    reader = LogReader([LinePattern(key, regex) for one in rules for key, regex in one.patterns()], source="log")
    reader.feed(log.encode())
    base = {"log.present": True, **(facts or {})}
    view = View(
        {name: Known(value, Evidence("launch", "command:1", name)) for name, value in base.items()},
        Objects(log=reader.finish()),
    )
    return judge(rules, view, "en")


def ids(judgement: Judgement) -> list[str]:
    return [finding.rule for finding in judgement.findings]


DEATH = rule("engine-died", "[[when]]\nlog = 'engine died'", "fallback = true\nrank = 90")
CAUSE = rule("cause-one", "[[when]]\nlog = 'cause one'", 'explains = ["symptom-one"]\nrank = 20')
SYMPTOM = rule("symptom-one", "[[when]]\nlog = 'symptom one'", "rank = 10")


def test_symptoms_are_explained_away_and_fallbacks_stay_behind() -> None:
    log = "symptom one\ncause one\nengine died\n"
    assert ids(judged([DEATH, CAUSE, SYMPTOM], log)) == ["cause-one"]
    assert ids(judged([DEATH, CAUSE, SYMPTOM], "symptom one\n")) == ["symptom-one"]
    assert ids(judged([DEATH, CAUSE, SYMPTOM], "engine died\n")) == ["engine-died"]


def test_order_is_faults_then_severity_then_rank() -> None:
    rules = [
        rule("late-risk", "[[when]]\nlog = 'x'", 'risk = true\nseverity = "critical"'),
        rule("low-rank", "[[when]]\nlog = 'x'", "rank = 60"),
        rule("high-rank", "[[when]]\nlog = 'x'", "rank = 20"),
        rule("only-possible", "[[when]]\nlog = 'x'\nconfidence = 'possible'", "rank = 1"),
        rule("a-warning", "[[when]]\nlog = 'x'", 'severity = "warning"\nrank = 1'),
    ]
    assert ids(judged(rules, "x\n")) == ["high-rank", "low-rank", "only-possible", "a-warning", "late-risk"]


def test_one_of_a_cluster() -> None:
    rules = [
        rule("memory-a", "[[when]]\nlog = 'out of memory'", 'cluster = "oom"\nrank = 60'),
        rule("memory-b", "[[when]]\nlog = 'out of memory'\nalso = ['capture']", 'cluster = "oom"\nrank = 30'),
    ]
    assert ids(judged(rules, "out of memory\n")) == ["memory-a"]
    assert ids(judged(rules, "capture\nout of memory\n")) == ["memory-b"]


def test_unknown_is_undecided_not_false() -> None:
    one = rule("needs-fact", '[[when]]\nlog = \'x\'\nfacts = { "gpu.count" = "> 1" }')
    undecided = judged([one], "x\n")
    assert undecided.findings == ()
    assert [(entry.rule, entry.missing) for entry in undecided.undecided] == [("needs-fact", ("gpu.count",))]
    assert judged([one], "x\n", {"gpu.count": 1}).undecided == ()
    assert ids(judged([one], "x\n", {"gpu.count": 2})) == ["needs-fact"]
    assert judged([one], "y\n").undecided == ()  # nothing points to it


def test_alternatives_and_lines_that_must_not_be_there() -> None:
    one = rule(
        "two-ways",
        "[[when]]\nlog = 'first'\nnever = ['but fine']\n[[when]]\nlog = 'second'\nconfidence = 'likely'",
    )
    assert judged([one], "first\n").findings[0].confidence == "certain"
    assert judged([one], "first\nbut fine\n").findings == ()
    assert judged([one], "first\nbut fine\nsecond\n").findings[0].confidence == "likely"


def test_the_sighting_that_satisfies_the_facts_is_taken() -> None:
    one = rule("bigger", '[[when]]\nlog = \'size (?P<n>\\d+)\'\nfacts = { "match.n" = "> 10" }')
    (finding,) = judged([one], "size 3\nsize 12\nsize 99\n").findings
    assert finding.evidence[0].where == "log:2"


FIX = """
[[fix]]
op = "set"
name = "--max-num-seqs"
value = "{match.n}"
group = "seqs"
en = "r"
zh = "r"
[[fix]]
op = "set"
name = "--max-num-seqs"
value = "64"
group = "seqs"
en = "r"
zh = "r"
[[fix]]
op = "unset"
name = "--enforce-eager"
en = "r"
zh = "r"
[[fix]]
op = "set"
name = "--not-there"
value = "1"
en = "r"
zh = "r"
"""


def test_edits_of_a_group_exclude_each_other_and_what_cannot_be_set_is_left_out() -> None:
    one = rule("fixable", "[[when]]\nlog = ['n=(?P<n>\\d+)', 'plain']", fix=FIX)
    assert [(e.name, e.value) for e in judged([one], "n=8\n").findings[0].edits][:1] == [("--max-num-seqs", "8")]
    edits = judged([one], "plain\n", {"launch.present": True}).findings[0].edits
    assert ("--max-num-seqs", "64") in [(e.name, e.value) for e in edits]
    assert "--enforce-eager" not in [e.name for e in edits]
    reader = LogReader([LinePattern(key, regex) for key, regex in one.patterns()], source="log")
    reader.feed(b"plain\n")
    view = View({"log.present": Known(True)}, Objects(log=reader.finish()))
    kept = judge([one], view, "en", flag_exists=lambda flag: flag != "--not-there").findings[0].edits
    assert "--not-there" not in [e.name for e in kept]


def test_one_finding_per_list_item_with_what_the_item_brings() -> None:
    one = rule(
        "per-flag",
        "[[when]]\nfacts = { \"item.kind\" = \"== 'gone'\" }\n[[when]]\nlog = 'unrecognized'",
        'foreach = "flags"',
    )
    edit = Edit("unset", "--old")
    items = (
        {"kind": "gone", "edits": (edit,), "evidence": (Evidence("launch", "command:1", "--old"),)},
        {"kind": "kept", "edits": (), "evidence": ()},
    )
    found = judged([one], "unrecognized\n", {"derived.flags": items}).findings
    assert [finding.edits for finding in found] == [(edit,)]
    assert found[0].evidence[0].text == "--old"
    assert ids(judged([one], "unrecognized\n")) == ["per-flag"]  # without items, the log alone
