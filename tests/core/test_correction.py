"""The corrected command: what the log shows to be taken is not corrected, in no round."""

from __future__ import annotations

from qvl_doctor.commands.inputs import Given, assemble
from qvl_doctor.core.diagnose import CommandReport, diagnose
from qvl_doctor.core.logs import LogReader

COMMAND = 'vllm serve Qwen/Qwen2.5-VL-7B-Instruct --host 127.0.0.1 --limit-mm-per-prompt={"image":1}'


def corrected(log: str | None) -> CommandReport:
    summary = None
    if log is not None:
        reader = LogReader([], source="log")
        reader.feed(log.encode())
        summary = reader.finish()
    gathered = assemble((), Given(command_text=COMMAND, log=summary, version="0.8.2"), "en", frozenset())
    (report,) = diagnose(gathered.observed, gathered.context, gathered.document).commands
    return report


def test_a_form_that_the_release_refuses_is_corrected() -> None:
    assert "image=1" in corrected(None).after


def test_not_where_the_log_got_past_the_parser() -> None:
    report = corrected("(VllmWorker rank=0 pid=7) RuntimeError: Expected there to be 1 prompt updates\n")
    assert (report.changed, report.edits) == (False, ())
