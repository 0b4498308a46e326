"""The fold: any bytes, any chunks, bounded memory, the same result."""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.logs import LinePattern, LogReader, LogSummary

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples/logs"
PATTERNS = [
    LinePattern("oom", r"CUDA out of memory"),
    LinePattern("kv", r"Available KV cache memory: (?P<gib>-?[\d.]+) GiB"),
    LinePattern("error", r"(?i)error"),
    LinePattern("any-number", r"\d+"),
]
SNIPPETS = [
    b"(APIServer pid=1) INFO 01-02 03:04:05 [api_utils.py:339] vLLM server version 0.25.1, serving model m\n",
    b"(EngineCore pid=2) ERROR 01-02 03:04:05 [core.py:1] Traceback (most recent call last):\n",
    b'(EngineCore pid=2) ERROR 01-02 03:04:05 [core.py:1]   File "/x/vllm/a.py", line 1, in load_model\n',
    b"(EngineCore pid=2) ERROR 01-02 03:04:05 [core.py:1] ValueError: no\n",
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capac",
    b"\n\nDuring handling of the above exception, another exception occurred:\n\n",
    b"INFO:     Application startup complete.\r\n",
    b'INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n',
    b'{"log":"INFO 01-02 03:04:05 [a.py:1] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tok',
    b"non-default args: {'api_key': 'x', 'a': [{<X: 1>",
    b"\r 50%|#####     | 1/2\r100%|##########| 2/2 [00:01<00:00]INFO 01-02 03:04:05 [a.py:1] x\n",
    b"\xff\xfe\x00",
    b"\x1b[31m",
    b"9" * 5000,
]


def read(data: bytes, sizes: list[int] | None = None, patterns: list[LinePattern] | None = None) -> LogSummary:
    reader = LogReader(PATTERNS if patterns is None else patterns, source="log")
    if not sizes:
        reader.feed(data)
    else:
        start, turn = 0, 0
        while start < len(data):
            size = sizes[turn % len(sizes)]
            reader.feed(data[start : start + size])
            start, turn = start + size, turn + 1
    return reader.finish()


hostile = st.lists(st.one_of(st.binary(max_size=60), st.sampled_from(SNIPPETS)), max_size=30).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(hostile, st.lists(st.integers(1, 90), min_size=1, max_size=4))
def test_any_bytes_in_any_chunks_give_the_same_summary(data: bytes, sizes: list[int]) -> None:
    whole = read(data)
    assert whole == read(data, sizes)
    assert whole.size_bytes == len(data)
    assert read(data[:1] + data[1:], [1]) == whole


@pytest.mark.parametrize(
    "name", ["h200-fail-len-over-kv-v1", "cpu-fail-kv-cache-space-too-big", "cpu-v0-0.8.5-qwen2-vl"]
)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_recorded_logs_in_small_chunks(name: str, size: int) -> None:
    data = (SAMPLES / f"{name}.log").read_bytes()
    assert read(data, [size]) == read(data)


@pytest.mark.parametrize(
    "name", ["h200-fail-port-in-use", "cpu-fail-max-model-len-too-large", "h200-fail-limit-mm-bad-json"]
)
def test_cut_anywhere(name: str) -> None:
    data = (SAMPLES / f"{name}.log").read_bytes()
    for end in range(0, len(data), 23):
        summary = read(data[:end], patterns=[])
        assert summary.state in ("unknown", "starting", "failed")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_noise_between_lines_changes_no_figure(data: st.DataObject) -> None:
    lines = (SAMPLES / "h200-fail-util-too-low-v1.log").read_bytes().splitlines(keepends=True)
    noise = st.text(st.characters(codec="ascii", categories=["L", "N", "Zs"]), max_size=30).map(
        lambda text: f"[sidecar] {text}\n".encode()
    )
    for _ in range(10):
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(noise))
    summary = read(b"".join(lines), patterns=[])
    assert summary.state == "failed"
    assert summary.failures[0].message.startswith("No available memory for the cache blocks")
    assert summary.facts["weights_gib"].value == pytest.approx(15.67)


def test_a_line_without_end_keeps_its_head_only() -> None:
    reader = LogReader([LinePattern("head", "CUDA out of memory"), LinePattern("tail", "the very end")])
    tracemalloc.start()
    reader.feed(b"ERROR 01-02 03:04:05 [a.py:1] CUDA out of memory ")
    for _ in range(100):
        reader.feed(b"x" * 1_000_000)
    reader.feed(b"the very end")
    summary = reader.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert summary.lines == 1
    assert summary.size_bytes > 100_000_000
    assert set(summary.matches) == {"head"}
    assert peak < 20_000_000


def test_memory_does_not_grow_with_the_log() -> None:
    reader = LogReader(PATTERNS)
    line = b"(APIServer pid=%d) INFO 01-02 03:04:05 [x.py:1] unique %s here\n"
    for number in range(2000):
        reader.feed(line % (number, b"%x" % (number * 7919)))
    tracemalloc.start()
    for number in range(2000, 12_000):
        reader.feed(line % (number, bytes(f"w{number:x}q", "ascii") * 20))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 25_000_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_byte_order_marks(encoding: str) -> None:
    text = (SAMPLES / "h200-fail-port-in-use.log").read_text(encoding="utf-8")
    mark = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}.get(encoding, "")
    data = (mark + text).encode(encoding)
    summary = read(data, [3])
    assert summary.failures[0].message == "[Errno 98] Address already in use"
    assert summary.version is not None and summary.version.value == "0.25.1"
    assert not summary.binary


def test_binary_is_noticed() -> None:
    assert read(b"\x1f\x8b\x08" + b"\x11" * 50).binary
    assert read(b"\x7fELF" + bytes(500)).binary
    assert read(bytes(5000) + b"INFO:     Application startup complete.\n").state == "ready"
    assert not read(b"").binary
    assert not read("INFO 日志 10-01\n".encode()).binary


def test_docker_stream_headers_are_no_text() -> None:
    lines = [b"INFO:     Application startup complete.\n", b"Killed\n"]
    data = b"".join(b"\x01\x00\x00\x00\x00\x00\x00" + bytes([len(line)]) + line for line in lines)
    summary = read(data)
    assert summary.phase == "ready"
    assert [failure.type for failure in summary.failures] == ["Killed"]


def test_nothing_kept_holds_control_characters_or_secrets() -> None:
    data = (
        b"(APIServer pid=1) INFO 01-02 03:04:05 [api.py:1] non-default args: {'api_key': ['sk-abcdef123456'], 'hf_token':"
        b" 'hf_abcdefghijklmnop', 'model': 'm'}\n"
        b"ERROR 01-02 03:04:05 [a.py:1] \x1b[31mValueError: bad\x07 header Authorization: Bearer abcdefgh123\x1b[0m\n"
    )
    summary = read(data, patterns=[LinePattern("e", "ValueError: (?P<what>.+)")])
    kept = repr(summary)
    for secret in ("sk-abcdef", "hf_abcdef", "abcdefgh123", "\\x1b", "\\x07"):
        assert secret not in kept
    assert summary.args == {"api_key": "****", "hf_token": "****", "model": "m"}


def test_snapshot_leaves_the_reader_going() -> None:
    reader = LogReader(source="s")
    reader.feed(b"INFO:     Application startup complete.\nINFO:     Shut")
    assert reader.snapshot().phase == "ready"
    reader.feed(b"ting down\n")
    assert reader.finish().lines == 2
    assert reader.finish() is reader.finish()
