"""What a diagnosis consists of: findings, the evidence they rest on, the edits they propose."""

from __future__ import annotations

from typing import Literal, get_args

from qvl_doctor.core.records import record

Op = Literal["set", "unset", "rename", "env", "unset-env", "docker", "package", "host", "client"]
Severity = Literal["critical", "error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible"]
Safety = Literal["safe", "unsafe", "manual"]
Scope = Literal["server", "request"]  # what the fault concerns: the server as a whole, or single requests to it
EvidenceSource = Literal["log", "launch", "metrics", "gpu", "host", "image", "plan"]

OPS: tuple[Op, ...] = get_args(Op)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # most severe first
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)  # surest first
SCOPES: tuple[Scope, ...] = get_args(Scope)
SAFETIES: tuple[Safety, ...] = get_args(Safety)


@record
class Edit:
    """One change: of a launch flag, an environment variable, a package, the host or the client.

    `name` is a flag ("--max-model-len"), "model", an environment variable, a package or a short slug;
    `value` is None where there is nothing to set (`unset`, a switch that is turned on).
    """

    op: Op
    name: str
    value: str | None = None
    reason: str = ""
    safety: Safety = "safe"


@record
class Evidence:
    """The very line (or flag, metric, figure) that a finding rests on; `where` is "file:line" or a source's name."""

    source: EvidenceSource
    where: str
    text: str


@record
class Finding:
    """One cause, in the reader's language, with what proves it and what mends it."""

    rule: str
    severity: Severity
    confidence: Confidence
    risk: bool
    title: str
    explanation: str
    todo: str
    evidence: tuple[Evidence, ...]
    edits: tuple[Edit, ...]
    status: Literal["stable", "preview"] = "stable"
    scope: Scope = "server"
