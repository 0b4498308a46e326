"""`qvl-doctor diagnose` and `qvl-doctor fix`."""

from __future__ import annotations

import argparse

from qvl_doctor import render, report
from qvl_doctor.commands.inputs import gather, style_of
from qvl_doctor.commands.result import Result
from qvl_doctor.core.diagnose import diagnose
from qvl_doctor.core.findings import SEVERITIES
from qvl_doctor.errors import DoctorError, Exit


def run(arguments: argparse.Namespace) -> Result:
    """Diagnose what the arguments name; `fix` prints the correction instead of the findings."""
    style = style_of(arguments)
    gathered = gather(arguments, style)
    found = diagnose(gathered.observed, gathered.context, gathered.document, recovered=gathered.recovered)
    status = Exit.FINDINGS if found.worst <= SEVERITIES.index("error") else Exit.OK
    if arguments.command_name == "fix":
        if not found.commands:
            raise DoctorError("error_nothing_to_fix", hint="hint_give_command")
        return Result(
            lambda: report.fix_document(found), lambda: render.fix_text(found, style), status, gathered.remarks
        )
    return Result(
        lambda: report.diagnosis_document(found, verbose=arguments.verbose),
        lambda: render.report_text(found, style, verbose=arguments.verbose),
        status,
        gathered.remarks,
    )
