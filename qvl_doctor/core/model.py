"""Models of the Qwen-VL line: architecture numbers from the shipped table, from a name or path, from a config.json.

Nothing here reads a file: the table is the parsed `data/models.toml`, a config is a parsed `config.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import field, record, replace

Basis = Literal["config", "table", "name"]
"""config: from config.json; table: published numbers of that checkpoint; name: only what its name says."""

_MAX_NAME: Final = 500


@record
class VisionSpec:
    """A vision tower. `gated`: the MLP has gate and up beside down; `deepstack`: number of extra mergers."""

    depth: int
    hidden: int
    heads: int
    intermediate: int
    gated: bool
    norm_bias: bool
    patch_bias: bool = False
    position_embeddings: int = 0
    deepstack: int = 0


@record
class Quantization:
    """How the weights are stored. `bits` per weight of a quantized matrix, without scales; `group` inputs share one
    scale (0: a scale per channel or block too coarse to count); `vision`: the vision tower's matrices as well."""

    method: str
    bits: float
    group: int = 0
    vision: bool = False


@record
class ModelSpec:
    """One model. `name` is as the user wrote it. Sizes are numbers of elements; None is unknown. `layers` of the
    language model, of which `full_attention_layers` keep a KV cache that grows with the context (all of them unless the
    model is hybrid). `variants` are the quantized checkpoints that Qwen publishes of the same model."""

    name: str
    family: str
    title: str
    architecture: str
    basis: Basis
    patch_size: int
    merge_size: int = 2
    temporal_patch_size: int = 2
    hybrid: bool = False
    size: str | None = None
    hidden_size: int | None = None
    layers: int | None = None
    full_attention_layers: int | None = None
    attention_heads: int | None = None
    key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocabulary: int | None = None
    max_position_embeddings: int | None = None
    tied: bool | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    experts: int | None = None
    experts_per_token: int | None = None
    moe_intermediate_size: int | None = None
    other_parameters: int = 0
    vision: VisionSpec | None = None
    dtype: str = "bfloat16"
    quantization: Quantization | None = None
    image_min_pixels: int | None = None
    image_max_pixels: int | None = None
    video_min_pixels: int | None = None
    video_max_pixels: int | None = None
    variants: tuple[str, ...] = ()

    @property
    def moe(self) -> bool:
        return bool(self.experts)

    @property
    def pixels_per_token(self) -> int:
        """Pixels of the resized picture behind one visual token: 784 (Qwen2/2.5-VL) or 1024."""
        return (self.patch_size * self.merge_size) ** 2

    @property
    def parameters(self) -> int | None:
        """Number of parameters, from the numbers above; of a model known by name only, from its size ("7b")."""
        text, vision = text_parameters(self), vision_parameters(self)
        if text is not None and not self.hybrid:
            return text + (vision or 0) + self.other_parameters
        return size_in_name(self.size)


@record
class ModelTable:
    """The shipped table: published models, what only a family has in common, names of well-known fine-tunes."""

    models: tuple[ModelSpec, ...]
    families: Mapping[str, ModelSpec]
    also: Mapping[str, str] = field(default_factory=dict)  # lower-case name without owner -> name in `models`
    derivatives: tuple[tuple[str, str], ...] = ()  # (part of a lower-case name, name in `models`)

    def named(self, name: str) -> ModelSpec | None:
        return next((model for model in self.models if model.name == name), None)


# --- parameters ----------------------------------------------------------------------------------------------------


def text_parameters(spec: ModelSpec) -> int | None:
    """Parameters of the language model with its embeddings, or None where a number is missing."""
    hidden, layers, heads, kv, dim = (
        spec.hidden_size,
        spec.layers,
        spec.attention_heads,
        spec.key_value_heads,
        spec.head_dim,
    )
    if hidden is None or layers is None or heads is None or kv is None or dim is None or spec.vocabulary is None:
        return None
    mlp = mlp_parameters(spec)
    if mlp is None:
        return None
    qkv = (heads + 2 * kv) * dim
    attention = hidden * qkv + heads * dim * hidden + (qkv if spec.qkv_bias else 0) + (2 * dim if spec.qk_norm else 0)
    embeddings = spec.vocabulary * hidden * (1 if spec.tied else 2)
    return layers * (attention + mlp + 2 * hidden) + hidden + embeddings


