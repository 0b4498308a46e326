"""Flags that a release would refuse, beside a log that shows whether a parser took them."""

from __future__ import annotations

import pytest

from qvl_doctor.core.diagnose import Context, diagnose
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.logs import LogReader
from qvl_doctor.core.observe import Observed
from qvl_doctor.sources.vllm_facts import knowledge

COMMAND = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --swap-space 16 --host 127.0.0.1"  # last in 0.17.1
LOADED = "(EngineCore pid=9) INFO 01-20 10:00:00 [gpu_model_runner.py:1] Starting to load model Qwen2.5-VL-7B..."
BEFORE = "INFO 01-20 10:00:00 [__init__.py:1] Automatically detected platform cuda."
FAILED = "(APIServer pid=9) RuntimeError: something else went wrong"


def _problems(log: str, version: str | None) -> set[str]:
    known = knowledge(version)
    reader = LogReader()
    reader.feed(f"{log}\n".encode())
    launch = parse_text(COMMAND, grammar=known).commands[0]
    report = diagnose(Observed(launch=launch, log=reader.finish(), version=version), Context((), known))
    flags = report.view.value("derived.flags")
    assert isinstance(flags, tuple)
    return {str(flag["kind"]) for flag in flags}


@pytest.mark.parametrize("log", [LOADED, FAILED])
def test_a_start_beyond_its_parser_clears_what_was_only_assumed(log: str) -> None:
    assert "flag-removed-or-renamed" not in _problems(log, None)
    older = "(APIServer pid=9) INFO 01-20 09:59:00 [api_server.py:1] vLLM API server version 0.17.1"
    assert "flag-removed-or-renamed" in _problems(f"{older}\n{log}", "0.25.1")  # the log is of another release


def test_a_start_that_may_have_ended_in_its_parser_clears_nothing() -> None:
    assert "flag-removed-or-renamed" in _problems(BEFORE, None)
