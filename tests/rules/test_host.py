"""Facts about the host and about releases that rules rest on: shared memory, nodes, address, driver, speculation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.derived.compat import first_release
from qvl_doctor.core.facts import Objects, Value, View
from qvl_doctor.core.host import HostFacts
from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.logs import LogReader
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.sources.tables import model_spec, parse_gpus
from qvl_doctor.sources.vllm_facts import knowledge, releases

load_all()

DOCKER = "docker run --gpus all {} vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-VL-32B-Instruct -tp 2"


def _view(
    command: str | None = None,
    *,
    log: str | None = None,
    gpu: str = "",
    version: str | None = "0.11.0",
    host: HostFacts | None = None,
) -> View:
    known = knowledge(version)
    launch = None if command is None else parse_text(command, grammar=known).commands[0]
    summary = None
    if log is not None:
        reader = LogReader(source="server.log")
        reader.feed(log.encode())
        summary = reader.finish()
    gpus = parse_gpus(gpu) if gpu else ()
    observed = Observed(
        launch=launch, log=summary, host=host or HostFacts(), gpus=gpus, gpu_text=gpu or None, version=version
    )
    model = model_spec(launch.model) if launch is not None and launch.model else None
    return View(base_facts(observed), Objects(launch, summary, known, model, gpus))


@pytest.mark.parametrize(
    ("options", "mib"),
    [
        ("", 64.0),
        ("--shm-size 16g", 16384.0),
        ("--shm-size=512m", 512.0),
        ("--ipc=host", None),
        ("--ipc container:other", None),
        ("-v /dev/shm:/dev/shm", None),
    ],
)
def test_container_shared_memory(options: str, mib: float | None) -> None:
    assert _view(DOCKER.format(options)).value("derived.shm_mib") == mib


def test_measured_shared_memory_stands_above_the_command() -> None:
    view = _view(DOCKER.format("--shm-size 16g"), host=HostFacts(shm_bytes=64 << 20))
    assert view.value("derived.shm_mib") == 64.0


def test_no_container_says_nothing_about_shared_memory() -> None:
    view = _view("vllm serve Qwen/Qwen3-VL-32B-Instruct -tp 2")
    assert view.value("derived.shm_mib") is None
    assert view.value("derived.shm_default_container") is None


@pytest.mark.parametrize(
    ("command", "open_"),
    [
        ("vllm serve M", True),
        ("vllm serve M --host 0.0.0.0", True),
        ("vllm serve M --host ::", True),
        ("vllm serve M --host 10.0.0.7", True),
        ("vllm serve M --host 127.0.0.1", False),
        ("vllm serve M --host 127.0.1.1", False),
        ("vllm serve M --host ::1", False),
        ("vllm serve M --host localhost", False),
        ("vllm serve M --host 0.0.0.0 --api-key secret", False),
        ("VLLM_API_KEY=secret vllm serve M", False),
        ("VLLM_API_KEY= vllm serve M", True),
        ("vllm serve M --uds /run/vllm.sock", None),
        ("vllm serve M --headless", None),
        ("docker run -p 8000:8000 vllm/vllm-openai:v0.11.0 --model M", True),
        ("docker run -p 127.0.0.1:8000:8000 vllm/vllm-openai:v0.11.0 --model M", False),
        ("docker run vllm/vllm-openai:v0.11.0 --model M", False),
        ("docker run --network host vllm/vllm-openai:v0.11.0 --model M", True),
        ("docker run -p 8000:8000 --env-file .env vllm/vllm-openai:v0.11.0 --model M", None),
    ],
)
def test_who_can_reach_the_server(command: str, open_: bool | None) -> None:
    assert _view(command).value("derived.open_without_key") is open_


@pytest.mark.parametrize(
    ("arguments", "open_"),
    [
        ("{'model': 'M'}", True),
        ("{'model': 'M', 'host': '127.0.0.1'}", False),
        ("{'model': 'M', 'host': '0.0.0.0', 'api_key': ['k']}", False),
    ],
)
def test_address_from_the_log_alone(arguments: str, open_: bool) -> None:
    log = f"INFO 11-01 10:00:00 [utils.py:233] non-default args: {arguments}\n"
    assert _view(log=log).value("derived.open_without_key") is open_


def test_no_command_and_no_arguments_say_nothing_about_the_address() -> None:
    assert _view(log="INFO 11-01 10:00:00 [api_server.py:1] hello\n").value("derived.open_without_key") is None


@pytest.mark.parametrize(
    ("gpu", "command", "nodes", "per_node", "leaves"),
    [
        ("2 nodes x 8 x A100 80GB", "vllm serve M -tp 16", 2, 8, True),
        ("2 nodes x 8 x A100 80GB", "vllm serve M -tp 8 -pp 2", 2, 8, False),
        ("", "vllm serve M -tp 16 --nnodes 2", 2, 8, True),
        ("8x A100 80GB", "vllm serve M -tp 8", None, None, None),
    ],
)
def test_nodes(gpu: str, command: str, nodes: Value, per_node: Value, leaves: Value) -> None:
    view = _view(command, gpu=gpu)
    assert view.value("derived.nodes") == nodes
    assert view.value("plan.gpus_per_node") == per_node
    assert view.value("derived.tensor_parallel_leaves_node") == leaves


@pytest.mark.parametrize(
    ("version", "cuda", "branch"),
    [
        ("0.8.5", "12.4", 550),
        ("0.9.2", "12.8", 570),
        ("0.11.0", "12.8", 570),
        ("0.20.0", "13.0", 580),
        (None, None, 570),
    ],
)
def test_driver_of_a_release(version: str | None, cuda: str | None, branch: int) -> None:
    view = _view("vllm serve M", version=version)
    assert view.value("plan.cuda_of_release") == cuda
    assert view.value("plan.driver_branch") == branch


@pytest.mark.parametrize(("driver", "behind"), [("535.104.05", True), ("570.86.15", False), (None, None), ("?", None)])
def test_driver_behind_the_release(driver: str | None, behind: bool | None) -> None:
    assert _view("vllm serve M", host=HostFacts(driver=driver)).value("derived.driver_behind") is behind


@pytest.mark.parametrize(
    ("gpu", "version", "before_ampere", "dropped"),
    [
        ("V100 32GB", "0.11.0", True, False),
        ("V100 32GB", "0.25.1", True, True),
        ("T4 16GB", "0.25.1", True, False),
        ("A100 80GB", "0.25.1", False, False),
    ],
)
def test_generation_of_the_gpu(gpu: str, version: str, before_ampere: bool, dropped: bool) -> None:
    view = _view("vllm serve M", gpu=gpu, version=version)
    assert view.value("derived.before_ampere") is before_ampere
    assert view.value("derived.dropped_by_cuda13") is dropped


@pytest.mark.parametrize(
    ("tail", "stops"),
    [
        ("INFO 12-01 10:00:00 [pynccl.py:69] vLLM is using nccl==2.21.5\n", True),
        (
            "INFO 12-01 10:00:00 [pynccl.py:69] vLLM is using nccl==2.21.5\n"
            "INFO 12-01 10:01:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 s\n",
            True,
        ),
        (
            "INFO 12-01 10:00:00 [pynccl.py:69] vLLM is using nccl==2.21.5\n"
            "INFO 12-01 10:01:00 [gpu_model_runner.py:1] Starting to load model M...\n",
            False,
        ),
    ],
)
def test_where_the_log_ends(tail: str, stops: bool) -> None:
    assert _view(log=tail).value("derived.stops_at_nccl") is stops


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("vllm serve org/M", "org/M"),
        ("vllm serve org/M --served-model-name vl", "vl"),
        ("vllm serve org/M --served-model-name vl other", "vl"),
    ],
)
def test_name_for_clients(command: str, name: str) -> None:
    assert _view(command).value("derived.served_name") == name


@pytest.mark.parametrize(
    ("visible", "tensor_parallel", "too_few"),
    [("0,1", 4, True), ("0,1,2,3", 4, False), ("3", 2, True), ("all", 4, None)],
)
def test_gpus_made_visible(visible: str, tensor_parallel: int, too_few: bool | None) -> None:
    view = _view(f"CUDA_VISIBLE_DEVICES={visible} vllm serve M -tp {tensor_parallel}")
    assert view.value("derived.too_few_visible") is too_few


@pytest.mark.parametrize(
    ("name", "vllm"),
    [
        ("qwen2_vl", "0.6.1"),
        ("Qwen2_5_VLForConditionalGeneration", "0.7.2"),
        ("Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "0.7.2"),
        ("qwen3_vl_moe", "0.11.0"),
        ("Qwen3VLMoeForConditionalGeneration", "0.11.0"),
        ("qwen3_5_moe", "0.17.0"),
        ("Qwen/Qwen3.6-27B", "0.17.0"),
        ("Qwen3ForCausalLM", "0.8.4"),
        ("llama", None),
        ("", None),
    ],
)
def test_first_release_of_a_model(name: str, vllm: str | None) -> None:
    found = first_release(name)
    assert (None if found is None else found.vllm) == vllm


@pytest.mark.parametrize(
    ("version", "needed"), [("0.10.2", ">=0.11.0"), ("0.11.0", None), ("0.11.0rc2", None), (None, ">=0.11.0")]
)
def test_release_needed_for_the_model(version: str | None, needed: str | None) -> None:
    view = _view("vllm serve Qwen/Qwen3-VL-8B-Instruct", version=version)
    assert view.value("plan.vllm_for_model") == needed


@pytest.mark.parametrize(
    ("configuration", "method"),
    [
        ('{"method":"eagle3","model":"org/d"}', "eagle3"),
        ('{"model":"org/Model-EAGLE3"}', "eagle3"),
        ('{"method":"ngram"}', "ngram"),
        ('{"model":"Qwen/Qwen2.5-0.5B"}', "draft_model"),
    ],
)
def test_method_of_speculation(configuration: str, method: str) -> None:
    view = _view(f"vllm serve Qwen/Qwen3-VL-8B-Instruct --speculative-config '{configuration}'")
    assert view.value("derived.speculation") == method


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=120))
def test_facts_never_raise_on_odd_text(text: str) -> None:
    """Names, drivers and addresses come from outside."""
    first_release(text)
    view = View({}, Objects())
    hostile = _view("vllm serve M", host=HostFacts(driver=text, env={"CUDA_VISIBLE_DEVICES": text}))
    for name in (
        "derived.driver_behind",
        "derived.too_few_visible",
        "derived.visible_beyond",
        "derived.open_without_key",
    ):
        assert view.value(name) is None or isinstance(view.value(name), bool | int | str)
        hostile.value(name)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("qwen2_vl", "Qwen2VLForConditionalGeneration"),
        ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
        ("qwen2_5_omni", "Qwen2_5OmniModel"),
        ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
        ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
        ("qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration"),
        ("qwen3_next", "Qwen3NextForCausalLM"),
        ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
        ("Qwen/Qwen3.6-35B-A3B", "Qwen3_5MoeForConditionalGeneration"),
        ("qwen3_asr", "Qwen3ASRForConditionalGeneration"),
        ("qwen3_moe", "Qwen3MoeForCausalLM"),
        ("qwen4_exp", "Qwen4ExpForConditionalGeneration"),
        ("qwen3", "Qwen3ForCausalLM"),
    ],
)
def test_first_release_is_the_first_whose_registry_has_the_model(name: str, architecture: str) -> None:
    first = first_release(name)
    assert first is not None
    assert first.vllm == next(one for one in releases() if architecture in knowledge(one).architectures())


@pytest.mark.parametrize(
    ("log", "by_itself", "no_exception"),
    [
        ("ValueError: No available memory for the cache blocks.\nKilled\n", True, False),
        ("ConnectionResetError: [Errno 104] Connection reset by peer\nKilled\n", False, False),
        ("Killed\n", False, False),
        ("ERROR 11-30 10:00:00 [core.py:700] EngineCore failed to start.\n", False, True),
    ],
)
def test_what_ended_the_server(log: str, by_itself: bool, no_exception: bool) -> None:
    view = _view(log=log)
    assert view.flag("derived.failed_by_itself") is by_itself
    assert view.flag("derived.no_exception") is no_exception


def test_a_folder_s_trailing_slash_is_no_name() -> None:
    assert first_release("/models/Qwen3-VL-4B-Instruct/") == first_release("Qwen3-VL-4B-Instruct")