def mlp_parameters(spec: ModelSpec) -> int | None:
    """Parameters of one layer's MLP: gate, up, down; of all experts and the router in an MoE."""
    if spec.hidden_size is None:
        return None
    if spec.experts:
        if spec.moe_intermediate_size is None:
            return None
        return spec.experts * (3 * spec.hidden_size * spec.moe_intermediate_size + spec.hidden_size)
    return None if spec.intermediate_size is None else 3 * spec.hidden_size * spec.intermediate_size


def vision_parameters(spec: ModelSpec) -> int | None:
    """Parameters of the vision tower with its mergers."""
    vision = spec.vision
    if vision is None or spec.hidden_size is None:
        return None
    return sum(rows * columns for rows, columns in vision_tensors(vision, spec))


def vision_tensors(vision: VisionSpec, spec: ModelSpec) -> tuple[tuple[int, int], ...]:
    """(rows, columns) of every tensor of the tower, vectors as (n, 1); `spec` gives patches and the output width."""
    h, inner = vision.hidden, vision.intermediate
    merged, out = h * spec.merge_size**2, spec.hidden_size or 0
    norm = [(h, 1)] * (2 if vision.norm_bias else 1)
    patch = [(h, 3 * spec.temporal_patch_size * spec.patch_size**2), *([(h, 1)] if vision.patch_bias else [])]
    up = [(2 * inner if vision.gated else inner, h), (2 * inner if vision.gated else inner, 1)]
    block = [*norm, *norm, (3 * h, h), (3 * h, 1), (h, h), (h, 1), *up, (h, inner), (h, 1)]
    linears = [(merged, merged), (merged, 1), (out, merged), (out, 1)]
    merger = [*norm, *linears]
    deep = [(merged, 1), (merged, 1), *linears]
    position = [(vision.position_embeddings, h)] if vision.position_embeddings else []
    return (*patch, *position, *(block * vision.depth), *merger, *(deep * vision.deepstack))


def size_in_name(size: str | None) -> int | None:
    """Parameters that a size like "7b", "30b-a3b" or "qvq-72b" stands for, to the precision of the name."""
    found = re.search(r"(\d{1,4}(?:\.\d{1,2})?)b", size or "")
    return int(float(found[1]) * 1e9) if found else None


# --- the shipped table ---------------------------------------------------------------------------------------------


def model_table(document: Mapping[str, object]) -> ModelTable:
    """The table out of a parsed `models.toml`; raises ValueError or KeyError where it is not well formed."""
    families = {name: _family(name, row) for name, row in _tables(document, "family").items()}
    towers = {name: _vision(row) for name, row in _tables(document, "vision").items()}
    models: list[ModelSpec] = []
    also: dict[str, str] = {}
    for row in _rows(document, "model"):
        model = _published(row, families, towers)
        models.append(model)
        for name in (model.name, *_strings(row, "also"), *model.variants):
            also[_tail(name)] = model.name
    derivatives = tuple((str(row["contains"]), str(row["model"])) for row in _rows(document, "derivative"))
    return ModelTable(tuple(models), families, also, derivatives)


def _tables(document: Mapping[str, object], key: str) -> dict[str, Mapping[str, object]]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"models.toml: no [{key}.*]")
    return value


