"""`qvl-doctor flags`."""

from __future__ import annotations

import argparse
from pathlib import Path

from qvl_doctor.commands.inputs import style_of
from qvl_doctor.commands.result import Result
from qvl_doctor.core.safe_text import printable
from qvl_doctor.core.vllm.report import flag_history_document, flag_history_text, flags_document, flags_text
from qvl_doctor.errors import DoctorError, Exit
from qvl_doctor.sources import processes, vllm_facts


def run(arguments: argparse.Namespace) -> Result:
    """The flags of a release or installation, or one flag's history."""
    style = style_of(arguments)
    if arguments.flag is not None:
        history = vllm_facts.history(arguments.flag)
        if history.since is None:
            raise DoctorError(f"{printable(arguments.flag)}: no vLLM release has had this flag", exit_code=Exit.USAGE)
        return Result(lambda: flag_history_document(history), lambda: flag_history_text(history, style.language))
    path = arguments.vllm_path
    if arguments.pid is not None:
        path = processes.running(arguments.pid).interpreter
    known = (
        vllm_facts.knowledge_from_path(Path(path)) if path is not None else vllm_facts.knowledge(arguments.vllm_version)
    )
    if known is None:
        raise DoctorError(
            f"no vLLM installation found at {printable(str(path))}", hint="name site-packages/vllm or a venv"
        )
    remarks: tuple[str, ...] = ()
    if known.basis == "nearest" and arguments.vllm_version:
        remarks = (f"{printable(arguments.vllm_version)} is not among the known releases; showing {known.release}",)
    return Result(
        lambda: flags_document(known, vllm_facts.history),
        lambda: flags_text(known, style.language),
        remarks=remarks,
    )
