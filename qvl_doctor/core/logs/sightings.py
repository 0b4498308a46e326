"""The lines of vLLM 0.3 to 0.33 that state a figure: one regex each, its named groups being the facts.

Wordings are those of the releases' own logging calls. The unit of "GB" in old lines is 2**30 bytes as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.model import Phase, Value
from qvl_doctor.core.records import record

_F = r"-?\d[\d.,]*"  # a number as Python formats it, with or without thousands separators


@record
class SightingPattern:
    """A line that states facts; reaching it means having reached `phase` (None: says nothing of it)."""

    regex: str
    phase: Phase | None = None
    constants: tuple[tuple[str, str], ...] = ()


def _row(regex: str, phase: Phase | None = None, **constants: str) -> SightingPattern:
    return SightingPattern(regex.replace("<F>", _F), phase, tuple(constants.items()))


SIGHTING_PATTERNS: tuple[SightingPattern, ...] = (
    # identity
    _row(r"vLLM API server version (?P<vllm_version>\S+)", "start"),
    _row(r"vLLM server version (?P<vllm_version>[^\s,]+)(?:, serving model (?P<model>\S+))?", "start"),
    _row(r"█.*?\bversion\s+(?P<vllm_version>\d[\w.+]*)", "start"),
    _row(r"█.*?\bmodel\s+(?P<model>\S+)$", "start"),
    _row(r"^(?:vLLM [Vv]ersion|vllm version)\s*:?\s*(?P<vllm_version>\d+\.\d[\w.+]*)"),
    _row(r"Initializing an LLM engine \(v(?P<vllm_version>[^)\s]+)\) with config:", "config"),
    _row(r"Initializing a V0 LLM engine \(v(?P<vllm_version>[^)\s]+)\) with config:", "config", engine="V0"),
    _row(r"Initializing a V1 LLM engine \(v(?P<vllm_version>[^)\s]+)\) with config:", "config", engine="V1"),
    _row(r"Falling back to V0\b", engine="V0"),
    _row(r"Automatically detected platform (?P<device>\w+)", "start"),
    _row(r"Using V2 Model Runner", model_runner="V2"),
    _row(r"using the V1 model runner instead", model_runner="V1"),
    _row(r"Resolved architectures?: (?P<architecture>\w+)", "config"),
    _row(r"Using max model len (?P<max_model_len>\d+)", "config"),
    _row(r"Auto-fit max_model_len: reduced from \d+ to (?P<max_model_len>\d+)", "kv"),
    _row(r"Chunked prefill is enabled with max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)", "config"),
    _row(r"Defaulting max_num_batched_tokens to (?P<max_num_batched_tokens>\d+)", "config"),
    _row(r"Defaulting max_num_seqs to (?P<max_num_seqs>\d+)", "config"),
    _row(r"(?i)^PyTorch version\s*:\s*(?P<torch_version>\d[\w.+]*)"),
    _row(r"(?i)^CUDA used to build PyTorch\s*:\s*(?P<cuda_version>\d[\w.]*)"),
    _row(r"(?i)^Nvidia driver version\s*:\s*(?P<driver>\d[\w.]*)"),
    _row(r"NVIDIA-SMI \S+\s+Driver Version: (?P<driver>\S+)\s+CUDA Version: (?P<driver_cuda_version>[\d.]+)"),
    _row(r"\[pip3?\] transformers==(?P<transformers_version>\S+)"),
    _row(r"\[pip3?\] torch==(?P<torch_version>\S+)"),
    _row(r"^GPU 0: (?P<gpu_name>[^(]{2,60}?)(?: \(UUID.*)?$"),
    _row(r"Your (?P<gpu_name>.{2,60}?) GPU has compute capability (?P<compute_capability>\d+\.\d+)"),
    # nvidia-smi's list of processes: a service of another kind (names such as python may be a vLLM left over)
    _row(
        r"^\|\s{1,8}\d{1,3}\s{1,8}(?:(?:N/A|\d+)\s{1,8}(?:N/A|\d+)\s{1,12})?\d{1,8}\s{1,12}C(?:\+G)?\s{1,8}"
        r"(?P<gpu_tenant>(?![^|]{0,80}(?:[Pp]ython|[Vv][Ll][Ll][Mm]|ray::|Not Found))\S[^|]{0,80}?)\s{1,80}"
        r"(?:\d{4,6}\s?MiB|[\d.]{1,6}\s?GiB)\s{1,8}\|"
    ),
    _row(r"vLLM is using nccl==(?P<nccl_version>\S+)"),
    _row(r"world_size=(?P<world_size>\d+) rank=\d+ local_rank=\d+"),
    # weights
    _row(r"Starting to load model (?P<model>\S+?)\.\.\.", "weights"),
    _row(r"Loading weights took (?P<weights_read_seconds><F>) seconds", "weights"),
    _row(r"Loading model weights took (?P<weights_gib><F>) G", "profile"),
    _row(r"Model loading took (?P<weights_gib><F>) Gi?B(?: memory)? and (?P<weights_seconds><F>) seconds", "profile"),
    _row(r"Initializing model took (?P<model_init_seconds><F>) seconds", "weights"),
    _row(r"Peak GPU memory after loading weights: (?P<weights_peak_gib><F>) GiB"),
    # profiling
    _row(
        r"Encoder cache will be initialized with a budget of (?P<encoder_budget_tokens><F>) tokens,"
        r" and profiled with (?P<encoder_items>\d+) (?P<encoder_modality>\w+) items",
        "profile",
    ),
    _row(r"Skipping memory profiling for multimodal encoder", "profile", encoder_profile_skipped="true"),
    _row(r"All limits of multimodal modalities supported by the model are set to 0", text_only="true"),
    _row(
        r"Memory profiling results: total_gpu_memory=(?P<total_gib><F>)GiB initial_memory_usage=<F>GiB"
        r" peak_torch_memory=(?P<torch_peak_total_gib><F>)GiB memory_usage_post_profile=<F>GiB"
        r" non_torch_memory=(?P<non_torch_gib><F>)GiB kv_cache_size=(?P<kv_available_gib><F>)GiB"
        r" gpu_memory_utilization=(?P<gpu_memory_utilization><F>)",
        "kv",
    ),
    _row(r"Memory profiling takes (?P<profile_seconds><F>) seconds(?! *\. Total)", "profile"),
    _row(
        r"can use total_gpu_memory \((?P<total_gib><F>)GiB\) x gpu_memory_utilization"
        r" \((?P<gpu_memory_utilization><F>)\) = (?P<requested_gib><F>)GiB",
        "profile",
    ),
    _row(
        r"model weights take (?P<weights_gib><F>)GiB; non_torch_memory takes (?P<non_torch_gib><F>)GiB;"
        r" PyTorch activation peak memory takes (?P<torch_peak_gib><F>)GiB;"
        r" the rest of the memory reserved for KV Cache is (?P<kv_available_gib><F>)GiB",
        "kv",
    ),
    _row(
        r"Memory profiling takes (?P<profile_seconds><F>) seconds\. Total non KV cache memory: (?P<non_kv_gib><F>)"
        r" ?GiB; torch peak memory increase: (?P<torch_peak_gib><F>) ?GiB; (?:non-torch forward increase memory: "
        r"(?P<non_torch_gib><F>) ?GiB|[^;]*); weights memory: (?P<weights_gib><F>) ?GiB",
        "profile",
    ),
    _row(r"worker init memory snapshot: .*?free_memory=(?P<free_gib><F>) ?GiB, total_memory=(?P<total_gib><F>) ?GiB"),
    _row(r"worker requested memory: (?P<requested_gib><F>) ?GiB"),
    _row(
        r"Free memory on device (?:\S+ )?\((?P<free_gib><F>)/(?P<total_gib><F>) GiB\) on startup\. Desired GPU memory"
        r" utilization is \((?P<gpu_memory_utilization><F>), (?P<requested_gib><F>) GiB\)"
    ),
    _row(
        r"Free memory on device (?:\S+ )?\((?P<free_gib><F>)/(?P<total_gib><F>) GiB\) on startup is less than desired"
        r" GPU memory utilization \((?P<gpu_memory_utilization><F>), (?P<requested_gib><F>) GiB\)"
    ),
    _row(r"Initial free memory (?P<free_gib><F>) GiB, reserved (?P<kv_available_gib><F>) ?GiB memory for KV", "kv"),
    _row(r"torch\.compile takes (?P<compile_seconds><F>) s", "profile"),
    _row(r"torch\.compile took (?P<compile_seconds><F>) s in total", "profile"),
    _row(
        r"torch\.compile and initial profiling/warmup run together took (?P<compile_seconds><F>) s in total", "profile"
    ),
    _row(r"Compiling a graph for .+? takes (?P<graph_compile_seconds><F>) s", "profile"),
    # KV cache
    _row(r"Available KV cache memory: (?P<kv_available_gib><F>) GiB", "kv"),
    _row(r"# (?P<block_device>\w+) blocks: (?P<num_gpu_blocks>\d+)(?:, # CPU blocks: (?P<num_cpu_blocks>\d+))?", "kv"),
    _row(r"KV cache size: (?P<kv_tokens><F>) tokens", "kv"),
    _row(r"Maximum concurrency for (?P<concurrency_len><F>) tokens per request: (?P<max_concurrency><F>)x", "kv"),
    _row(r"cache_config_info with initialization after num_gpu_blocks is: (?P<num_gpu_blocks>\d+)"),
    _row(r"Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=(?P<num_gpu_blocks_override>\d+)", "kv"),
    # graphs
    _row(
        r"Graph capturing finished in (?P<cudagraph_seconds><F>) secs(?:, took (?P<cudagraph_gib><F>) GiB)?", "warmup"
    ),
    _row(r"Estimated CUDA graph memory: (?P<cudagraph_estimate_gib><F>) GiB", "profile"),
    _row(
        r"CUDA graph pool memory: (?P<cudagraph_gib><F>) GiB \(actual\),"
        r" (?P<cudagraph_estimate_gib><F>) GiB \(estimated\)",
        "warmup",
    ),
    _row(
        r"CUDA graph memory profiling is enabled .*?gpu-memory-utilization=(?P<gpu_memory_utilization><F>)"
        r" is equivalent to --gpu-memory-utilization=(?P<utilization_without_graphs><F>) .*?"
        r"increase --gpu-memory-utilization to (?P<utilization_for_same_kv>\d[\d.]*\d)",
        "kv",
    ),
    _row(r"init engine \(profile, create kv cache, warmup model\) took (?P<init_engine_seconds><F>) s", "warmup"),
    # attention
    _row(r"Using (?P<attention_backend>\w+) attention backend(?: out of)?", "weights"),
    _row(r"Using (?P<attention_backend>[\w ]+?) backend on V1 engine\.", "weights"),
    _row(r"Using (?P<attention_backend>Flash ?Attention|FlashInfer|XFormers|Torch SDPA|Triton \w+) backend\."),
    _row(r"Using FlashAttention version (?P<flash_attention_version>\d)"),
    _row(r"Using (?:default )?backend (?:AttentionBackendEnum\.)?(?P<vit_backend>\w+) for vit attention"),
    _row(r"Using (?:AttentionBackendEnum\.)?(?P<vit_backend>\w+) for MMEncoderAttention"),
    # server
    _row(r"Starting vLLM (?:API )?server (?:\d+ )?on (?P<url>\w+://\S+)", "warmup"),
    _row(r"Uvicorn running on (?P<url>\w+://\S+)", "ready"),
    _row(r"(?i)\bexit(?:ed)?(?: with)?(?: |_)?(?:code|status)?[:=]? {0,8}\(?(?P<exit_code>-?\d{1,3})\b(?![./:])"),
    _row(r"Failed core proc\(s\): \{[^}]*?: (?P<exit_code>-?\d{1,3})"),
    _row(r"code=killed, status=(?P<exit_signal>\d+)/(?:KILL|TERM|ABRT|SEGV)"),
    _row(r"OOMKilled", oom_killed="true"),
)

# Of the engine configuration line: figure, its name there.
_CONFIG = lazy_regex(
    r"\b(?P<name>model|dtype|quantization|max_seq_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size"
    r"|kv_cache_dtype|enforce_eager|device_config|load_format|served_model_name|enable_prefix_caching"
    r"|chunked_prefill_enabled|seed|tokenizer_mode)=(?P<value>'[^']{0,300}'|[^,\s()\[\]]{1,120})"
)
_CONFIG_NAMES = {"max_seq_len": "max_model_len", "device_config": "device"}

_INTEGERS = frozenset(
    {
        "kv_tokens", "num_gpu_blocks", "num_cpu_blocks", "num_gpu_blocks_override", "concurrency_len", "max_model_len",
        "max_num_batched_tokens", "max_num_seqs", "encoder_budget_tokens", "encoder_items", "tensor_parallel_size",
        "pipeline_parallel_size", "data_parallel_size", "world_size", "exit_code", "exit_signal", "seed",
        "flash_attention_version",
    }
)  # fmt: skip
_FLOATS = frozenset(
    {"max_concurrency", "gpu_memory_utilization", "utilization_without_graphs", "utilization_for_same_kv"}
)
_FLOAT_ENDINGS = ("_gib", "_seconds")
_WORDS = {"True": True, "False": False}

# Of several processes that state a figure, the tightest counts; of others the last one said.
LARGEST = frozenset(
    {"weights_gib", "torch_peak_gib", "non_torch_gib", "non_kv_gib", "cudagraph_gib", "weights_seconds"}
)
SMALLEST = frozenset({"kv_available_gib", "kv_tokens", "free_gib", "max_concurrency", "num_gpu_blocks"})
FIRST = frozenset({"vllm_version", "engine", "model", "device", "attention_backend", "vit_backend", "exit_code"})


def convert(name: str, text: str) -> Value | None:
    """The value of a fact as its type; None where it is no number after all."""
    whole, real = name in _INTEGERS, name in _FLOATS or name.endswith(_FLOAT_ENDINGS)
    if not whole and not real:
        return _WORDS.get(text, text)
    digits = text.rstrip(",. ").replace(",", "")
    try:
        return int(digits) if whole else float(digits)
    except ValueError:
        return None


def read(pattern: SightingPattern, found: re.Match[str]) -> Iterator[tuple[str, Value]]:
    """Facts (name, value) of a line that matched."""
    for name, text in found.groupdict().items():
        if text is not None and (value := convert(name, text)) is not None:
            yield name, value
    yield from pattern.constants


def read_engine_config(message: str) -> Mapping[str, Value]:
    """Facts of the line "Initializing a V1 LLM engine (v…) with config: model=…, dtype=…"; first mention counts."""
    facts: dict[str, Value] = {}
    for found in _CONFIG.finditer(message, 0, 20_000):
        name = _CONFIG_NAMES.get(found["name"], found["name"])
        text = found["value"].strip("'").removeprefix("torch.")
        if name in facts or text in ("", "None"):
            continue
        value = convert(name, text)
        if value is not None:
            facts[name] = value
    return facts