def _rows(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = document.get(key)
    if not isinstance(value, list):
        raise ValueError(f"models.toml: no [[{key}]]")
    return value


def _strings(row: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _count(row: Mapping[str, object], key: str) -> int | None:
    """A positive whole number of a row or config, None where it is absent or anything else."""
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**13 else None


def _family(name: str, row: Mapping[str, object]) -> ModelSpec:
    return ModelSpec(
        name=name,
        family=name,
        title=str(row["title"]),
        architecture=str(row["architecture"]),
        basis="name",
        patch_size=_count(row, "patch_size") or 14,
        hybrid=bool(row.get("hybrid", False)),
        image_min_pixels=_count(row, "image_min_pixels"),
        image_max_pixels=_count(row, "image_max_pixels"),
        video_min_pixels=_count(row, "video_min_pixels"),
        video_max_pixels=_count(row, "video_max_pixels"),
    )


def _vision(row: Mapping[str, object]) -> VisionSpec:
    depth, hidden, heads, inner = (_count(row, key) for key in ("depth", "hidden", "heads", "intermediate"))
    if depth is None or hidden is None or heads is None or inner is None:
        raise ValueError("models.toml: incomplete [vision.*]")
    return VisionSpec(
        depth=depth,
        hidden=hidden,
        heads=heads,
        intermediate=inner,
        gated=row.get("form") == "gated",
        norm_bias=bool(row.get("norm_bias", False)),
        patch_bias=bool(row.get("patch_bias", False)),
        position_embeddings=_count(row, "position_embeddings") or 0,
        deepstack=_count(row, "deepstack") or 0,
    )


def _published(
    row: Mapping[str, object], families: Mapping[str, ModelSpec], towers: Mapping[str, VisionSpec]
) -> ModelSpec:
    family = families[str(row["family"])]
    tower = row.get("vision")
    layers = _count(row, "layers")
    spec = replace(
        family,
        name=str(row["name"]),
        basis="table",
        size=str(row["size"]),
        layers=layers,
        full_attention_layers=_count(row, "full_attention_layers") or (None if family.hybrid else layers),
        tied=row["tied"] is True,
        qkv_bias=row.get("qkv_bias") is True,
        qk_norm=row.get("qk_norm") is True,
        other_parameters=_count(row, "other_parameters") or 0,
        vision=towers[str(tower)] if tower is not None else None,
        variants=_strings(row, "variants"),
        hidden_size=_count(row, "hidden_size"),
        attention_heads=_count(row, "attention_heads"),
        key_value_heads=_count(row, "key_value_heads"),
        head_dim=_count(row, "head_dim"),
        intermediate_size=_count(row, "intermediate_size"),
        vocabulary=_count(row, "vocabulary"),
        max_position_embeddings=_count(row, "max_position_embeddings"),
        experts=_count(row, "experts"),
        experts_per_token=_count(row, "experts_per_token"),
        moe_intermediate_size=_count(row, "moe_intermediate_size"),
    )
    return replace(spec, architecture=_MOE_ARCHITECTURES.get(spec.family, spec.architecture)) if spec.moe else spec


_MOE_ARCHITECTURES: Final = {
    "qwen3_vl": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5MoeForConditionalGeneration",
}


# --- from a name or path -------------------------------------------------------------------------------------------

# Family marks as people spell them: "Qwen2.5-VL", "qwen2_5_vl", "qwen25vl", "Qwen3-VL", "QVQ", "Qwen3.6".
_FAMILIES: Final = (
    ("qwen2_5_omni", lazy_regex(r"qwen-?2[.-]?5-?omni")),
    ("qwen3_omni", lazy_regex(r"qwen-?3-?omni")),
    ("qwen2_5_vl", lazy_regex(r"qwen-?2[.-]?5-?vl")),
    ("qwen2_vl", lazy_regex(r"qwen-?2-?vl|(?<![a-z])qvq(?![a-z])")),
    ("qwen3_vl", lazy_regex(r"qwen-?3-?vl")),
    ("qwen3_5", lazy_regex(r"qwen-?3[.-][5-9](?![\d.]?\d*b)")),
)
_SIZE = lazy_regex(r"(?<![\d.a-z])(\d{1,3}(?:\.\d)?)b(?:-?a(\d{1,3}(?:\.\d)?)b)?(?![a-z0-9])")


def model_spec(name_or_path: str, table: ModelTable) -> ModelSpec | None:
    """The model that a hub id, a served name or a folder's path speaks of; None where it is none of the Qwen-VL line.

    A fine-tune named after its base ("/models/qwen3-vl-4b-ocr") gets the base's numbers. Quantization is read from the
    name alone. Never raises.
    """
    text = _tail_path(name_or_path[:_MAX_NAME])
    spec = _base(text, table)
    if spec is None:
        return None
    given = name_or_path[:_MAX_NAME].strip().rstrip("/")
    quantization = quantization_in_name(text)
    if "thinking" in text:  # the table holds the -Instruct names; both are published side by side
        spec = replace(spec, variants=tuple(name.replace("-Instruct", "-Thinking") for name in spec.variants))
    dtype = "float16" if quantization is not None and quantization.method in ("awq", "gptq") else spec.dtype
    return replace(spec, name=given, quantization=quantization, dtype=dtype)


def _base(text: str, table: ModelTable) -> ModelSpec | None:
    known = table.also.get(text.rsplit("/", maxsplit=1)[-1])
    if known is not None:
        return table.named(known)
    for part, name in table.derivatives:
        if part in text:
            return table.named(name)
    family, after = _family_in(text)
    if family is None or family not in table.families:
        return None
    size = _size_in(after) or _size_in(text)
    candidates = [model for model in table.models if model.family == family and _generation(model, text)]
    for model in candidates:
        if size is not None and model.size is not None and model.size.removeprefix("qvq-") == size:
            return model
    sparse = [model for model in candidates if size is not None and (model.size or "").startswith(f"{size}-a")]
    if len(sparse) == 1:
        return sparse[0]
    plain = table.families[family]
    sparse_name = size is not None and "-a" in size
    architecture = _MOE_ARCHITECTURES.get(family, plain.architecture) if sparse_name else plain.architecture
    return replace(plain, size=size, architecture=architecture)


def _generation(model: ModelSpec, text: str) -> bool:
    """Numbers of Qwen3.5 do not stand for a 3.6 or 3.8; QVQ is its own checkpoint."""
    if model.family == "qwen3_5":
        return "3.5" in text or "3-5" in text
    return ("qvq" in text) == ("QVQ" in model.name)


def _family_in(text: str) -> tuple[str | None, str]:
    """The family named last in the text (folders may carry another's name) and what follows that name."""
    found = [(match.end(), name) for name, pattern in _FAMILIES for match in pattern.finditer(text)]
    if not found:
        return None, ""
    end, name = max(found)
    return name, text[end:]


def _size_in(text: str) -> str | None:
    found = _SIZE.search(text)
    if not found:
        return None
    return f"{found[1]}b-a{found[2]}b" if found[2] else f"{found[1]}b"


def _tail(name: str) -> str:
    return name.rsplit("/", maxsplit=1)[-1].lower()


def _tail_path(name: str) -> str:
    """Lower case, underscores and blanks as dashes, no trailing slash."""
    return re.sub(r"[_\s]+", "-", name.strip().lower()).rstrip("/")


_QUANTIZATIONS: Final = (
    (lazy_regex(r"(?<![a-z])nvfp4|(?<![a-z])fp4(?![a-z\d])"), Quantization("modelopt_fp4", 4, 16)),
    (lazy_regex(r"gptq-?(?:int)?-?8|gptq.{0,12}w8a16"), Quantization("gptq", 8, 128)),
    (lazy_regex(r"(?<![a-z])gptq|autoround|auto-round"), Quantization("gptq", 4, 128)),
    (lazy_regex(r"(?<![a-z])awq"), Quantization("awq", 4, 128)),
    (lazy_regex(r"w8a8|int8-dynamic"), Quantization("compressed-tensors", 8)),
    (lazy_regex(r"w8a16"), Quantization("compressed-tensors", 8, 128)),
    (lazy_regex(r"w4a16"), Quantization("compressed-tensors", 4, 128)),
    (lazy_regex(r"(?<![a-z])fp8"), Quantization("fp8", 8)),
    (lazy_regex(r"bnb|bitsandbytes|unsloth.{0,80}4-?bit"), Quantization("bitsandbytes", 4, 64)),
    (lazy_regex(r"q8-0"), Quantization("gguf", 8.5)),
    (lazy_regex(r"q6-k"), Quantization("gguf", 6.56)),
    (lazy_regex(r"q5-"), Quantization("gguf", 5.7)),
    (lazy_regex(r"gguf|q4-|iq4"), Quantization("gguf", 4.85)),
    (lazy_regex(r"(?<![a-z])int8(?![a-z\d])"), Quantization("gptq", 8, 128)),
    (lazy_regex(r"(?<![a-z])int4(?![a-z\d])|4-?bit"), Quantization("gptq", 4, 128)),
)


def quantization_in_name(name: str) -> Quantization | None:
    """The quantization that a checkpoint's name states ("-AWQ", "-GPTQ-Int4", "-FP8", "quantized.w4a16")."""
    text = _tail_path(name[:_MAX_NAME]).rsplit("/", maxsplit=1)[-1]
    return next((quantization for pattern, quantization in _QUANTIZATIONS if pattern.search(text)), None)


def model_variant(spec: ModelSpec, name: str) -> ModelSpec:
    """The same model as the quantized checkpoint `name`."""
    return replace(spec, name=name, quantization=quantization_in_name(name))


# --- from config.json ----------------------------------------------------------------------------------------------

_MODEL_TYPES: Final = {
    "qwen2_vl": "qwen2_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen2_5_omni": "qwen2_5_omni",
    "qwen3_omni_moe": "qwen3_omni",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5",
}


def model_spec_from_config(config: Mapping[str, object], table: ModelTable, *, name: str = "") -> ModelSpec | None:
    """The model that a parsed config.json describes, or None where its model_type is none of the Qwen-VL line.

    Reads both layouts: text numbers at the top (2/2.5-VL) or under text_config (3-VL), Omni's thinker_config inside.
    Never raises; a number that is absent or absurd is None.
    """
    thinker = config.get("thinker_config")
    outer = thinker if isinstance(thinker, dict) else config
    family = _MODEL_TYPES.get(str(config.get("model_type", "")))
    if family is None or family not in table.families:
        return None
    inner = outer.get("text_config")
    text: Mapping[str, object] = inner if isinstance(inner, dict) else outer
    heads, hidden = _count(text, "num_attention_heads"), _count(text, "hidden_size")
    layers = _count(text, "num_hidden_layers")
    names = config.get("architectures")
    base = table.families[family]
    return replace(
        base,
        name=name or base.title,
        basis="config",
        architecture=str(names[0]) if isinstance(names, list) and names else base.architecture,
        hidden_size=hidden,
        layers=layers,
        full_attention_layers=_full_attention_layers(text, layers) if base.hybrid else layers,
        attention_heads=heads,
        key_value_heads=_count(text, "num_key_value_heads") or heads,
        head_dim=_count(text, "head_dim") or (hidden // heads if hidden and heads else None),
        intermediate_size=_count(text, "intermediate_size"),
        vocabulary=_count(text, "vocab_size"),
        max_position_embeddings=_count(text, "max_position_embeddings"),
        tied=bool(outer.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        qkv_bias=family in ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"),
        qk_norm=family in ("qwen3_vl", "qwen3_omni", "qwen3_5"),
        experts=_count(text, "num_experts"),
        experts_per_token=_count(text, "num_experts_per_tok"),
        moe_intermediate_size=_count(text, "moe_intermediate_size"),
        vision=_config_vision(outer.get("vision_config"), family),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "bfloat16"),
        quantization=_config_quantization(config.get("quantization_config"), name),
    )


def _full_attention_layers(text: Mapping[str, object], layers: int | None) -> int | None:
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return sum(1 for kind in kinds if kind == "full_attention")
    interval = _count(text, "full_attention_interval")
    return layers // interval if layers and interval else None


def _config_vision(value: object, family: str) -> VisionSpec | None:
    if not isinstance(value, dict):
        return None
    second = family == "qwen2_vl"  # there hidden_size is the output's width and embed_dim the tower's
    gated = family in ("qwen2_5_vl", "qwen2_5_omni")
    depth, heads = _count(value, "depth"), _count(value, "num_heads")
    hidden = _count(value, "embed_dim" if second else "hidden_size")
    inner = _count(value, "intermediate_size")
    ratio = value.get("mlp_ratio")
    if second and inner is None and hidden is not None and isinstance(ratio, (int, float)):
        inner = int(hidden * ratio)
    if depth is None or heads is None or hidden is None or inner is None:
        return None
    third = not second and not gated
    deep = value.get("deepstack_visual_indexes")
    return VisionSpec(
        depth=depth,
        hidden=hidden,
        heads=heads,
        intermediate=inner,
        gated=gated,
        norm_bias=not gated,
        patch_bias=third,
        position_embeddings=_count(value, "num_position_embeddings") or 0,
        deepstack=len(deep) if isinstance(deep, list) else 0,
    )


def _config_quantization(value: object, name: str) -> Quantization | None:
    if not isinstance(value, dict):
        return quantization_in_name(name)
    method = str(value.get("quant_method", "")).lower()
    group = _count(value, "group_size") or 0
    bits = _count(value, "bits")
    if method in ("awq", "gptq", "gptq_marlin", "awq_marlin"):
        return Quantization(method.removesuffix("_marlin"), bits or 4, group or 128)
    if method == "bitsandbytes":
        return Quantization(method, 4 if value.get("load_in_4bit") else 8, 64 if value.get("load_in_4bit") else 0)
    if method == "compressed-tensors":
        return _compressed_tensors(value)
    if method == "fp8":
        return Quantization("fp8", 8)
    if method in ("modelopt", "modelopt_fp4"):
        four = "FP4" in str(value.get("quant_algo", "")) or method == "modelopt_fp4"
        return Quantization("modelopt_fp4", 4, 16) if four else Quantization("modelopt", 8)
    return Quantization(method, bits, group) if method and bits else quantization_in_name(name)


def _compressed_tensors(value: Mapping[str, object]) -> Quantization:
    """The first group of weights decides; 4 or 8 bits, grouped or per channel."""
    groups = value.get("config_groups")
    first: Sequence[object] = list(groups.values())[:1] if isinstance(groups, dict) else []
    weights = first[0].get("weights") if first and isinstance(first[0], dict) else None
    if not isinstance(weights, dict):
        return Quantization("compressed-tensors", 8)
    return Quantization("compressed-tensors", _count(weights, "num_bits") or 8, _count(weights, "group_size") or 0)
