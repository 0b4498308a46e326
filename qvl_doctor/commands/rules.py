"""`qvl-doctor rules list | show | test`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qvl_doctor import resources
from qvl_doctor.commands.inputs import Gathered, Given, assemble, style_of
from qvl_doctor.commands.result import Result
from qvl_doctor.core.clauses import parse_specifier
from qvl_doctor.core.diagnose import diagnose
from qvl_doctor.core.host import host_facts
from qvl_doctor.core.logs import LogReader, LogSummary
from qvl_doctor.core.logs.rows import Rows
from qvl_doctor.core.messages import without_marks
from qvl_doctor.core.rules import Rule, RuleProblem, Sample
from qvl_doctor.core.safe_text import printable
from qvl_doctor.core.samples import SampleOutcome, checked, lacking_samples
from qvl_doctor.errors import DoctorError, Exit
from qvl_doctor.render import Style
from qvl_doctor.sources import files
from qvl_doctor.sources.rule_store import load_rules, read_rule, rows_of_rules
from qvl_doctor.text import said, words
from qvl_doctor.wrapping import wrapped


def run(arguments: argparse.Namespace) -> Result:
    """Carry out the action."""
    style = style_of(arguments)
    if arguments.action == "list":
        return _list(load_rules(arguments.rules), style)
    if arguments.action == "show":
        return _show(load_rules(arguments.rules), arguments.id, style)
    return _test(arguments, style)


def _list(rules: Sequence[Rule], style: Style) -> Result:
    ordered = sorted(rules, key=lambda rule: rule.id)
    width = max((len(rule.id) for rule in ordered), default=0)

    def text() -> str:
        lines = [f"{rule.id:<{width}}  {_title(rule, style.language)}" for rule in ordered]
        return "\n".join([*lines, "", words(style.language, "rules_count", count=len(ordered))])

    return Result(lambda: {"schema": "qvl-doctor/rules/1", "rules": [_summary(rule) for rule in ordered]}, text)


def _summary(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "severity": rule.severity,
        "risk": rule.risk,
        "status": rule.status,
        "title": {language: _title(rule, language) for language in rule.text},
        "file": rule.where,
    }


def _title(rule: Rule, language: str) -> str:
    return printable(without_marks(rule.text[language]["title"]), keep_newlines=False)


def _show(rules: Sequence[Rule], rule_id: str, style: Style) -> Result:
    rule = next((rule for rule in rules if rule_id == rule.id or rule_id in rule.aliases), None)
    if rule is None:
        raise DoctorError("error_no_rule", hint="hint_rules_list", name=repr(printable(rule_id)))
    return Result(lambda: _rule_document(rule), lambda: _rule_text(rule, style))


def _rule_document(rule: Rule) -> dict[str, Any]:
    return {
        "schema": "qvl-doctor/rule/1",
        **_summary(rule),
        "text": {language: dict(texts) for language, texts in rule.text.items()},
        "when": [
            {
                "log": list(when.log),
                "also": list(when.also),
                "never": list(when.never),
                "phase": list(when.phase),
                "vllm": None if when.vllm is None else str(parse_specifier(when.vllm)),
                "confidence": when.confidence,
                "facts": [clause.spelled() for clause in when.facts],
            }
            for when in rule.when
        ],
        "fix": [
            {"op": fix.op, "name": fix.name, "value": fix.value, "safety": fix.safety, "reason": dict(fix.reason)}
            for fix in rule.fix
        ],
        "explains": list(rule.explains),
        "sources": list(rule.sources),
    }


def _rule_text(rule: Rule, style: Style) -> str:
    language = style.language
    texts = rule.text[language]
    tags = [words(language, f"severity_{rule.severity}"), *([words(language, "risk")] if rule.risk else [])]
    lines = [style.paint(rule.id, "bold") + f"  [{', '.join(tags)}]", *wrapped(_title(rule, language), style.width)]
    for key in ("why", "todo"):
        label = words(language, key)
        lines += ["", *wrapped(f"{label}: {without_marks(texts[key])}", style.width)]
    lines += ["", f"{words(language, 'rules_alternatives')}:"]
    for when in rule.when:
        parts = [*when.log, *(f"+ {regex}" for regex in when.also), *(f"- {regex}" for regex in when.never)]
        parts += [clause.spelled() for clause in when.facts]
        if when.vllm is not None:
            parts.append(f"vLLM {parse_specifier(when.vllm)}")
        if when.phase:
            parts.append(f"phase {'/'.join(when.phase)}")
        lines += [f"  • ({words(language, f'confidence_{when.confidence}')})", *(f"      {part}" for part in parts)]
    if rule.fix:
        lines += ["", f"{words(language, 'edit')}:"]
        for fix in rule.fix:
            head = " ".join(part for part in (fix.op, fix.name, fix.value) if part)
            lines += wrapped(f"  • [{fix.safety}] {head}: {fix.reason[language]}", style.width, "    ")
    if rule.sources:
        lines += ["", f"{words(language, 'rules_sources')}: {'; '.join(rule.sources)}"]
    return printable("\n".join(lines))


def _test(arguments: argparse.Namespace, style: Style) -> Result:
    tested, problems = _rules_at(arguments.path)
    everything = {rule.id: rule for rule in load_rules(arguments.rules)} if not problems else {}
    everything |= {rule.id: rule for rule in tested}
    rules = tuple(everything.values())
    rows = rows_of_rules(rules)
    outcomes = [_outcome(rule, sample, rules, rows) for rule in tested for sample in rule.samples]
    problems += [RuleProblem(rule.where, message) for rule in tested for message in lacking_samples(rule)]
    failed = [outcome for outcome in outcomes if not outcome.passed]

    def text() -> str:
        lines = [f"{one.where}: {one.message}" for one in problems]
        for outcome in failed:
            lines += [f"{outcome.where}: sample {outcome.index + 1}: {failure}" for failure in outcome.failures]
        counts = {"passed": len(outcomes) - len(failed), "failed": len(failed) + len(problems)}
        return printable("\n".join([*lines, words(style.language, "rules_ok", **counts)]))

    def document() -> dict[str, Any]:
        return {
            "schema": "qvl-doctor/rule-tests/1",
            "rules": len(tested),
            "passed": len(outcomes) - len(failed),
            "failed": [
                {"rule": one.rule, "sample": one.index + 1, "file": one.where, "failures": list(one.failures)}
                for one in failed
            ],
            "problems": [{"where": one.where, "message": one.message} for one in problems],
        }

    return Result(document, text, Exit.FINDINGS if failed or problems else Exit.OK)


def _rules_at(path: str | None) -> tuple[list[Rule], list[RuleProblem]]:
    target = resources.rules_folder() if path is None else Path(path)
    if not target.exists():
        raise DoctorError("error_no_path", path=printable(str(target)))
    rules: list[Rule] = []
    problems: list[RuleProblem] = []
    for file in [target] if target.is_file() else resources.rule_files(target):
        rule, found = read_rule(file)
        problems += found
        if rule is not None:
            rules.append(rule)
    if not rules and not problems:
        raise DoctorError("error_no_rule_file", path=printable(str(target)))
    return rules, problems


def _outcome(rule: Rule, sample: Sample, rules: Sequence[Rule], rows: Rows) -> SampleOutcome:
    _, wrong = host_facts(dict(sample.host))
    if wrong:
        return SampleOutcome(rule.id, sample.index, rule.where, tuple(said("en", problem) for problem in wrong))
    try:
        gathered = gathered_for(sample, rules, rows)
    except DoctorError as error:
        return SampleOutcome(rule.id, sample.index, rule.where, (str(error),))
    found = diagnose(gathered.observed, gathered.context, gathered.document, recovered=gathered.recovered)
    return checked(rule, sample, found)


def gathered_for(sample: Sample, rules: Sequence[Rule], rows: Rows) -> Gathered:
    """What a sample holds, as a diagnosis takes it; `rows` are the log patterns of `rules`. Raises DoctorError."""
    host, _ = host_facts(dict(sample.host))
    log = _sample_log(sample, rows)
    given = Given(command_text=sample.launch, log=log, host=host, gpu_text=sample.gpu, version=sample.vllm, alone=False)
    return assemble(rules, given, "en", frozenset())


def _sample_log(sample: Sample, rows: Rows) -> LogSummary | None:
    if sample.log_file is not None:
        # relative to the folder that holds the rules, which is the repository's root where samples are tested
        return files.read_log(str(resources.rules_folder().parent / sample.log_file), rows)
    if sample.log is None:
        return None
    reader = LogReader(rows, source="sample")
    reader.feed(sample.log.encode("utf-8"))
    return reader.finish()
