"""Lines of each era of vLLM, in own words where free, in its wording where fixed."""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import pytest

from qvl_doctor.core.logs import LogReader, LogSummary


def read(text: str) -> LogSummary:
    reader = LogReader(source="s")
    reader.feed(text.encode())
    return reader.finish()


def values(text: str) -> dict[str, object]:
    return {name: sighting.value for name, sighting in read(text).facts.items()}


def test_0_6_3_v0() -> None:
    text = """\
INFO 10-20 09:00:00 api_server.py:528] vLLM API server version 0.6.3.post1
INFO 10-20 09:00:00 api_server.py:529] args: Namespace(host='0.0.0.0', port=8000, api_key='sk-not-shown', model='Qwen/Qwen2-VL-7B-Instruct', dtype='auto', max_model_len=8192, tensor_parallel_size=2, limit_mm_per_prompt={'image': 4}, dispatch_function=<function serve at 0x7f00>)
INFO 10-20 09:00:10 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='Qwen/Qwen2-VL-7B-Instruct', speculative_config=None, tokenizer='Qwen/Qwen2-VL-7B-Instruct', skip_tokenizer_init=False, dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, served_model_name=qwen
INFO 10-20 09:00:20 model_runner.py:1060] Starting to load model Qwen/Qwen2-VL-7B-Instruct...
(VllmWorkerProcess pid=345) INFO 10-20 09:00:25 model_runner.py:1071] Loading model weights took 7.9312 GB
INFO 10-20 09:00:25 model_runner.py:1071] Loading model weights took 7.8012 GB
INFO 10-20 09:00:40 distributed_gpu_executor.py:57] # GPU blocks: 27000, # CPU blocks: 9362
INFO 10-20 09:00:40 distributed_gpu_executor.py:61] Maximum concurrency for 8192 tokens per request: 52.73x
INFO 10-20 09:00:41 model_runner.py:1402] Capturing the model for CUDA graphs. This may lead to unexpected consequences if the model is not static.
INFO 10-20 09:01:00 model_runner.py:1530] Graph capturing finished in 19 secs.
INFO 10-20 09:01:02 launcher.py:19] Available routes are:
INFO:     Started server process [1]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
INFO 10-20 09:02:00 metrics.py:349] Avg prompt throughput: 310.5 tokens/s, Avg generation throughput: 44.1 tokens/s, Running: 5 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 97.5%, CPU KV cache usage: 0.0%.
WARNING 10-20 09:02:01 scheduler.py:1481] Sequence group chat-12 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end performance. total_num_cumulative_preemption=51
"""
    summary = read(text)
    facts = {name: sighting.value for name, sighting in summary.facts.items()}
    assert (summary.state, summary.phase) == ("ready", "serving")
    assert facts["vllm_version"] == "0.6.3.post1"
    assert (facts["weights_gib"], facts["num_gpu_blocks"], facts["num_cpu_blocks"]) == (7.9312, 27000, 9362)
    assert (facts["max_concurrency"], facts["concurrency_len"], facts["max_model_len"]) == (52.73, 8192, 8192)
    assert (facts["dtype"], facts["tensor_parallel_size"], facts["device"]) == ("bfloat16", 2, "cuda")
    assert "quantization" not in facts
    assert summary.args is not None
    assert (summary.args["api_key"], summary.args["limit_mm_per_prompt"]) == ("****", {"image": 4})
    assert (summary.stats.preemptions, summary.stats.waiting_last, summary.stats.kv_usage_max_percent) == (51, 2, 97.5)


def test_0_6_4_profile_line() -> None:
    facts = values(
        "INFO 11-20 10:00:00 worker.py:232] Memory profiling results: total_gpu_memory=23.64GiB initial_memory_usage=15.97GiB"
        " peak_torch_memory=17.98GiB memory_usage_post_profile=16.03GiB non_torch_memory=0.42GiB kv_cache_size=2.87GiB"
        " gpu_memory_utilization=0.90\nINFO 11-20 10:00:30 model_runner.py:1] Graph capturing finished in 12 secs, took 0.31 GiB\n"
    )
    assert (facts["total_gib"], facts["kv_available_gib"], facts["non_torch_gib"]) == (23.64, 2.87, 0.42)
    assert (facts["cudagraph_gib"], facts["cudagraph_seconds"]) == (0.31, 12.0)


