"""Failures: one fault once, its root, the phase it stood in; out-of-memory reports of every wording."""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import pytest

from qvl_doctor.core.logs import Failure, LogReader, LogSummary

ENGINE = "(EngineCore_DP0 pid=20) ERROR 01-02 03:04:05 [core.py:708] "
READY = "INFO:     Application startup complete.\n"


def read(text: str) -> LogSummary:
    reader = LogReader(source="s")
    reader.feed(text.encode())
    return reader.finish()


def trace(error: str, *functions: str, prefix: str = "", header: bool = True) -> str:
    frames = [f'  File "/x/site-packages/vllm/part.py", line 1, in {name}\n    {name}()' for name in functions]
    text = "\n".join([*(["Traceback (most recent call last):"] if header else []), *frames, error])
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def roots(text: str) -> list[tuple[str, str]]:
    return [(failure.type, failure.message) for failure in read(text).failures]


def test_direct_cause_is_the_root() -> None:
    text = (
        trace("ValueError: absolute aspect ratio must be smaller than 200, got 227.5", "smart_resize")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + trace("RuntimeError: Failed to apply Qwen2_5_VLProcessor on data={'text': 'x'}", "call_hf_processor")
    )
    (failure,) = read(text).failures
    assert failure.message.startswith("absolute aspect ratio")
    assert [kind for kind, _ in failure.chain] == ["ValueError", "RuntimeError"]


def test_a_failed_lookup_is_not_the_root() -> None:
    text = (
        trace("KeyError: 'qwen3_vl'", "from_pretrained")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + trace("ValueError: The checkpoint has model type `qwen3_vl` but it is not recognized.", "get_config")
    )
    assert roots(text) == [("ValueError", "The checkpoint has model type `qwen3_vl` but it is not recognized.")]


def test_validation_error_states_its_value_error() -> None:
    text = trace(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "create_model_config"
    )
    text += "  Value error, Too long by far. [type=value_error, input_value=ArgsKwargs(()), input_type=ArgsKwargs]\n"
    text += "    For further information visit https://errors.pydantic.dev/2/v/value_error\n"
    (failure,) = read(text).failures
    assert (failure.message, failure.line_number, failure.phase) == ("Too long by far.", 5, "config")
    assert "Value error, Too long by far." in failure.text


def test_ranks_and_quotes_are_one_failure() -> None:
    text = "".join(
        trace(
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {rank}.00 MiB. GPU {rank} has a total capacity of 23.68 GiB",
            "load_model",
            prefix=f"(Worker_TP{rank} pid={rank}) ERROR 01-02 03:04:05 [multiproc_executor.py:559] ",
        )
        for rank in range(1, 5)
    )
    text += trace(
        "RuntimeError: Worker failed with error 'CUDA out of memory. Tried to allocate 1.00 MiB. GPU 1 has a total capacity"
        " of 23.68 GiB', please check the stack trace above for the root cause",
        "get_response",
        prefix=ENGINE,
    )
    text += trace(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "wait"
    )
    summary = read(text)
    (failure,) = summary.failures
    assert (failure.type, failure.count, failure.phase) == ("torch.OutOfMemoryError", 5, "weights")
    assert summary.oom is not None
    assert (summary.oom.gpu_index, summary.oom.phase) == (1, "weights")


def test_a_quote_stands_for_the_root_where_that_is_missing() -> None:
    assert roots(
        "(EngineCore pid=1) RuntimeError: Worker failed with error 'max_num_seqs (1024) exceeds', please check the stack trace\n"
    ) == [("RuntimeError", "Worker failed with error 'max_num_seqs (1024) exceeds', please check the stack trace")]


@pytest.mark.parametrize(
    "line",
    [
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).",
        "ERROR 01-02 03:04:05 [core.py:1] EngineCore failed to start.",
        "ray.exceptions.RayTaskError(ValueError): ray::RayWorkerWrapper.execute_method() (pid=1, ip=10.0.0.1)",
        "ERROR 01-02 03:04:05 [m.py:1] Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    ],
)
def test_reports_of_a_death_are_no_roots(line: str) -> None:
    (alone,) = read(line + "\n").failures
    assert alone.kind == "consequence"
    assert roots("ValueError: the reason\n" + line + "\n") == [("ValueError", "the reason")]
    assert roots(line + "\n" + "ValueError: the reason\n") == [("ValueError", "the reason")]


