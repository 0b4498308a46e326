"""How far a start has come: from the lines that mark it, or from the functions of a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from qvl_doctor.core.logs.model import Phase

PHASES: tuple[Phase, ...] = get_args(Phase)
RANK: dict[str, int] = {phase: rank for rank, phase in enumerate(PHASES)}

# Line marks (regex, phase reached). Lines that also carry figures stand in `sightings`.
PHASE_MARKS: tuple[tuple[str, Phase], ...] = (
    (r"Automatically detected platform ", "start"),
    (r"^usage: vllm\b", "start"),
    (r"\bvLLM API server\b.*\bversion\b", "start"),
    (r"Started engine process with PID ", "config"),
    (r"This model supports multiple tasks: ", "config"),
    (r"Asynchronous scheduling is (?:enabled|disabled)", "config"),
    (r"Starting to load model ", "weights"),
    (r"Using model weights format ", "weights"),
    (r"Loading (?:safetensors|pt|np|bin|\w+) checkpoint shards:", "weights"),
    (r"Dynamo bytecode transform time: ", "profile"),
    (r"Start compiling function ", "profile"),
    (r"Cache the graph (?:of|for) ", "profile"),
    (r"Capturing (?:CUDA graph|cudagraph|the model for CUDA graph)", "capture"),
    (r"Waiting for application startup\.", "warmup"),
    (r"Application startup complete\.", "ready"),
    (r"Uvicorn running on ", "ready"),
)

# Functions of vLLM (V0 and V1) and the phase they belong to; the first row of which one is in a traceback decides.
# A capture or a KV allocation lies inside others, so the order is from the most to the least specific.
_FRAMES: tuple[tuple[Phase, frozenset[str]], ...] = (
    (
        "capture",
        frozenset(
            {
                "capture_model",
                "_capture_cudagraphs",
                "capture_graphs",
                "_warmup_and_capture",
                "capture_graph",
                "capture_begin",  # these two: torch/cuda/graphs.py
                "capture_end",
            }
        ),
    ),
    (
        "kv",
        frozenset(
            {
                "_allocate_kv_cache",
                "_allocate_kv_cache_tensors",
                "initialize_kv_cache",
                "initialize_kv_cache_tensors",
                "_initialize_kv_cache",
                "initialize_from_config",
                "initialize_cache",
                "_init_cache_engine",
                "_check_enough_kv_cache_memory",
                "check_enough_kv_cache_memory",
                "get_kv_cache_configs",
                "get_kv_cache_config",
                "raise_if_cache_size_invalid",
            }
        ),
    ),
    (
        "profile",
        frozenset(
            {
                "profile_run",
                "determine_available_memory",
                "determine_num_available_blocks",
                "_run_profile",
                "profile_multimodal",
                "_profile_multimodal",
                "profile_cudagraph_memory",
            }
        ),
    ),
    ("warmup", frozenset({"compile_or_warm_up_model", "kernel_warmup", "warm_up_model", "warmup", "warmup_kernels"})),
    (
        "weights",
        frozenset(
            {
                "load_model",
                "load_weights",
                "initialize_model",
                "_initialize_model",
                "get_model",
                "create_weights",
                "process_weights_after_loading",
                "_load_weights",
                "get_all_weights",
                "download_model",
                "_prepare_weights",
            }
        ),
    ),
    ("profile", frozenset({"_dummy_run", "_dummy_sampler_run", "_dummy_pooler_run"})),
    (
        "serving",
        frozenset(
            {
                "run_busy_loop",
                "_process_engine_step",
                "run_engine_loop",
                "engine_step",
                "execute_model",
                "step_async",
                "add_request",
                "create_chat_completion",
                "chat_completion_full_generator",
            }
        ),
    ),
    ("config", frozenset({"create_engine_config", "create_model_config", "init_device", "from_engine_args"})),
    ("start", frozenset({"setup_server", "create_server_socket", "parse_args", "from_cli_args"})),
)


# Calls that tell what was going on even where the frame of the called function is missing from a cut traceback.
_ENCODER_CALLS = frozenset({"get_multimodal_embeddings", "embed_multimodal", "_execute_mm_encoder"})
TELLING_CALLS = frozenset(name for _, names in _FRAMES for name in names) | _ENCODER_CALLS


def phase_of_frames(frames: Iterable[str]) -> Phase | None:
    """The phase that a traceback's frames ("file:function") stand for; None if they tell nothing."""
    functions = {frame.rpartition(":")[2] for frame in frames}
    for phase, names in _FRAMES:
        if functions & names:
            return phase
    return None
