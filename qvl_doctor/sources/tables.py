"""The shipped tables, read once: GPUs and models."""

from __future__ import annotations

import tomllib
from functools import cache

from qvl_doctor import resources
from qvl_doctor.core import gpus, model


@cache
def gpu_models() -> tuple[gpus.GpuModel, ...]:
    return gpus.gpu_models(tomllib.loads(resources.data_text("gpus.toml")))


def parse_gpus(text: str) -> tuple[gpus.Gpu, ...]:
    """`gpus.parse_gpus` with the shipped table."""
    return gpus.parse_gpus(text, gpu_models())


@cache
def model_table() -> model.ModelTable:
    return model.model_table(tomllib.loads(resources.data_text("models.toml")))


def model_spec(name_or_path: str) -> model.ModelSpec | None:
    """`model.model_spec` with the shipped table."""
    return model.model_spec(name_or_path, model_table())
