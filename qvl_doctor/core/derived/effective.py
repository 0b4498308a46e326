"""What is in force: a flag as given, else as the log reports it, else the release's default.

Which engine and model runner a release takes: vllm/envs.py (VLLM_USE_V1: off by default up to 0.7, on from 0.8; the V0
engine is gone in 0.11), vllm/engine/arg_utils.py (0.8-0.10 fall back to V0 below compute capability 8.0), vllm/config
(VLLM_USE_V2_MODEL_RUNNER: dense models by default from 0.25 on, everything from 0.33 on).
"""

from __future__ import annotations

from collections.abc import Callable

from packaging.version import Version

from qvl_doctor.core.facts import View, derived

_FLAGS = {
    "gpu_memory_utilization": ("float", "", "share of each GPU's total memory that vLLM may use"),
    "max_model_len": ("int", "tokens", "longest sequence"),
    "tensor_parallel_size": ("int", "", "GPUs that share each layer"),
    "pipeline_parallel_size": ("int", "", "groups of layers"),
    "data_parallel_size": ("int", "", "copies of the model"),
    "block_size": ("int", "tokens", "tokens of one KV cache block"),
    "kv_cache_dtype": ("str", "", "type of the KV cache"),
    "dtype": ("str", "", "type of weights and activations"),
    "quantization": ("str", "", "quantization method"),
    "enforce_eager": ("bool", "", "no CUDA graphs"),
}
_NUMBERS_ONE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def _in_force(name: str) -> Callable[[View], bool | int | float | str | None]:
    def compute(view: View) -> bool | int | float | str | None:
        for source in (f"launch.{name}", f"log.{name}"):
            value = view.value(source)
            if value is not None and not isinstance(value, tuple):
                return value
        knowledge = view.objects.knowledge
        flag = None if knowledge is None else knowledge.flag(f"--{name.replace('_', '-')}")
        if flag is not None and isinstance(flag.default, bool | int | float | str):
            return flag.default
        return 1 if name in _NUMBERS_ONE else None

    return compute


for _name, (_kind, _unit, _meaning) in _FLAGS.items():
    derived(f"effective.{_name}", _kind, _unit, f"{_meaning}, in force")(_in_force(_name))


def _batch_default(view: View, of_server: str, of_python: str) -> int | None:
    """The release's default for this GPU's memory and name (`Knowledge.batch_defaults`)."""
    memory_gib, knowledge = view.number("gpu.memory_total_gib"), view.objects.knowledge
    if memory_gib is None or knowledge is None or view.text("effective.engine") != "V1":
        return None
    row = knowledge.batch_defaults(memory_gib, view.text("gpu.name") or "")
    value = None if row is None else getattr(row, of_python if view.text("launch.server") == "llm" else of_server)
    return value if isinstance(value, int) else None


@derived("effective.max_num_seqs", "int", "", "sequences of one batch, in force")
def _max_num_seqs(view: View) -> int | None:
    stated = _in_force("max_num_seqs")(view)
    if isinstance(stated, int):
        return stated
    return 256 if view.text("effective.engine") == "V0" else _batch_default(view, "seqs_server", "seqs_llm")


@derived("effective.max_num_batched_tokens", "int", "tokens", "tokens of one batch, in force")
def _max_num_batched_tokens(view: View) -> int | None:
    stated = _in_force("max_num_batched_tokens")(view)
    return stated if isinstance(stated, int) else _batch_default(view, "tokens_server", "tokens_llm")


@derived("effective.world_size", "int", "", "GPUs of one copy of the model: tensor times pipeline parallel")
def _world_size(view: View) -> int | None:
    tensor, pipeline = view.integer("effective.tensor_parallel_size"), view.integer("effective.pipeline_parallel_size")
    return None if tensor is None or pipeline is None else tensor * pipeline


@derived("effective.engine", "str", "", "V0 or V1")
def _engine(view: View) -> str | None:
    seen = view.text("log.engine")
    if seen in ("V0", "V1"):
        return seen
    version = view.version("version.vllm")
    if version is None:
        return None
    if version >= Version("0.11.dev0"):
        return "V1"
    asked = view.flag("env.VLLM_USE_V1")
    if asked is not None and (asked is False or version >= Version("0.6.4")):
        return "V1" if asked else "V0"
    if version < Version("0.8.dev0"):
        return "V0"
    capability = view.number("gpu.compute_capability")
    return "V0" if capability is not None and capability < 8.0 else "V1"


@derived("effective.model_runner", "str", "", "V1 or V2 (vllm/v1/worker/gpu)")
def _model_runner(view: View) -> str | None:
    seen = view.text("log.model_runner")
    if seen in ("V1", "V2"):
        return seen
    version = view.version("version.vllm")
    if version is None or view.text("effective.engine") != "V1":
        return None
    if version < Version("0.27.dev0") and view.value("log.encoder_budget_tokens") is not None:
        return "V1"  # up to there the V2 runner does not profile the encoder and prints no such line
    asked = view.flag("env.VLLM_USE_V2_MODEL_RUNNER")
    if asked is not None:
        return "V2" if asked else "V1"
    if version < Version("0.25.dev0"):
        return "V1"
    model = view.objects.model
    if version >= Version("0.33.dev0"):
        return "V2"
    return None if model is None else "V1" if model.moe or model.hybrid else "V2"


@derived("derived.answers_requests", "bool", "", "the log shows that this server has answered requests")
def _answers_requests(view: View) -> bool | None:
    if view.value("log.answered_path") is not None:
        return True
    generated = view.number("log.stats.generation_tokens_per_second_max")
    return True if generated else None
