"""The log reader: a streaming fold over any vLLM log of 0.3 to 0.33 into a `LogSummary`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qvl_doctor.core.logs.model import (
    EngineStats,
    Failure,
    LinePattern,
    LogMatch,
    LogSummary,
    Matches,
    OomReport,
    Sighting,
)

if TYPE_CHECKING:
    from qvl_doctor.core.logs.prefilter import required_literals
    from qvl_doctor.core.logs.reader import LogReader
    from qvl_doctor.core.logs.regexes import regex_problem

__all__ = [
    "EngineStats",
    "Failure",
    "LinePattern",
    "LogMatch",
    "LogReader",
    "LogSummary",
    "Matches",
    "OomReport",
    "Sighting",
    "regex_problem",
    "required_literals",
]

_HOMES = {"LogReader": "reader", "regex_problem": "regexes", "required_literals": "prefilter"}


def __getattr__(name: str) -> Any:
    """Import on first use: what is known of a log is asked for where there is none, and needs no reader."""
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
