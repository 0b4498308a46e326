"""Speed and memory of the log reader on a large serving log, beside grep on the same file.

Run as a script: `python tests/bench/bench_logs.py [MEGABYTES] [--patterns N]`. It writes a log to a temporary
file (lines of real servers with changing numbers, ids and prompts), reads it with the rule patterns, and
prints MB/s, the peak memory of the process and the time that grep takes as a ratio. Nothing is asserted on time.
"""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import argparse
import errno
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from qvl_doctor.core.logs import LinePattern, LogReader, required_literals  # noqa: E402  # path set above

MEGABYTE = 1_000_000
_START = ROOT / "samples/logs/h200-7b-v1-graphs-cli-info.log"
_WORDS = (  # noqa: SIM905  # easier to read and to change than a list
    "describe the picture invoice total amount table chart please list objects colour street sign number plate text in "
    "image translate summarise the scanned page which error memory cuda failed out of cache torch device free GiB"
).split()


def rule_patterns(at_least: int = 0) -> list[str]:
    """The regexes of the shipped rules, filled up to a number with plain phrases."""
    rules = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "rules").glob("*/*.toml"))]
    whens = [when for rule in rules for when in rule["when"]]
    found = [when.get(key, []) for when in whens for key in ("log", "also", "never")]
    patterns = list(dict.fromkeys(regex for one in found for regex in ([one] if isinstance(one, str) else one)))
    codes = sorted(errno.errorcode)
    for number in range(max(0, at_least - len(patterns))):
        patterns.append(rf"{os.strerror(codes[number % len(codes)])} while handling step {number} of (?P<n>\d+)")
    return patterns


def serving_lines(seed: int) -> Iterator[str]:
    """Lines of a busy server, in about the mixture of a real one, without end."""
    rng = random.Random(seed)
    second = 0
    while True:
        second += 1
        stamp = f"11-30 {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        for _ in range(rng.randint(3, 12)):
            port, request = rng.randint(30000, 61000), f"{rng.getrandbits(128):032x}"
            if rng.random() < 0.5:
                prompt = " ".join(rng.choices(_WORDS, k=rng.randint(10, 80)))
                yield (
                    f"(APIServer pid=917) INFO {stamp} [logger.py:42] Received request chatcmpl-{request}: prompt:"
                    f" '<|im_start|>user\\n<|vision_start|><|image_pad|><|vision_end|>{prompt}<|im_end|>\\n', params:"
                    f" SamplingParams(n=1, temperature=0.{rng.randint(0, 9)}, top_p=0.8, max_tokens={rng.randint(1, 4096)}"
                    "), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None."
                )
                yield f"(APIServer pid=917) INFO {stamp} [async_llm.py:270] Added request chatcmpl-{request}."
            status = "200 OK" if rng.random() < 0.99 else "400 Bad Request"
            yield f'(APIServer pid=917) INFO:     10.0.{rng.randint(0, 9)}.{rng.randint(1, 254)}:{port} - "POST /v1/chat/completions HTTP/1.1" {status}'
            if rng.random() < 0.3:
                yield f'(APIServer pid=917) INFO:     10.0.0.1:{port} - "GET /health HTTP/1.1" 200 OK'
        if second % 2 == 0:
            yield (
                f"(APIServer pid=917) INFO {stamp} [loggers.py:257] Engine 000: Avg prompt throughput:"
                f" {rng.uniform(0, 9000):.1f} tokens/s, Avg generation throughput: {rng.uniform(0, 900):.1f} tokens/s,"
                f" Running: {rng.randint(0, 64)} reqs, Waiting: {rng.randint(0, 9)} reqs, GPU KV cache usage:"
                f" {rng.uniform(0, 99):.1f}%, Prefix cache hit rate: {rng.uniform(0, 99):.1f}%, MM cache hit rate: 12.5%"
            )


def write_log(path: Path, megabytes: int) -> int:
    """Writes a start and then serving lines; returns the size in bytes."""
    with path.open("wb") as file:
        file.write(_START.read_bytes())
        block: list[str] = []
        size = 0
        for line in serving_lines(7):
            block.append(line)
            size += len(line) + 1
            if size > 4 * MEGABYTE:
                file.write(("\n".join(block) + "\n").encode())
                block, size = [], 0
                if file.tell() >= megabytes * MEGABYTE:
                    break
    return path.stat().st_size


def read_log(path: Path, patterns: list[str]) -> tuple[float, float, int, str]:
    """(seconds, seconds of processor time, lines, state) of one reading in this process."""
    started, started_cpu = time.perf_counter(), time.process_time()
    reader = LogReader([LinePattern(str(n), regex) for n, regex in enumerate(patterns)], source=path.name)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            reader.feed(chunk)
    summary = reader.finish()
    return time.perf_counter() - started, time.process_time() - started_cpu, summary.lines, summary.state


def grep_seconds(path: Path, patterns: list[str], *, regexes: bool) -> float:
    """Time of `grep -c` with the patterns' literals, as one extended regex or as fixed strings."""
    literals = [text for regex in patterns for text in required_literals(regex) or ()]
    escaped = ["".join(f"\\{c}" if c in r".[]{}()*+?^$|\/" else c for c in text) for text in literals]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(escaped if regexes else literals) + "\n")
        file.flush()
        command = ["grep", "-c", "-E" if regexes else "-F", "-f", file.name, str(path)]
        started = time.perf_counter()
        # into a pipe: grep stops at the first match when it writes to the null device
        subprocess.run(command, check=False, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    return time.perf_counter() - started


def measure(megabytes: int, pattern_count: int) -> str:
    patterns = rule_patterns(pattern_count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        size = write_log(path, megabytes) / MEGABYTE
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds, cpu, lines, state = read_log(path, patterns)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        fixed = grep_seconds(path, patterns, regexes=False)
        extended = grep_seconds(path, patterns, regexes=True)
    return (
        f"{size:.0f} MB, {lines} lines, {len(patterns)} patterns, state {state}\n"
        f"LogReader       {seconds:6.2f} s  {size / seconds:6.1f} MB/s  ({size / cpu:.1f} MB per second of processor time)\n"
        f"peak memory     {peak:.0f} MiB (before reading: {before:.0f} MiB)\n"
        f"grep -c -F -f   {fixed:6.2f} s  ratio {seconds / fixed:.2f}\n"
        f"grep -c -E -f   {extended:6.2f} s  ratio {seconds / extended:.2f}"
    )


@pytest.mark.bench
def test_log_reader_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + measure(50, 0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", nargs="?", type=int, default=1000)
    parser.add_argument("--patterns", type=int, default=0, help="fill the rules' regexes up to this number")
    arguments = parser.parse_args()
    print(measure(arguments.megabytes, arguments.patterns))