def test_0_8_v0_memory_block() -> None:
    prefix = "INFO 04-20 10:00:00 [worker.py:267] "
    facts = values(
        f"{prefix}Memory profiling takes 3.94 seconds\n"
        f"{prefix}the current vLLM instance can use total_gpu_memory (39.39GiB) x gpu_memory_utilization (0.90) = 35.45GiB\n"
        f"{prefix}model weights take 15.63GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 2.97GiB;"
        " the rest of the memory reserved for KV Cache is 16.76GiB.\n"
        "INFO 04-20 10:00:01 [executor_base.py:112] # cuda blocks: 19614, # CPU blocks: 4681\n"
    )
    assert (facts["profile_seconds"], facts["total_gib"], facts["requested_gib"]) == (3.94, 39.39, 35.45)
    assert (facts["weights_gib"], facts["torch_peak_gib"], facts["kv_available_gib"]) == (15.63, 2.97, 16.76)
    assert (facts["num_gpu_blocks"], facts["num_cpu_blocks"], facts["block_device"]) == (19614, 4681, "cuda")


def test_0_8_5_v1() -> None:
    text = """\
INFO 05-01 10:00:00 [api_server.py:1043] vLLM API server version 0.8.5.post1
INFO 05-01 10:00:09 [core.py:58] Initializing a V1 LLM engine (v0.8.5.post1) with config: model='/m', dtype=torch.float16, max_seq_len=4096, tensor_parallel_size=1, quantization=awq_marlin
INFO 05-01 10:00:20 [cuda.py:221] Using Flash Attention backend on V1 engine.
INFO 05-01 10:00:30 [gpu_model_runner.py:1347] Model loading took 6.58 GiB and 12.001 seconds
INFO 05-01 10:00:31 [gpu_model_runner.py:1620] Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items of the maximum feature size.
INFO 05-01 10:01:00 [monitor.py:33] torch.compile takes 31.25 s in total
INFO 05-01 10:01:02 [kv_cache_utils.py:634] GPU KV cache size: 120,000 tokens
INFO 05-01 10:01:02 [kv_cache_utils.py:637] Maximum concurrency for 4,096 tokens per request: 29.30x
"""
    summary = read(text)
    facts = {name: sighting.value for name, sighting in summary.facts.items()}
    assert (summary.state, summary.phase, facts["engine"]) == ("starting", "kv", "V1")
    assert (facts["attention_backend"], facts["quantization"], facts["dtype"]) == (
        "Flash Attention",
        "awq_marlin",
        "float16",
    )
    assert (facts["compile_seconds"], facts["kv_tokens"], facts["max_concurrency"]) == (31.25, 120000, 29.3)


@pytest.mark.parametrize(
    ("line", "tokens", "concurrency"),
    [
        ("GPU KV cache size: 70,880 tokens, Maximum concurrency for 8,192 tokens per request: 8.65x", 70880, 8.65),
        ("XPU + host KV cache size: 64 tokens, Maximum concurrency for 8,192 tokens per request: 0.01x", 64, 0.01),
        (
            "CPU KV cache size: 4,194,304 tokens, Maximum concurrency for 4,096 tokens per request: 1024.00x",
            4194304,
            1024.0,
        ),
    ],
)
def test_joined_kv_line_since_0_28(line: str, tokens: int, concurrency: float) -> None:
    facts = values(f"(EngineCore pid=9) INFO 01-02 03:04:05 [kv_cache_utils.py:1] {line}\n")
    assert (facts["kv_tokens"], facts["max_concurrency"]) == (tokens, concurrency)


def test_of_several_workers_the_tightest_figure_counts() -> None:
    form = "(Worker_TP{0} pid={0}) INFO 01-02 03:04:05 [gpu_worker.py:1] Available KV cache memory: {1} GiB\n"
    assert values(form.format(0, "3.50") + form.format(1, "2.25") + form.format(2, "4.0"))["kv_available_gib"] == 2.25


