"""`model.*`: what is known of the model that is served."""

from __future__ import annotations

from collections.abc import Callable

from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.model import ModelSpec

_FIELDS: dict[str, tuple[str, str, str, Callable[[ModelSpec], bool | int | float | str | None]]] = {
    "family": ("str", "", "such as qwen2_5_vl", lambda m: m.family),
    "parameters": ("int", "", "number of parameters", lambda m: m.parameters),
    "parameters_billion": ("float", "", "in 10^9", lambda m: m.parameters and round(m.parameters / 1e9, 1)),
    "quantization": ("str", "", "method, or none", lambda m: m.quantization.method if m.quantization else "none"),
    "moe": ("bool", "", "mixture of experts", lambda m: m.moe),
    "hybrid": ("bool", "", "has layers without a growing KV cache", lambda m: m.hybrid),
    "attention_heads": ("int", "", "heads of the language model", lambda m: m.attention_heads),
    "key_value_heads": ("int", "", "KV heads", lambda m: m.key_value_heads),
    "layers": ("int", "", "layers of the language model", lambda m: m.layers),
    "intermediate_size": ("int", "", "width of the MLP", lambda m: m.intermediate_size),
    "max_position_embeddings": (
        "int",
        "tokens",
        "longest context of the checkpoint",
        lambda m: m.max_position_embeddings,
    ),
    "pixels_per_token": ("int", "px", "pixels behind one visual token", lambda m: m.pixels_per_token),
    "title": ("str", "", "name for people", lambda m: m.title),
}


def _read(
    field: Callable[[ModelSpec], bool | int | float | str | None],
) -> Callable[[View], bool | int | float | str | None]:
    return lambda view: None if view.objects.model is None else field(view.objects.model)


for _name, (_kind, _unit, _meaning, _field) in _FIELDS.items():
    derived(f"model.{_name}", _kind, _unit, _meaning)(_read(_field))
