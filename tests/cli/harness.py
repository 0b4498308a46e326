"""Runs the command line as a user does: in a process of its own, with nothing of the tester's terminal or locale."""

from __future__ import annotations

import atexit
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 60  # far beyond what any command needs: a hang fails instead of stopping the suite

# What a start prints whose longest request does not fit into the KV cache (vLLM 0.25.1, shortened).
FAILED_LOG = """\
(APIServer pid=8605) INFO 11-30 17:55:47 [api_utils.py:273] vLLM API server version 0.25.1
(APIServer pid=8605) INFO 11-30 17:55:48 [model.py:1776] Using max model len 128000
(EngineCore pid=8618) INFO 11-30 17:55:54 [gpu_model_runner.py:5242] Model loading took 15.67 GiB memory and 0.9 seconds
(EngineCore pid=8618) INFO 11-30 17:55:55 [gpu_worker.py:538] Available KV cache memory: 3.79 GiB
(EngineCore pid=8618) ERROR 11-30 17:55:55 [core.py:1231] EngineCore failed to start.
(EngineCore pid=8618) ERROR 11-30 17:55:55 [core.py:1231] Traceback (most recent call last):
(EngineCore pid=8618) ERROR 11-30 17:55:55 [core.py:1231]   File "/opt/vllm/v1/core/kv_cache_utils.py", line 760, \
in _check_enough_kv_cache_memory
(EngineCore pid=8618) ERROR 11-30 17:55:55 [core.py:1231] ValueError: To serve at least one request with the model's \
max seq len (128000), (6.84 GiB KV cache is needed, which is larger than the available KV cache memory (3.79 GiB). \
Based on the available memory, the estimated maximum model length is 70880. Try increasing `gpu_memory_utilization` \
or decreasing `max_model_len` when initializing the engine.
"""
FAILED_RULE = "max-len-exceeds-kv"
HEALTHY_LOG = """\
(APIServer pid=3245) INFO 11-30 17:44:27 [api_utils.py:273] vLLM API server version 0.25.1
(EngineCore pid=3255) INFO 11-30 17:44:41 [gpu_worker.py:538] Available KV cache memory: 108.92 GiB
(EngineCore pid=3255) INFO 11-30 17:44:41 [kv_cache_utils.py:1733] GPU KV cache size: 2,039,456 tokens
(APIServer pid=3245) INFO:     Application startup complete.
"""
COMMAND = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --max-model-len 128000 --host 127.0.0.1"
# A flag that many tutorials give and no release has ever had.
WRONG_COMMAND = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --enable-mm-token-trim --host 127.0.0.1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run left behind; text is decoded as UTF-8, undecodable bytes kept as surrogates."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout; fails if there is anything else."""
        parsed = json.loads(self.out)
        assert isinstance(parsed, dict)
        return parsed

    @property
    def rules(self) -> list[str]:
        """The rule ids of the findings, in order."""
        return [finding["rule"] for finding in self.document["findings"]]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tester's environment without what alters output (locale, colour, terminal size) or slows every start."""
    dropped = {"LANG", "LANGUAGE", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "PYTHONWARNINGS"}
    dropped.add("PYTHONDONTWRITEBYTECODE")  # with it, each process would compile the package anew
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith(("LC_", "QVL_"))}
    ours = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": _cache_folder()}
    return kept | ours | dict(extra or {})


@cache
def _cache_folder() -> str:
    """One cache for all runs of this test run, and not the tester's own."""
    folder = tempfile.mkdtemp(prefix="qvl-doctor-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def doctor_argv(*arguments: str, interpreter: Sequence[str] = ()) -> list[str]:
    """The words of one run; `interpreter` holds options of Python itself."""
    return [sys.executable, *interpreter, "-m", "qvl_doctor", *arguments]


def doctor(
    *arguments: str,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    interpreter: Sequence[str] = (),
) -> Outcome:
    """Runs `qvl-doctor ARGUMENTS` to its end, stdout and stderr apart, neither of them a terminal."""
    done = subprocess.run(
        doctor_argv(*arguments, interpreter=interpreter),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(env),
        cwd=cwd,
        timeout=SECONDS,
        check=False,
    )
    return Outcome(
        done.returncode,
        done.stdout.decode("utf-8", "surrogateescape"),
        done.stderr.decode("utf-8", "surrogateescape"),
    )


def on_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Runs with stdout and stderr on a terminal; returns the exit status and every byte that it was sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        doctor_argv(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment({"TERM": "xterm-256color"} | dict(env or {})),
    ) as process:
        os.close(theirs)
        received = bytearray()
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the last writer has gone
                break
            if not chunk:
                break
            received += chunk
        code = process.wait(SECONDS)
    os.close(ours)
    return code, bytes(received)


def assert_user_error(outcome: Outcome, *words: str, code: int = 2) -> None:
    """A user's mistake: its exit status, nothing on stdout, one line (and at most a hint) that names the matter."""
    assert outcome.code == code, outcome
    assert outcome.out == "", outcome.out
    assert "Traceback" not in outcome.err, outcome.err
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    assert 1 <= len(lines) <= 2, outcome.err
    for word in words:
        assert word in outcome.err, (word, outcome.err)


def assert_plain(text: str) -> None:
    """No control character but newline and tab: nothing a terminal would act upon."""
    controls = {ch for ch in text if (ord(ch) < 0x20 and ch not in "\n\t") or 0x7F <= ord(ch) < 0xA0}
    assert not controls, sorted(map(hex, map(ord, controls)))
