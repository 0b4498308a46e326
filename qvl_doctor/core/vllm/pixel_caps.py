"""A pixel cap in the spelling that the release and the model obey, for flags that meant to limit visual tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qvl_doctor.core.findings import Edit
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.vision import capped_kwargs, default_cap_pixels, max_pixels_for_tokens, tokens_at_cap
from qvl_doctor.core.vllm.flag_problems import Check
from qvl_doctor.core.vllm.json_values import dumps

if TYPE_CHECKING:
    from qvl_doctor.core.launch import Flag
    from qvl_doctor.core.model import ModelSpec

KWARGS = "--mm-processor-kwargs"
_NUMBER = lazy_regex(r"\d{1,9}")
_PLAUSIBLE = (4 * 784, 200_000_000)  # pixels: the smallest cap that a processor takes, beyond any photograph


def capped(check: Check) -> list[Edit]:
    """The edit that sets the cap; none where the release has no --mm-processor-kwargs or the model is not known.

    Several such flags in one command get one cap: the smallest that any of them names. A cap that the user has stays,
    where none names a number.
    """
    spec = check.model
    if spec is None or check.known.flag(KWARGS) is None:
        return []
    named = [p for f, m in _siblings(check) if (p := pixels_meant(f.value, m, spec)) is not None]
    present = check.command.json_value(KWARGS)
    given = present if isinstance(present, dict) else {}
    if not named and ("max_pixels" in given or "size" in given):
        return []
    pixels = min(named, default=default_cap_pixels(spec))
    reason = check.say("cap", tokens=tokens_at_cap(spec, pixels))
    return [check.edit("set", KWARGS, dumps(capped_kwargs(given, spec, pixels)), reason, safety="unsafe")]


def _siblings(check: Check) -> Iterator[tuple[Flag, str]]:
    for flag in check.command.flags:
        if check.known.flag(flag.name) is None:
            move = check.advice.move(flag.name, flag.value, check.known)
            if move is not None and move.pixels is not None:
                yield flag, move.pixels


def pixels_meant(value: str | None, meaning: str, spec: ModelSpec) -> int | None:
    """The cap in pixels that a value means: `shape` "1,3,H,W" or "W,H", `tokens`, `pixels`; None if it names none."""
    numbers = [int(n) for n in _NUMBER.findall(value or "")][:8]
    pixels = 0
    if meaning == "shape" and len(numbers) >= 2:
        pixels = numbers[-1] * numbers[-2]
    elif meaning == "tokens" and numbers:
        pixels = max_pixels_for_tokens(spec, numbers[0])
    elif meaning == "pixels" and numbers:
        pixels = numbers[0]
    low, high = _PLAUSIBLE
    return pixels if low <= pixels <= high else None
