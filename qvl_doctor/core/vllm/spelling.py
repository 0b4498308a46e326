"""How an option is spelled: what the parser makes of it, and which option was meant by one it does not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qvl_doctor.core.vllm.flag_problems import Spelled
from qvl_doctor.core.vllm.knowledge import Knowledge

if TYPE_CHECKING:
    from qvl_doctor.core.launch import Flag

ALWAYS = frozenset({"--help", "-h", "--version", "-v"})
MAX_OPTION = 80


def spelled_option(flag: Flag, known: Knowledge) -> Spelled:
    """The option string that a flag's spelling is to this release's parser, its fact, and whether it negates."""
    head = flag.spelled.split("=", 1)[0]
    option = head.split(".", 1)[0] if flag.path else head.removesuffix("+")
    candidates = [option, _dashed(option, known)]
    if not flag.spelled.startswith("-") or not flag.spelled.isascii():
        # A keyword of Python, a key of a YAML file, or typographic dashes: the name is what was meant.
        candidates = [f"--no-{flag.name[2:]}" if flag.negated else flag.name]
    for candidate in candidates:
        fact = known.flag(candidate)
        if fact is not None:
            return Spelled(candidate, fact, candidate in fact.negations)
    return _abbreviated(candidates[-1], known)


def _dashed(option: str, known: Knowledge) -> str:
    """With dashes for underscores, where the parser takes both."""
    if not option.startswith("--") or not known.traits.underscores:
        return option
    return "--" + option[2:].replace("_", "-")


def _abbreviated(option: str, known: Knowledge) -> Spelled:
    """argparse takes every beginning of a long option that fits one option only."""
    if not option.startswith("--") or len(option) < 4:
        return Spelled(option, None, False)
    matches = sorted(s for s in known.spellings if s.startswith(option))
    if len(matches) == 1:
        fact = known.flag(matches[0])
        return Spelled(matches[0], fact, fact is not None and matches[0] in fact.negations)
    return Spelled(option, None, False, tuple(matches))


def nearest_option(option: str, options: Iterable[str]) -> str | None:
    """The option that was most likely meant, None where none is near. How many dashes are in front does not count."""
    word = option.lstrip("-–—").replace("_", "-").lower()[:MAX_OPTION]
    if len(word) < 3:
        return None
    allowed = 1 if len(word) < 8 else 2 if len(word) < 16 else 3
    best: tuple[float, str] | None = None
    for candidate in sorted(options):
        if not candidate.startswith("--"):
            continue
        distance = _distance(word, candidate[2:].replace("_", "-"), allowed)
        if distance is not None and (best is None or distance < best[0]):
            best = (distance, candidate)
    if best is not None:
        return best[1]
    beginning = _nearest_beginning(word, options, allowed)
    if beginning is not None:
        return beginning
    wanted = sorted(word.split("-"))
    return next((o for o in sorted(options) if sorted(o.lstrip("-").split("-")) == wanted and len(wanted) > 1), None)


def _nearest_beginning(word: str, options: Iterable[str], allowed: int) -> str | None:
    """The one option of which this is an abbreviation with a letter wrong; of two or more words, so that it tells."""
    count = word.count("-") + 1
    found = set()
    for option in options:
        words = option.removeprefix("--").replace("_", "-").split("-")
        abbreviable = option.startswith("--") and 1 < count < len(words)
        if abbreviable and _distance(word, "-".join(words[:count]), allowed) is not None:
            found.add(option)
    return found.pop() if len(found) == 1 else None


def _distance(first: str, second: str, allowed: int) -> int | None:
    """Edit distance with neighbours swapped counting one, None if it is above `allowed`."""
    if abs(len(first) - len(second)) > allowed:
        return None
    before: list[int] = []
    previous = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        current = [i]
        for j, b in enumerate(second, 1):
            cost = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and first[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > allowed:
            return None
        before, previous = previous, current
    return previous[-1] if previous[-1] <= allowed else None
