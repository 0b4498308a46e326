"""The shipped TOML tables, each parsed once and kept: the program's words, GPUs, models."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from qvl_doctor import resources
from qvl_doctor.sources.kept import kept

if TYPE_CHECKING:
    from qvl_doctor.core import gpus, model


@cache
def data_table(name: str) -> dict[str, Any]:
    """The contents of `qvl_doctor/data/<name>`, a TOML file without dates (its kept form is JSON)."""
    text = resources.data_text(name)
    store = kept("table", (name, text))
    try:
        table = json.loads("".join(store.read() or ()))
        if isinstance(table, dict):
            return table
    except (ValueError, RecursionError):
        pass  # not kept yet, or damaged
    import tomllib  # noqa: PLC0415 - importing it and parsing takes 10 ms

    table = tomllib.loads(text)
    store.write([json.dumps(table, ensure_ascii=False)])
    return table


@cache
def gpu_models() -> tuple[gpus.GpuModel, ...]:
    from qvl_doctor.core import gpus  # noqa: PLC0415 - many runs are told of no GPU

    return gpus.gpu_models(data_table("gpus.toml"))


def parse_gpus(text: str) -> tuple[gpus.Gpu, ...]:
    """`gpus.parse_gpus` with the shipped table."""
    from qvl_doctor.core import gpus  # noqa: PLC0415

    return gpus.parse_gpus(text, gpu_models())


@cache
def model_table() -> model.ModelTable:
    from qvl_doctor.core import model  # noqa: PLC0415 - nor of a model

    return model.model_table(data_table("models.toml"))


def model_spec(name_or_path: str) -> model.ModelSpec | None:
    """`model.model_spec` with the shipped table."""
    from qvl_doctor.core import model  # noqa: PLC0415

    return model.model_spec(name_or_path, model_table())
