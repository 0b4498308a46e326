"""Reports for people: the answer first, then the line that proves it, why, what to do, the corrected command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qvl_doctor.core.diagnose import CommandReport, Report
from qvl_doctor.core.findings import Edit, Evidence, Finding
from qvl_doctor.core.masking import masked
from qvl_doctor.core.records import record
from qvl_doctor.core.safe_text import printable
from qvl_doctor.report import manual_edits
from qvl_doctor.text import words
from qvl_doctor.wrapping import cells, wrapped

_COLOURS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36", "good": "32", "dim": "2", "bold": "1"}
_MARKS = {"critical": "✗", "error": "✗", "warning": "!", "info": "i"}
_EVIDENCE_CHARACTERS = 400
_LABEL_CELLS = 9


@record
class Style:
    """How to write: language, width in terminal cells, colour or not."""

    language: str
    width: int = 100
    colour: bool = False

    def paint(self, text: str, kind: str) -> str:
        return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if self.colour else text


def report_text(report: Report, style: Style, *, verbose: bool = False) -> str:
    """The diagnosis as a page of text."""
    lines = [*_head(report, style)]
    if len(report.commands) > 1:
        for command in report.commands:
            lines += ["", *_article_command(command, style)]
    else:
        lines += _findings(report.findings, style)
        for command in report.commands:
            lines += ["", *_command(command, style)]
    lines += _by_hand(report, style)
    if verbose and report.undecided:
        lines += ["", _heading("undecided", style)]
        for one in report.undecided:
            text = words(style.language, "undecided_line", rule=one.rule, facts=", ".join(one.missing))
            lines += _bullet(text, style)
    return "\n".join(lines)


def fix_text(report: Report, style: Style) -> str:
    """Differences and the corrected command of each launch command, without the diagnosis."""
    lines: list[str] = []
    for command in report.commands:
        if len(report.commands) > 1:
            lines.append(style.paint(words(style.language, "article_command", where=command.where), "bold"))
        lines += [*_difference(command, style), *_command(command, style), ""]
    return "\n".join([*lines[:-1], *_by_hand(report, style)])


def edit_text(edit: Edit, language: str) -> str:
    """One edit in a few words."""
    value = "" if edit.value is None else masked(edit.value)
    if edit.op == "set" and edit.name in ("model", "line-continuation"):
        key = f"op_{edit.name}"
    elif edit.op == "set" and value in ("", "true"):
        key = "op_switch_on"
    else:
        key = f"op_{edit.op}"
    return printable(words(language, key, name=edit.name, value=value), keep_newlines=False)


def _head(report: Report, style: Style) -> Iterator[str]:
    server = report.server
    faults = [finding for finding in report.findings if not finding.risk and finding.severity != "info"]
    if not faults:
        risks = sum(finding.risk for finding in report.findings)
        refused = any(finding.scope == "request" for finding in report.findings)
        key = "requests_refused" if refused else "nothing_wrong_with_risks" if risks else "nothing_wrong"
        if server.state in ("failed", "degraded"):
            yield style.paint(words(style.language, "cause_unknown"), "warning")
        else:
            yield style.paint(words(style.language, key, count=risks), "good")
    parts = [f"{words(style.language, 'state')}{_colon(style)}{words(style.language, f'state_{server.state}')}"]
    release = report.knowledge.partition(" ")[2]
    if server.vllm_version:
        parts.append(f"{words(style.language, 'version')} {server.vllm_version}")
    if report.knowledge.startswith("nearest"):
        key = "version_nearest" if server.vllm_version else "version_assumed"
        parts.append(words(style.language, key, version=server.vllm_version, release=release))
    if server.model:
        parts.append(server.model)
    yield style.paint(printable(" · ".join(parts), keep_newlines=False), "dim")


def _findings(findings: Sequence[Finding], style: Style) -> Iterator[str]:
    for position, finding in enumerate(findings):
        yield ""
        yield from _finding(finding, style, full=position == 0 or finding.severity in ("critical", "error"))


def _article_command(command: CommandReport, style: Style) -> Iterator[str]:
    """One of several commands: where it stands, what is wrong with it, how it should read."""
    language = style.language
    heading = words(language, "article_command", where=printable(command.where, keep_newlines=False))
    if not command.findings:
        yield style.paint(f"{heading}{_colon(style)}{words(language, 'nothing_wrong')}", "good")
        return
    yield style.paint(heading, "bold")
    yield from _findings(command.findings, style)
    if command.edits:
        yield ""
        yield from _command(command, style)


def _by_hand(report: Report, style: Style) -> Iterator[str]:
    edits = manual_edits(report)
    if edits:
        yield ""
        yield _heading("manual", style)
    for edit in edits:
        yield from _bullet(f"{edit_text(edit, style.language)}{_because(edit, style)}", style)


def _heading(key: str, style: Style) -> str:
    return style.paint(f"{words(style.language, key)}{_colon(style).rstrip()}", "bold")


def _colon(style: Style) -> str:
    return "：" if style.language == "zh" else ": "


def _finding(finding: Finding, style: Style, *, full: bool) -> Iterator[str]:
    language = style.language
    tags = [words(language, "risk") if finding.risk else words(language, f"severity_{finding.severity}")]
    tags += [words(language, f"confidence_{finding.confidence}"), finding.rule]
    if finding.status == "preview":
        tags.append(words(language, "preview"))
    title = printable(f"{_MARKS[finding.severity]} {finding.title}", keep_newlines=False)
    first, *rest = wrapped(title, style.width, "  ")
    yield style.paint(first, finding.severity)
    for line in rest:
        yield style.paint(line, finding.severity)
    yield style.paint(f"  [{', '.join(tags)}]", "dim")
    for evidence in finding.evidence[: 3 if full else 1]:
        text = printable(masked(_message(evidence)), keep_newlines=False)
        if len(text) > _EVIDENCE_CHARACTERS:
            text = f"{text[:_EVIDENCE_CHARACTERS]}…"
        where = printable(evidence.where, keep_newlines=False)
        for line in wrapped(f"  {where} │ {text}", style.width, "    "):
            yield style.paint(line, "dim")
    if full:
        yield from _labelled("why", finding.explanation, style)
    yield from _labelled("todo", finding.todo, style)


def _message(evidence: Evidence) -> str:
    """The evidence without the prefixes that the logger and the container put before it."""
    if evidence.source != "log":
        return evidence.text
    from qvl_doctor.core.logs.lines import parse  # noqa: PLC0415 - many runs have no log

    return parse(0, evidence.text).message or evidence.text


def _labelled(key: str, text: str, style: Style) -> Iterator[str]:
    label = f"  {words(style.language, key)}{_colon(style).rstrip()}"
    pad = " " * max(1, _LABEL_CELLS - cells(label))
    clean = printable(text, keep_newlines=False)
    first, *rest = wrapped(f"{label}{pad}{clean}", style.width, " " * _LABEL_CELLS) or [label]
    yield style.paint(label, "bold") + first[len(label) :]
    yield from rest


def _command(command: CommandReport, style: Style) -> Iterator[str]:
    language = style.language
    if not command.edits:
        yield words(language, "command_unchanged")
        return
    if command.not_editable is not None:
        text = words(language, "command_not_editable", reason=command.not_editable)
        yield style.paint(printable(masked(text), keep_newlines=False), "bold")
    else:
        yield _heading("command_recovered" if command.recovered else "command_now", style)
        yield ""
        yield from (f"  {line}" for line in printable(masked(command.after)).rstrip("\n").split("\n"))
        yield ""
    for edit in command.edits:
        mark = " (!)" if edit.safety == "unsafe" else ""
        yield from _bullet(f"{edit_text(edit, language)}{mark}{_because(edit, style)}", style)
    if any(edit.safety == "unsafe" for edit in command.edits):
        yield from wrapped(f"  (!) {words(language, 'command_cautions')}", style.width, "      ")


def _difference(command: CommandReport, style: Style) -> Iterator[str]:
    before, after = (printable(masked(text)).splitlines() for text in (command.before, command.after))
    import difflib  # noqa: PLC0415 - many commands need no change

    for line in difflib.unified_diff(before, after, command.where, command.where, lineterm="", n=2):
        kind = {"+": "good", "-": "error"}.get(line[:1], "dim")
        yield style.paint(line, kind)
    if command.changed:
        yield ""


def _bullet(text: str, style: Style) -> list[str]:
    return wrapped(f"  • {printable(text, keep_newlines=False)}", style.width, "    ")


def _because(edit: Edit, style: Style) -> str:
    if not edit.reason:
        return ""
    return f"{_colon(style)}{edit.reason}"
