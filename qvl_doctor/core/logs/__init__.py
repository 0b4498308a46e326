"""The log reader: a streaming fold over any vLLM log of 0.3 to 0.33 into a `LogSummary`."""

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
