"""`qvl-doctor diagnose --explain-upgrade OLD NEW`: what another release means for this command."""

from __future__ import annotations

import argparse
from typing import Any

from qvl_doctor.commands.inputs import gather, style_of
from qvl_doctor.commands.result import Result
from qvl_doctor.core.masking import masked
from qvl_doctor.core.records import replace
from qvl_doctor.core.safe_text import printable
from qvl_doctor.core.upgrade import Change, Upgrade, explain_upgrade
from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.errors import DoctorError
from qvl_doctor.render import Style
from qvl_doctor.sources import vllm_facts
from qvl_doctor.text import words
from qvl_doctor.wrapping import wrapped

SCHEMA = "qvl-doctor/upgrade/1"


def run(arguments: argparse.Namespace) -> Result:
    """Compare two releases for the first command that the arguments name."""
    style = style_of(arguments)
    old, new = (_release(version) for version in arguments.explain_upgrade)
    gathered = gather(arguments, style)
    if gathered.observed.launch is None:
        raise DoctorError("error_upgrade_of_nothing", hint="hint_give_command")
    observed = replace(gathered.observed, version=None)
    upgrade = explain_upgrade(observed, old, new, style.language)
    return Result(lambda: _document(upgrade), lambda: _text(upgrade, style), remarks=gathered.remarks)


def _release(version: str) -> Knowledge:
    known = vllm_facts.knowledge(version)
    if known.basis == "nearest":
        newest = vllm_facts.releases()[-1]
        raise DoctorError("error_no_release", hint="hint_newest", version=printable(version), newest=newest)
    return known


def _document(upgrade: Upgrade) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "from": upgrade.old,
        "to": upgrade.new,
        "changes": [
            {"kind": one.kind, "name": one.name, "before": one.before, "after": one.after, "why": one.why}
            for one in upgrade.changes
        ],
        "command": {
            "before": masked(upgrade.before),
            "after": masked(upgrade.after),
            "changed": upgrade.before != upgrade.after,
        },
    }


def _text(upgrade: Upgrade, style: Style) -> str:
    language = style.language
    lines = [style.paint(f"vLLM {upgrade.old} → {upgrade.new}", "bold")]
    for kind in ("flag", "engine", "default", "requirement", "metric"):
        changes = [change for change in upgrade.changes if change.kind == kind]
        if changes:
            lines += ["", style.paint(words(language, f"upgrade_{kind}"), "bold")]
        for change in changes:
            lines += wrapped(
                f"  • {printable(masked(_line(change, language)), keep_newlines=False)}", style.width, "    "
            )
    if not upgrade.changes:
        lines += ["", words(language, "upgrade_nothing")]
    lines += ["", style.paint(words(language, "command_now"), "bold"), ""]
    lines += [f"  {line}" for line in printable(masked(upgrade.after)).rstrip("\n").split("\n")]
    return "\n".join(lines)


def _line(change: Change, language: str) -> str:
    if change.kind == "metric":
        return change.name
    after = words(language, "upgrade_gone") if change.after is None else change.after
    head = change.before if change.kind == "flag" else f"{change.name}: {change.before or '–'}"
    return f"{head} → {after}" + (f" ({change.why})" if change.why else "")