def test_ray_shows_the_remote_error_as_the_last_line() -> None:
    text = (
        "(APIServer pid=1) ray.exceptions.RayTaskError(OutOfMemoryError): ray::RayWorkerWrapper.execute_method() (pid=9)\n"
        '(APIServer pid=1)   File "/x/site-packages/vllm/worker/model_runner.py", line 1, in load_model\n'
        "(APIServer pid=1)     self.model = get_model()\n"
        "(APIServer pid=1) torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    (failure,) = read(text).failures
    assert (failure.type, failure.phase) == ("torch.OutOfMemoryError", "weights")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Killed", "Killed"),
        ("./serve.sh: line 4: 12345 Killed                  vllm serve m", "Killed"),
        ("systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL", "Killed"),
        ("vllm serve: error: argument --dtype: invalid choice: 'fp16'", "usage error"),
        ("api_server.py: error: unrecognized arguments: --max-mm-tokens", "usage error"),
        ("Fatal Python error: Segmentation fault", "crash"),
        (
            "ERROR 01-02 03:04:05 async_llm_engine.py:960] Engine iteration timed out. This should never happen!",
            "TimeoutError",
        ),
    ],
)
def test_lines_that_end_a_server(line: str, kind: str) -> None:
    summary = read("INFO 01-02 03:04:05 [a.py:1] Automatically detected platform cuda.\n" + line + "\n")
    assert (summary.state, [failure.type for failure in summary.failures]) == ("failed", [kind])


@pytest.mark.parametrize(
    "line",
    [
        "INFO 01-02 03:04:05 [a.py:1] ValueError: shown for information",
        "WARNING 01-02 03:04:05 [a.py:1] ImportError: optional module is missing",
        "/x/site-packages/y.py:3: UserWarning: something is odd",
        "FutureWarning: soon gone",
        "KeyboardInterrupt",
        "openai.BadRequestError: Error code: 400 - {'object': 'error'}",
        "WARNING 01-02 03:04:05 [u.py:1] errors like `OSError: [Errno 24] Too many open files` may follow",
        "the process was Killed by nobody",
    ],
)
def test_lines_that_are_no_failure(line: str) -> None:
    assert read(line + "\n").failures == ()


def test_errors_before_readiness_were_survived() -> None:
    summary = read(trace("ValueError: retried", "inspect") + READY)
    assert (summary.state, [failure.fatal for failure in summary.failures]) == ("ready", [False])


def test_a_request_error_and_then_the_engine_s_death() -> None:
    text = READY
    text += trace(
        "ValueError: bad picture", "create_chat_completion", prefix="(APIServer pid=1) ERROR 01-02 03:04:05 [s.py:1] "
    )
    text += "INFO 01-02 03:04:05 [a.py:1] fine\n" * 700
    text += ENGINE + "EngineCore encountered a fatal error.\n"
    text += trace("RuntimeError: CUDA error: an illegal memory access was encountered", "run_busy_loop", prefix=ENGINE)
    text += "(APIServer pid=1) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    summary = read(text)
    assert summary.state == "failed"
    assert [(failure.message[:10], failure.fatal) for failure in summary.failures] == [
        ("CUDA error", True),
        ("bad pictur", False),
    ]


def test_restarts_the_last_telling_start_decides() -> None:
    banner = "INFO 01-02 03:04:05 [a.py:1] vLLM API server version 0.{}.0\n"
    first = banner.format(8) + "ValueError: of the first start\n"
    second = banner.format(9) + "ValueError: of the second start\n"
    cut = banner.format(10)
    healthy = banner.format(11) + READY
    looping = read(first + second + cut)
    assert (looping.state, looping.attempt, looping.attempts) == ("failed", 2, 3)
    assert looping.version is not None and looping.version.value == "0.9.0"
    assert [f.message for f in looping.failures] == ["of the second start"]
    assert [(f.message, f.attempt) for f in looping.earlier_failures] == [("of the first start", 1)]
    mended = read(first + second + healthy)
    assert (mended.state, mended.failures, mended.attempt) == ("ready", (), 3)
    assert [f.attempt for f in mended.earlier_failures] == [1, 2]


GIB, MIB = 2**30, 2**20


