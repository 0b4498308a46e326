"""Reports as JSON documents of the public contract."""

from __future__ import annotations

from typing import Any

from qvl_doctor.core.diagnose import CommandReport, Report
from qvl_doctor.core.findings import Edit, Finding
from qvl_doctor.core.masking import masked
from qvl_doctor.text import said

DIAGNOSIS_SCHEMA = "qvl-doctor/diagnosis/1"
FIX_SCHEMA = "qvl-doctor/fix/1"


def diagnosis_document(report: Report, *, verbose: bool = False) -> dict[str, Any]:
    """The diagnosis; secrets are masked."""
    server = report.server
    document: dict[str, Any] = {
        "schema": DIAGNOSIS_SCHEMA,
        "server": {
            "vllm_version": server.vllm_version,
            "version_from": server.version_from,
            "knowledge": report.knowledge,
            "model": server.model,
            "state": server.state,
        },
        "findings": [finding_document(finding) for finding in report.findings],
        "command": _command(report.commands[0]) if len(report.commands) == 1 else None,
        "plan": None,
    }
    if len(report.commands) > 1:
        document["commands"] = [
            {"where": one.where, **_command(one), "findings": [finding_document(f) for f in one.findings]}
            for one in report.commands
        ]
    if verbose:
        document["undecided"] = [{"rule": one.rule, "missing": list(one.missing)} for one in report.undecided]
    return document


def fix_document(report: Report) -> dict[str, Any]:
    """The corrected commands with the edits that make them."""
    return {
        "schema": FIX_SCHEMA,
        "commands": [
            {"where": one.where, **_command(one), "edits": [edit_document(edit) for edit in one.edits]}
            for one in report.commands
        ],
        "manual": [edit_document(edit) for edit in manual_edits(report)],
        "findings": [finding_document(finding) for finding in report.findings],
    }


def manual_edits(report: Report) -> tuple[Edit, ...]:
    """What the person has to do: edits of packages, host and client, and those marked manual.

    What the corrected command sets already is not asked for a second time with another value.
    """
    applied = {(edit.op, edit.name) for command in report.commands for edit in command.edits}
    concerning = (one for one in report.findings if one.severity != "info" or one.scope == "request")
    wanted = [edit for finding in concerning for edit in finding.edits]
    return tuple(dict.fromkeys(edit for edit in wanted if (edit.op, edit.name) not in applied))


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding in the contract's form."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "risk": finding.risk,
        "title": finding.title,
        "explanation": finding.explanation,
        "todo": finding.todo,
        "evidence": [{"source": e.source, "where": e.where, "text": masked(e.text)} for e in finding.evidence],
        "edits": [edit_document(edit) for edit in finding.edits],
    }


def edit_document(edit: Edit) -> dict[str, Any]:
    """One edit in the contract's form."""
    return {
        "op": edit.op,
        "name": edit.name,
        "value": edit.value if edit.value is None else masked(edit.value),
        "reason": edit.reason,
        "safety": edit.safety,
    }


def _command(command: CommandReport) -> dict[str, Any]:
    return {
        "before": masked(command.before),
        "after": masked(command.after),
        "changed": command.changed,
        "not_editable": None if command.not_editable is None else masked(said("en", command.not_editable)),
        "recovered": command.recovered,
    }
