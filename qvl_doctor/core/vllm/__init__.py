"""What each vLLM release accepts: read statically from its sources, kept as data, checked against a command."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qvl_doctor.core.vllm.flag_problems import FlagProblem
    from qvl_doctor.core.vllm.flags import check_flags
    from qvl_doctor.core.vllm.history import FlagHistory
    from qvl_doctor.core.vllm.knowledge import FlagFact, Knowledge

__all__ = ["FlagFact", "FlagHistory", "FlagProblem", "Knowledge", "check_flags"]

_HOMES = {"FlagHistory": "history", "FlagProblem": "flag_problems", "check_flags": "flags"}


def __getattr__(name: str) -> Any:
    """Import on first use: a look-up of one flag needs neither the checks nor the readers."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'knowledge')}"), name)