def test_oom_with_a_list_of_other_processes() -> None:
    report = read(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 418.00 MiB. GPU 2 has a total capacity of 23.69 GiB of"
        " which 193.25 MiB is free. Process 12 has 730.00 MiB memory in use. Process 34 has 14.90 GiB memory in use. Including"
        " non-PyTorch memory, this process has 7.50 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by PyTorch,"
        " with 44.00 MiB allocated in private pools (e.g., CUDA Graphs), and 27.25 MiB is reserved by PyTorch but unallocated.\n"
    ).oom
    assert report is not None
    assert (report.tried_bytes, report.total_bytes, report.gpu_index) == (418 * MIB, round(23.69 * GIB), 2)
    assert report.free_bytes == round(193.25 * MIB)
    assert report.other_processes == ((12, 730 * MIB), (34, round(14.9 * GIB)))
    assert (report.this_process_bytes, report.pytorch_bytes) == (round(7.5 * GIB), 7 * GIB)
    assert (report.graph_pool_bytes, report.reserved_bytes) == (44 * MIB, round(27.25 * MIB))


def test_oom_figures_that_cannot_be_are_unknown() -> None:
    report = read(
        "(Worker_TP1 pid=61) ERROR 05-02 23:41:19 [gpu_model_runner.py:4877] Failed to load model - not enough GPU memory. Try"
        " less. (original error: CUDA out of memory. Tried to allocate 44.00 MiB. GPU 1 has a total capacity of 24.00 GiB of"
        " which 15.41 GiB is free. Process 60 has 17179869184.00 GiB memory in use.)\n"
    ).oom
    assert report is not None
    assert (report.other_processes, report.this_process_bytes, report.gpu_index) == (((60, None),), None, 1)


def test_oom_of_old_pytorch_and_of_rocm() -> None:
    old = read(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 21.00"
        " GiB already allocated; 14.06 MiB free; 21.50 GiB reserved in total by PyTorch)\n"
    ).oom
    assert old is not None
    assert (old.total_bytes, old.pytorch_bytes, old.reserved_bytes) == (round(23.69 * GIB), 21 * GIB, GIB // 2)
    rocm = read(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 64.00 GiB\n"
    ).oom
    assert rocm is not None
    assert (rocm.device, rocm.tried_bytes) == ("HIP", round(1.5 * GIB))


def test_sampler_warm_up_is_named() -> None:
    text = trace(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 23.68 GiB",
        "profile_run",
        "_dummy_sampler_run",
    )
    text += "\nThe above exception was the direct cause of the following exception:\n\n"
    text += trace(
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
        " `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        "_dummy_sampler_run",
    )
    summary = read(text)
    assert summary.oom is not None
    assert (summary.oom.sampler_requests, summary.oom.tried_bytes, summary.oom.phase) == (1024, 594 * MIB, "profile")
    assert len(summary.failures) == 1


@pytest.mark.parametrize(
    ("functions", "phase"),
    [
        (("load_model", "_initialize_model", "create_weights"), "weights"),
        (("determine_available_memory", "profile_run", "_dummy_run", "execute_model"), "profile"),
        (("determine_num_available_blocks", "profile_run", "execute_model"), "profile"),
        (("_initialize_kv_caches", "initialize_from_config", "_allocate_kv_cache"), "kv"),
        (("compile_or_warm_up_model", "capture_model", "_dummy_run"), "capture"),
        (("__call__", "__exit__", "capture_end"), "capture"),  # an excerpt with torch's own frames only
        (("compile_or_warm_up_model", "_dummy_sampler_run"), "warmup"),
        (("run_busy_loop", "execute_model", "forward"), "serving"),
        (("run_engine_loop", "engine_step", "execute_model"), "serving"),
    ],
)
def test_phase_of_an_excerpt_is_that_of_its_frames(functions: tuple[str, ...], phase: str) -> None:
    summary = read(trace("torch.OutOfMemoryError: CUDA out of memory.", *functions, header=False))
    assert summary.oom is not None
    assert (summary.oom.phase, summary.failure_phase) == (phase, phase)


def test_the_called_function_counts_where_its_frame_is_left_out() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/venv/site-packages/vllm/v1/worker/gpu_worker.py", line 3, in compile_or_warm_up_model\n'
        "    self.model_runner.capture_model()\n"
        "RuntimeError: CUDA error: out of resources\n"
    )
    failure = read(text).failures[0]
    assert failure.phase == "capture"
    assert failure.frames[-1] == "vllm/v1/worker/gpu_worker.py:capture_model"


def test_messages_that_begin_empty_take_the_next_line() -> None:
    text = trace("ImportError: ", "get_processor") + "Qwen2VLVideoProcessor requires the Torchvision library\n"
    assert roots(text) == [("ImportError", "Qwen2VLVideoProcessor requires the Torchvision library")]


def test_failures_are_plain_values() -> None:
    failure = read("ValueError: x\n").failures[0]
    assert isinstance(failure, Failure)
    assert hash(failure) == hash(read("ValueError: x\n").failures[0])
