"""What a command hands back to be printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qvl_doctor.errors import Exit


@dataclass(frozen=True, slots=True)
class Result:
    """What a command has to say: a JSON document and a text for people (made only if it is asked for)."""

    document: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    status: Exit = Exit.OK
    remarks: tuple[str, ...] = ()  # for stderr
