"""Knowledge from the user's own vLLM: a folder named, or the one that runs a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import doctor


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_process_that_is_not_there() -> None:
    outcome = doctor("diagnose", "--pid", "2147483646")
    assert outcome.code == 3
    assert "no process 2147483646" in outcome.err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_process_of_an_interpreter_without_vllm() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        outcome = doctor("flags", "--json", "--pid", str(process.pid))
        process.kill()
    assert outcome.code == 2
    assert "no vLLM installation" in outcome.err


def test_a_folder_without_vllm(tmp_path: Path) -> None:
    outcome = doctor("diagnose", "--command", "vllm serve m", "--vllm-path", str(tmp_path))
    assert outcome.code == 2
    assert "no vLLM installation found" in outcome.err
