"""The same start, as every wrapper and every release writes it, says the same."""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from qvl_doctor.core.logs import LinePattern, LogReader, LogSummary
from qvl_doctor.core.logs.lines import parse, split, unwrapped

START = [
    ("INFO", "api_server.py:10", "vLLM API server version 0.9.2"),
    ("INFO", "worker.py:20", "Model loading took 7.1557 GiB and 3.25 seconds"),
    ("INFO", "gpu_worker.py:30", "Available KV cache memory: 9.50 GiB"),
    ("INFO", "kv_cache_utils.py:40", "GPU KV cache size: 276,688 tokens"),
    ("ERROR", "core.py:50", "Traceback (most recent call last):"),
    (
        "ERROR",
        "core.py:50",
        '  File "/usr/lib/python3/dist-packages/vllm/v1/worker/gpu_model_runner.py", line 9, in capture_model',
    ),
    ("ERROR", "core.py:50", "    self._capture()"),
    ("ERROR", "core.py:50", "RuntimeError: something is wrong with 42 graphs"),
]
RAW = [
    "Traceback (most recent call last):",
    '  File "/x/site-packages/vllm/entrypoints/api_server.py", line 3, in run_server',
    "    raise RuntimeError(",
    "RuntimeError: Engine core initialization failed. See root cause above.",
]


def lines(form: str) -> list[str]:
    return [form.format(level=level, origin=origin, message=message) for level, origin, message in START]


FORMS = {
    "0.6": "{level} 01-02 03:04:05 {origin}] {message}",
    "0.8": "{level} 01-02 03:04:05 [{origin}] {message}",
    "0.8 worker rank": "(VllmWorker rank=0 pid=77) {level} 01-02 03:04:05 [{origin}] {message}",
    "V0 worker": "(VllmWorkerProcess pid=77) {level} 01-02 03:04:05 [{origin}] {message}",
    "0.10": "(EngineCore_0 pid=77) {level} 01-02 03:04:05 [{origin}] {message}",
    "0.11 rank": "(EngineCore_DP0 pid=7) (Worker_DP0_TP1_EP1 pid=77) {level} 01-02 03:04:05 [v1/worker/{origin}] {message}",
    "0.31": "(EngineCore pid=77) {level} 01-02 03:04:05 [v1/.../worker/{origin}] {message}",
    "ray": "\x1b[36m(RayWorkerWrapper pid=77, ip=10.0.0.3)\x1b[0m {level} 01-02 03:04:05 [{origin}] {message}",
    "own prefix": "node-3 gpu[0] {level} 01-02 03:04:05 [{origin}] {message}",
    "colours": "\x1b[32m{level}\x1b[0m 01-02 03:04:05 \x1b[90m[{origin}]\x1b[0m {message}",
    "no date": "(APIServer pid=1) {level} [{origin}] {message}",
    "file only": "[{origin}] {message}",
    "message only": "{message}",
}


def in_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-02T03:04:05.123456789Z"})


WRAPPERS: dict[str, Callable[[str], str]] = {
    "plain": lambda line: line,
    "crlf": lambda line: line + "\r",
    "compose": lambda line: f"vllm-1  | {line}",
    "docker logs -t": lambda line: f"2026-01-02T03:04:05.123456789Z {line}",
    "docker json": in_json,
    "cri": lambda line: f"2026-01-02T03:04:05.123456789+08:00 stdout F {line}",
    "journald": lambda line: f"Mar 03 10:00:00 gpu-host vllm[123]: {line}",
    "journald iso": lambda line: f"2026-01-02T03:04:05+0800 gpu-host vllm[123]: {line}",
    "syslog docker": lambda line: f"Jan  2 03:04:05 host docker/vllm[9]: {line}",
    "kubectl": lambda line: f"[pod/qwen-vl-7d9f/vllm] {line}",
    "compose of docker -t": lambda line: f"vllm-1  | 2026-01-02T03:04:05.1Z {line}",
    "progress bar": lambda line: f"Loading shards: 100%|##########| 5/5 [00:09<00:00,  1.9s/it]\r{line}",
}


def read(text: str) -> LogSummary:
    reader = LogReader([LinePattern("wrong", r"^RuntimeError: something is wrong with (?P<n>\d+)")], source="s")
    reader.feed(text.encode())
    return reader.finish()


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(form: str, wrapper: str) -> None:
    summary = read("\n".join(WRAPPERS[wrapper](line) for line in lines(FORMS[form]) + RAW) + "\n")
    facts = {name: sighting.value for name, sighting in summary.facts.items()}
    assert facts["vllm_version"] == "0.9.2"
    assert facts["weights_gib"] == pytest.approx(7.1557)
    assert facts["kv_available_gib"] == pytest.approx(9.5)
    assert facts["kv_tokens"] == 276688
    assert (summary.state, summary.phase, summary.failure_phase) == ("failed", "kv", "capture")
    assert [(failure.type, failure.message) for failure in summary.failures] == [
        ("RuntimeError", "something is wrong with 42 graphs")
    ]
    assert summary.failures[0].frames == ("vllm/v1/worker/gpu_model_runner.py:capture_model",)
    match = summary.matches["wrong"].first[0]
    assert (match.groups, match.phase, match.line_number, match.where) == ({"n": "42"}, "capture", 8, "s:8")
    assert match.text.endswith("RuntimeError: something is wrong with 42 graphs")


def test_a_message_shares_the_line_with_a_progress_bar() -> None:
    text = "Capturing CUDA graph shapes: 100%|##| 67/67 [00:20<00:00, 3.3it/s]INFO 01-02 03:04:05 [a.py:1] Graph capturing finished in 20 secs, took 0.45 GiB\n"
    summary = read(text)
    assert summary.facts["cudagraph_gib"].value == pytest.approx(0.45)
    assert summary.phase == "warmup"


def test_the_inner_process_wrote_the_line() -> None:
    line = parse(1, "(APIServer pid=10) (EngineCore pid=20) INFO 01-02 03:04:05 [core.py:1] hello")
    assert (line.process, line.level, line.stamp, line.origin) == (
        "EngineCore pid=20",
        "INFO",
        "01-02 03:04:05",
        "core.py:1",
    )
    assert line.message == "hello"


@pytest.mark.parametrize(
    "text",
    [
        "| 0  NVIDIA H200    On |",
        '{"not": "a log record"}',
        '{"log": 5}',
        "{" * 3000,
        "(((((((((((((((((((((((((((",
        "2026-13-99T",
        "a" * 70000,
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert "".join(line.text for line in split(1, unwrapped(text.encode()))) == text


def test_tracebacks_of_interleaved_processes_stay_apart() -> None:
    def trace(process: str, function: str, error: str) -> list[str]:
        head = f"({process}) ERROR 01-02 03:04:05 [multiproc_executor.py:559] "
        return [
            head + "Traceback (most recent call last):",
            head + f'  File "/x/site-packages/vllm/a.py", line 1, in {function}',
            head + "    call()",
            head + error,
        ]

    first = trace("VllmWorker TP0 pid=1", "load_model", "ValueError: of the first kind")
    second = trace("VllmWorker TP1 pid=2", "profile_run", "KeyError: 'of the second kind'")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    failures = read("\n".join(mixed) + "\n").failures
    assert [(f.type, f.phase, f.process) for f in failures] == [
        ("ValueError", "weights", "VllmWorker TP0 pid=1"),
        ("KeyError", "profile", "VllmWorker TP1 pid=2"),
    ]
