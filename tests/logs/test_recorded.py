"""Every recorded log: state, root failure and figures are those that the index states (taken from the runs)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qvl_doctor.core.logs import LogReader, LogSummary

ROOT = Path(__file__).resolve().parents[2]
INDEX: list[dict[str, Any]] = json.loads((ROOT / "samples/logs/index.json").read_text(encoding="utf-8"))


def read(entry: dict[str, Any]) -> LogSummary:
    reader = LogReader(source=Path(entry["file"]).name)
    reader.feed((ROOT / entry["file"]).read_bytes())
    return reader.finish()


def by_name(name: str) -> LogSummary:
    return read(next(entry for entry in INDEX if entry["file"].endswith(f"/{name}.log")))


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: Path(entry["file"]).stem)
def test_recorded_log_says_what_the_run_did(entry: dict[str, Any]) -> None:
    summary = read(entry)
    assert summary.state == entry["state"]
    assert not summary.binary
    assert summary.attempts == 1
    if entry["banner"]:
        assert summary.version is not None
        assert summary.version.value == entry["vllm"]
        assert summary.args
    for name, value in entry["facts"].items():
        assert summary.facts[name].value == pytest.approx(value), name
    if entry["cause"] is None:
        assert all(not failure.fatal for failure in summary.failures)
        return
    root = summary.failures[0]
    assert (summary.failure_phase, root.type) == (entry["failure_phase"], entry["error_type"])
    assert root.message.startswith(entry["error"])
    assert root.fatal
    lines = (ROOT / entry["file"]).read_text(encoding="utf-8").split("\n")
    assert root.text in lines[root.line_number - 1], "the evidence is the very line"


def test_every_recording_is_in_the_index() -> None:
    files = {path.name for path in (ROOT / "samples/logs").glob("*.log")}
    assert files == {Path(entry["file"]).name for entry in INDEX}


@pytest.mark.parametrize("entry", [e for e in INDEX if e["outcome"] == "failed"], ids=lambda e: Path(e["file"]).stem)
def test_one_fault_is_one_fatal_root(entry: dict[str, Any]) -> None:
    """Worker, engine core and API server quote the same error; it is listed once."""
    fatal = [failure for failure in read(entry).failures if failure.fatal and failure.kind == "root"]
    assert len(fatal) <= 1


def test_arguments_and_engine_configuration() -> None:
    summary = by_name("h200-fail-quant-awq-unquantized")
    assert summary.args is not None
    assert summary.args["limit_mm_per_prompt"] == {"image": 1}
    assert summary.args["quantization"] == "awq"
    assert summary.args["enforce_eager"] is True
    facts = by_name("h200-7b-v1-graphs-cli-info").facts
    assert facts["dtype"].value == "bfloat16"
    assert facts["max_model_len"].value == 32768
    assert facts["tensor_parallel_size"].value == 1
    assert facts["attention_backend"].value == "FLASH_ATTN"
    assert facts["vit_backend"].value == "FLASH_ATTN"
    assert facts["utilization_for_same_kv"].value == pytest.approx(0.9233)
    assert facts["url"].value == "http://0.0.0.0:8000"


def test_model_runners_and_encoder_lines() -> None:
    assert by_name("h200-7b-v2-default-cli-info").facts["model_runner"].value == "V2"
    v1 = by_name("h200-7b-v1-eager").facts
    assert (v1["encoder_budget_tokens"].value, v1["encoder_items"].value, v1["encoder_modality"].value) == (
        32768,
        1,
        "video",
    )
    assert by_name("h200-7b-v1-eager-skipmmprofile").facts["encoder_profile_skipped"].value == "true"
    assert by_name("cpu-qwen2-vl").facts["model_runner"].value == "V1"
    assert by_name("cpu-qwen2-vl").facts["device"].value == "cpu"


def test_old_engine_keeps_all_values_of_its_namespace() -> None:
    summary = by_name("cpu-v0-0.8.5-qwen2-vl")
    assert summary.args is not None
    assert summary.args["limit_mm_per_prompt"] == {"image": 2, "video": 0}
    assert summary.args["port"] == 8105
    assert summary.args["allowed_origins"] == ["*"]
    assert summary.facts["engine"].value == "V0"


def test_out_of_memory_of_a_request_is_read_in_full() -> None:
    report = by_name("h200-fail-oom-request-v2-util0.985").oom
    assert report is not None
    assert report.phase == "serving"
    assert report.tried_bytes == 306 * 2**20
    assert report.total_bytes == round(139.80 * 2**30)
    assert report.free_bytes == round(287.12 * 2**20)
    assert report.this_process_bytes == round(139.51 * 2**30)
    assert report.gpu_index == 0
    assert report.other_processes == ()
    assert any(frame.endswith("qwen2_5_vl.py:_process_image_input") for frame in report.frames)
    assert not any("_call_impl" in frame for frame in report.frames)


def test_out_of_memory_after_loading_is_of_the_profile_run() -> None:
    report = by_name("h200-fail-oom-load-72b").oom
    assert report is not None
    assert (report.phase, report.count) == ("profile", 2)
    assert report.tried_bytes == 462 * 2**20


def test_statistics_of_a_saturated_server() -> None:
    stats = by_name("cpu-qwen2-vl-small-kv-kill9-engine").stats
    assert stats.lines == 22
    assert (stats.running_max, stats.waiting_max) == (30, 20)
    assert stats.kv_usage_max_percent == pytest.approx(100.0)
    assert stats.saturated_seconds_longest >= 60


def test_refused_requests_do_not_make_a_server_fail() -> None:
    summary = by_name("h200-7b-v2-eager-emu24-len8192")
    assert summary.state == "ready"
    assert summary.http_errors == {400: 1}
    assert [failure.fatal for failure in summary.failures] == [False]


def test_a_stop_on_request_is_no_death() -> None:
    """The engine's end is reported as an error by the API server although it was asked for."""
    text = (ROOT / "samples/logs/cpu-qwen3-vl.log").read_text(encoding="utf-8")
    assert "EngineDeadError" in text
    assert by_name("cpu-qwen3-vl").state == "ready"