def test_debug_lines_state_the_whole_budget() -> None:
    facts = values(
        "DEBUG 01-02 03:04:05 [v1/worker/gpu_worker.py:537] Memory profiling takes 11.59 seconds. Total non KV cache memory:"
        " 19.7GiB; torch peak memory increase: 3.8GiB; non-torch forward increase memory: 0.22GiB; weights memory: 15.67GiB.\n"
    )
    assert facts == {
        "profile_seconds": 11.59, "non_kv_gib": 19.7, "torch_peak_gib": 3.8, "non_torch_gib": 0.22, "weights_gib": 15.67,
    }  # fmt: skip


def test_newest_statistics_with_all_optional_parts() -> None:
    head = (
        "(APIServer pid=1) INFO 01-02 03:04:{:02} [loggers.py:3] Engine 003: Avg prompt throughput: {:.1f} tokens/s, "
    )
    tail = (
        "Avg generation throughput: 5.0 tokens/s, Running: {} reqs, Waiting: {} reqs, Deferred: 1 reqs, KV fetch: 1 waiting"
        " to start, 2 in progress, 0 completed waiting, Preemptions: {}, GPU KV cache usage: {}%, Prefix cache hit rate: 40.0%,"
        " External prefix cache hit rate: 1.0%, MM cache hit rate: 61.5%\n"
    )
    stats = read((head + tail).format(10, 100.0, 4, 1, 2, 99.0) + (head + tail).format(20, 300.0, 6, 3, 5, 100.0)).stats
    assert (stats.lines, stats.preemptions, stats.running_max, stats.waiting_last) == (2, 7, 6, 3)
    assert (stats.prefix_hit_percent_last, stats.mm_cache_hit_percent_last) == (40.0, 61.5)
    assert (stats.saturated_lines, stats.saturated_seconds_longest) == (2, 10.0)
    assert stats.prompt_tokens_per_second_mean == 200.0
    assert stats.queue_growing_lines == 2


def test_waiting_while_none_runs_is_degraded() -> None:
    form = (
        "(APIServer pid=1) INFO 01-02 03:{:02}:00 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg"
        " generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 1 reqs, GPU KV cache usage: 0.0%\n"
    )
    summary = read("".join(form.format(minute) for minute in range(5)))
    assert summary.state == "degraded"
    assert (summary.stats.stuck_lines, summary.stats.stuck_seconds_longest) == (5, 240.0)
    assert summary.stats.stuck_where == "s:1"


def test_banner_forms() -> None:
    assert values(
        "INFO 01-02 03:04:05 [u.py:1] vLLM server version 0.17.1, serving model Qwen/Qwen3-VL-8B-Instruct\n"
    ) == {
        "vllm_version": "0.17.1",
        "model": "Qwen/Qwen3-VL-8B-Instruct",
    }
    logo = (
        "(APIServer pid=1) \x1b[97;1m ▄▄ ▄█ █     █     █ ▀▄▀ █\x1b[0m  version \x1b[97;1m0.20.2rc1.dev3+gabc\x1b[0m\n"
        "(APIServer pid=1)   █▄█▀ █     █     █     █  model   \x1b[97;1m/models/q\x1b[0m\n"
    )
    assert values(logo) == {"vllm_version": "0.20.2rc1.dev3+gabc", "model": "/models/q"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("vllm-1 exited with code 137", 137),
        (
            "(EngineCore pid=1) RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore': -9}",
            -9,
        ),
        ("Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.", -9),
        ("    Exit Code:    139", 139),
    ],
)
def test_exit_codes(line: str, code: int) -> None:
    assert values(line + "\n")["exit_code"] == code


def test_environment_report() -> None:
    facts = values(
        "PyTorch version              : 2.6.0+cu124\nNvidia driver version        : 535.104.05\n"
        "[pip3] transformers==4.51.1\nGPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nvLLM Version                 : 0.8.5\n"
    )
    assert facts == {
        "torch_version": "2.6.0+cu124", "driver": "535.104.05", "transformers_version": "4.51.1",
        "gpu_name": "NVIDIA A100-SXM4-80GB", "vllm_version": "0.8.5",
    }  # fmt: skip
