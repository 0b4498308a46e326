"""Testing rules by the samples in their files: through the whole diagnosis, with all rules."""

from __future__ import annotations

from collections.abc import Sequence

from qvl_doctor.core.diagnose import Report
from qvl_doctor.core.findings import Edit
from qvl_doctor.core.records import record
from qvl_doctor.core.rules import Rule, Sample


@record
class SampleOutcome:
    """One sample of one rule: passed, or the sentences that say what differs."""

    rule: str
    index: int
    where: str
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures


def checked(rule: Rule, sample: Sample, report: Report) -> SampleOutcome:
    """Compare a report with what the sample expects."""
    shown = [finding.rule for finding in report.findings]
    failures: list[str] = []
    mine = [finding for finding in report.findings if finding.rule == rule.id]
    if not sample.fires and mine:
        failures.append(f"fires, but should be silent: {mine[0].title}")
    if sample.fires and not mine:
        failures.append(f"is silent, but should fire; shown instead: {', '.join(shown) or 'nothing'}")
    if sample.fires and mine and sample.first and shown[0] != rule.id:
        failures.append(f"is not the first finding: {', '.join(shown)}")
    if sample.fires and mine:
        failures += _text_failures(mine[0].title, mine[0].explanation, mine[0].todo)
        if not mine[0].evidence:
            failures.append("rests on no evidence")
    if sample.fires and mine and sample.edits is not None:
        proposed = [spelled(edit) for finding in mine for edit in finding.edits]
        missing = [edit for edit in sample.edits if edit not in proposed]
        if missing:
            failures.append(f"does not propose {missing}; proposed: {proposed}")
    return SampleOutcome(rule.id, sample.index, rule.where, tuple(failures))


def spelled(edit: Edit) -> str:
    """An edit as sample files write it: "op name value"."""
    return " ".join(part for part in (edit.op, edit.name, edit.value) if part)


def lacking_samples(rule: Rule) -> tuple[str, ...]:
    """What a rule file should show and does not: a case that fires and one that does not."""
    kinds = {sample.fires for sample in rule.samples}
    wanted: Sequence[tuple[bool, str]] = (
        (True, "no sample in which it fires"),
        (False, "no sample in which it is silent"),
    )
    return tuple(message for kind, message in wanted if kind not in kinds)


def _text_failures(*texts: str) -> list[str]:
    return [f"a fact in the text is unknown: {text[:120]!r}" for text in texts if "?" in text.split() or " ?" in text]
