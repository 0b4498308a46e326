"""What a command hands back to be printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import record
from qvl_doctor.errors import Exit


@record
class Result:
    """What a command has to say: a JSON document and a text for people (made only if it is asked for)."""

    document: Callable[[], dict[str, Any]]
    text: Callable[[], str]
    status: Exit = Exit.OK
    remarks: tuple[Phrase, ...] = ()  # for stderr
