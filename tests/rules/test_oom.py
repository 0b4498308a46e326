"""One cause for each failed GPU allocation, from as little as a single line, a command and a word about the card."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.derived.oom import attribute
from qvl_doctor.core.facts import Objects, View
from qvl_doctor.core.host import HostFacts
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.logs import LogReader
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.sources.tables import model_spec, parse_gpus
from qvl_doctor.sources.vllm_facts import knowledge

load_all()

BARE = "torch.OutOfMemoryError: CUDA out of memory."
OWN_PROCESS = "Including non-PyTorch memory, this process has"


def _view(log: str, command: str, *, gpu: str = "", version: str = "0.11.0", os: str | None = None) -> View:
    reader = LogReader(source="server.log")
    reader.feed(log.encode())
    summary = reader.finish()
    known = knowledge(version)
    launch = parse_text(command, grammar=known).commands[0]
    gpus = parse_gpus(gpu) if gpu else ()
    observed = Observed(
        launch=launch, log=summary, host=HostFacts(os=os), gpus=gpus, gpu_text=gpu or None, version=version
    )
    return View(base_facts(observed), Objects(launch, summary, known, model_spec(launch.model or ""), gpus))


def _message(tried: str, total: str, free: str, rest: str = "") -> str:
    return f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of {total} of which {free} is free. {rest}"  # noqa: E501  # one line, as PyTorch prints it


@pytest.mark.parametrize(
    ("command", "gpu", "version", "log", "cause"),
    [
        ("vllm serve Qwen/Qwen2.5-VL-72B-Instruct", "2x A100 80GB", "0.11.0", BARE, "weights-do-not-fit"),
        (
            "vllm serve Qwen/Qwen2.5-VL-72B-Instruct -tp 2 --gpu-memory-utilization 0.8",
            "2x A100 80GB",
            "0.11.0",
            BARE,
            "util-fraction-too-low-for-weights",
        ),
        ("vllm serve Qwen/Qwen2.5-VL-72B-Instruct -tp 2", "2x A100 80GB", "0.11.0", BARE, "weights-leave-little-kv"),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "1x RTX 3090", "0.8.3", BARE, "oom-max-num-seqs-default"),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "1x RTX 3090", "0.11.2", BARE, "oom-profile-multimodal"),
        ("vllm serve Qwen/Qwen2-VL-7B-Instruct-AWQ", "1x A10 24GB", "0.6.4", BARE, "oom-runtime-headroom"),
        ("python caption.py", "1x RTX 3090", "0.11.0", BARE, "image-pixels-uncapped"),
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "1x RTX 3090", "0.25.1", BARE, "vision-memory-not-reserved"),
    ],
)
def test_a_bare_line_is_attributed_by_version_and_arithmetic(
    command: str, gpu: str, version: str, log: str, cause: str
) -> None:
    found = attribute(_view(log, command, gpu=gpu, version=version))
    assert found is not None
    assert found.cause == cause
    assert found.basis in ("worked-out", "guessed")


@pytest.mark.parametrize(
    ("frames", "stage", "cause"),
    [
        (("gpu_model_runner.py:load_model",), "weights", "gpu-busy-other-process"),
        (("gpu_model_runner.py:profile_run", "gpu_model_runner.py:_dummy_sampler_run"), "sampler", None),
        (("gpu_model_runner.py:profile_run", "qwen3_vl.py:_process_video_input"), "encoder-profile", None),
        (("gpu_worker.py:initialize_from_config", "gpu_model_runner.py:_allocate_kv_cache_tensors"), "kv", None),
        (("gpu_model_runner.py:capture_model", "gpu_model_runner.py:_dummy_run"), "graphs", "oom-cudagraph-capture"),
        (("core.py:run_busy_loop", "gpu_model_runner.py:execute_model"), "serving", "oom-runtime-headroom"),
    ],
)
def test_the_traceback_places_the_failure(frames: tuple[str, ...], stage: str, cause: str | None) -> None:
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        file, _, function = frame.partition(":")
        lines += [f'  File "/opt/vllm/vllm/v1/{file}", line 10, in {function}', "    run()"]
    log = "\n".join([*lines, _message("64.00 MiB", "23.52 GiB", "10.00 MiB")])
    view = _view(log, "vllm serve Qwen/Qwen3-VL-2B-Instruct --max-model-len 8192", gpu="1x RTX 4090")
    assert view.text("derived.oom_stage") == stage
    if cause is not None:
        assert view.text("derived.oom_cause") == cause


@pytest.mark.parametrize(
    ("command", "line", "cause"),
    [
        ("python caption.py", BARE, "image-pixels-uncapped"),
        ("python -m mywrap --engine vllm", BARE, "oom-runtime-headroom"),
        ("python serve.py", f"ERROR 11-30 10:00:00 [async_llm_engine.py:68] {BARE}", "oom-runtime-headroom"),
        ("python serve.py", f"(VllmWorker rank=1 pid=7) {BARE}", "oom-runtime-headroom"),
    ],
)
def test_what_vllm_wrote_is_no_script_of_the_user(command: str, line: str, cause: str) -> None:
    assert _view(line, command, version="0.8.5").text("derived.oom_cause") == cause


def test_captured_graphs_mean_that_the_start_was_over() -> None:
    rest = f"{OWN_PROCESS} 79.00 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch, with 54.00 MiB allocated in private pools (e.g., CUDA Graphs), and 20.00 MiB is reserved by PyTorch but unallocated."  # noqa: E501  # one line, as PyTorch prints it
    log = _message("300.00 MiB", "79.15 GiB", "150.00 MiB", rest)
    view = _view(log, "vllm serve Qwen/Qwen2.5-VL-72B-Instruct -tp 2", gpu="2x A100 80GB")
    assert view.text("derived.oom_cause") == "oom-runtime-headroom"


def test_the_samplers_own_message_is_certain() -> None:
    log = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests."
    view = _view(log, "vllm serve Qwen/Qwen2.5-VL-3B-Instruct", gpu="1x RTX 4090")
    assert view.text("derived.oom_cause") == "oom-max-num-seqs-default"
    assert view.text("derived.oom_basis") == "stated"
    assert view.integer("derived.oom_sampler_rows") == 1024


def test_other_processes_are_those_that_are_not_the_server() -> None:
    command = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"
    named = _message(
        "1.00 GiB",
        "79.14 GiB",
        "20.00 MiB",
        f"Process 7 has 60.00 GiB memory in use. {OWN_PROCESS} 19.00 GiB memory in use.",
    )
    assert _view(named, command).number("derived.oom_others_gib") == pytest.approx(60, abs=0.2)
    in_container = _message(
        "1.00 GiB",
        "31.74 GiB",
        "3.00 GiB",
        "Process 7 has 28.17 GiB memory in use. Of the allocated memory 27.43 GiB is allocated by PyTorch, and "
        "32.00 MiB is reserved by PyTorch but unallocated.",
    )
    assert _view(in_container, command).number("derived.oom_others_gib") == 0.0
    unlisted = _message("1.00 GiB", "23.52 GiB", "20.00 MiB", f"{OWN_PROCESS} 9.00 GiB memory in use.")
    assert _view(unlisted, command).number("derived.oom_others_gib") == pytest.approx(14.5, abs=0.01)


def test_a_crowded_card_is_shared_where_a_small_fraction_was_chosen() -> None:
    crowd = _message(
        "1.00 GiB",
        "23.52 GiB",
        "20.00 MiB",
        f"Process 7 has 12.00 GiB memory in use. {OWN_PROCESS} 11.00 GiB memory in use.",
    )
    small = "vllm serve Qwen/Qwen3-VL-2B-Instruct --gpu-memory-utilization 0.6"
    assert _view(crowd, small).text("derived.oom_cause") == "gpu-shared-with-other-processes"
    assert _view(crowd, "vllm serve Qwen/Qwen3-VL-2B-Instruct").text("derived.oom_cause") == "gpu-busy-other-process"
    large = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --gpu-memory-utilization 0.6"
    assert _view(crowd, large).text("derived.oom_cause") == "gpu-busy-other-process"


def test_garbled_figures_mean_wsl_unless_the_host_is_known_not_to_be() -> None:
    log = _message("44.00 MiB", "24.00 GiB", "9.00 GiB", f"{OWN_PROCESS} 17179869184.00 GiB memory in use.")
    command = "vllm serve Qwen/Qwen3-VL-8B-Instruct"
    assert _view(log, command, os="WSL2").text("derived.oom_cause") == "wsl2-vram-overhead"
    assert _view(log, command).text("derived.oom_cause") == "wsl2-vram-overhead"
    assert _view(log, command, os="linux").text("derived.oom_cause") != "wsl2-vram-overhead"


def test_online_quantization_loads_the_whole_weights_first_on_old_releases() -> None:
    command = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct --quantization fp8"
    old = _view(BARE, command, gpu="1x RTX 4090", version="0.11.0").number("derived.weights_gib")
    new = _view(BARE, command, gpu="1x RTX 4090", version="0.25.1").number("derived.weights_gib")
    assert old == pytest.approx(15.67, abs=0.2)
    assert new is not None
    assert new < 11


def test_no_failure_no_cause() -> None:
    view = _view("INFO:     Application startup complete.", "vllm serve Qwen/Qwen2.5-VL-7B-Instruct")
    assert attribute(view) is None
    assert view.text("derived.oom_cause") is None


CAUSES = {
    "weights-do-not-fit", "util-fraction-too-low-for-weights", "weights-leave-little-kv", "oom-profile-multimodal",
    "oom-max-num-seqs-default", "oom-cudagraph-capture", "gpu-busy-other-process", "gpu-shared-with-other-processes",
    "gpu-util-slightly-too-high", "wsl2-vram-overhead", "oom-runtime-headroom", "vision-memory-not-reserved",
    "image-pixels-uncapped", "kv-cache-larger-than-memory",
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    tried=st.floats(0, 90),
    total=st.floats(0.1, 200),
    free=st.floats(0, 90),
    others=st.lists(st.floats(0, 100), max_size=3),
    version=st.sampled_from(["0.6.3", "0.8.2", "0.11.0", "0.25.1", "0.33.0"]),
    util=st.floats(0.01, 1),
)
def test_any_figures_give_one_of_the_known_causes(
    tried: float, total: float, free: float, others: list[float], version: str, util: float
) -> None:
    rest = " ".join(f"Process {pid} has {size:.2f} GiB memory in use." for pid, size in enumerate(others, 1))
    log = _message(f"{tried:.2f} GiB", f"{total:.2f} GiB", f"{free:.2f} GiB", rest)
    command = f"vllm serve Qwen/Qwen2.5-VL-7B-Instruct --gpu-memory-utilization {util:.2f}"
    found = attribute(_view(log, command, version=version))
    assert found is not None
    assert found.cause in CAUSES
