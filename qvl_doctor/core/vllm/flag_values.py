"""Whether a flag's value is one that the release takes: its type, its choices, its range, and JSON in its forms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from qvl_doctor.core.findings import Edit
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record
from qvl_doctor.core.vision import default_cap_pixels
from qvl_doctor.core.vllm.flag_problems import (
    INVALID,
    LIMIT,
    NOT_YET,
    QUOTING,
    Check,
    FlagProblem,
    Spelled,
    as_number,
)
from qvl_doctor.core.vllm.json_values import dumps, leaves, lenient, loads, merged, pairs
from qvl_doctor.core.vllm.knowledge import FlagFact
from qvl_doctor.core.vllm.spelling import nearest_option

if TYPE_CHECKING:
    from qvl_doctor.core.launch import Flag

LIMITS = "--limit-mm-per-prompt"
MEDIA = frozenset({"image", "video", "audio", "vision_chunk"})  # vllm/config/multimodal.py, over all releases
_INT = lazy_regex(r"\s*[+-]?\d(?:_?\d)*\s*")
_HUMAN = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtT])(?:i?[bB]|okens?)?\s*")
_HUMAN_TAKEN = lazy_regex(r"\s*\d+(?:\.\d+)?[kKmMgGtT]\s*")
_SIZE = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*(?:g|gb|gib|G|GB|GiB)\s*")
_WORD = lazy_regex(r"[\w-]+|-?\d+\.\d+")
_PERCENT = lazy_regex(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_POWERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_VARIABLE = lazy_regex(r"\$\{?([A-Za-z_]\w*)\}?")


@record
class Range:
    """Bounds of a number: low <= value <= high (`open_low`: low < value)."""

    low: float
    high: float
    open_low: bool
    words: dict[str, str]


# vllm/config/cache.py (_verify_args: "must be less than 1.0", Field(gt=0, le=1) later), vllm/config/parallel.py,
# vllm/config/scheduler.py (max_num_seqs, ge=1), the port as sockets take it.
_SHARE = Range(0, 1, True, {"en": "above 0 and at most 1", "zh": "大于 0 且不超过 1"})
_COUNT = Range(1, 2**31, False, {"en": "at least 1", "zh": "不小于 1"})
RANGES: dict[str, Range] = {
    "--gpu-memory-utilization": _SHARE,
    "--tensor-parallel-size": _COUNT,
    "--pipeline-parallel-size": _COUNT,
    "--max-num-seqs": _COUNT,
    "--max-num-batched-tokens": _COUNT,
    "--port": Range(0, 65535, False, {"en": "between 0 and 65535", "zh": "在 0 到 65535 之间"}),
}


def judge_value(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """The problem of a flag's value, None where the release takes it (or it can't be told)."""
    fact = spelled.fact
    if fact is None or check.command.server == "llm":
        return None if fact is None else _judge_python(check, flag, fact)
    if flag.path:
        return _judge_dotted(check, flag, fact)
    if fact.nargs == "switch":
        return _judge_switch(check, flag, spelled)
    if flag.value is None:
        if fact.nargs == "optional" or check.command.server == "config":
            return None
        return check.problem(INVALID, flag, check.say("needs_value", flag=flag.spelled))
    if fact.takes_json or fact.value == "pairs":
        return _judge_json(check, flag, fact)
    if flag.unresolved or (fact.nullable and flag.value in ("", "None")):
        return None
    return _judge_plain(check, flag, fact)


def _judge_python(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem | None:
    """Of a keyword of Python's LLM class: the type is Python's business, choices and range are not."""
    if flag.value is None or flag.unresolved or flag.path or not _WORD.fullmatch(flag.value):
        return None  # objects of Python (torch.bfloat16) are not for us to judge
    return _judge_choice(check, flag, fact, flag.value) or _judge_range(check, flag, flag.value)


# --- switches --------------------------------------------------------------------------------------------------------


def _judge_switch(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    if flag.value is None or check.command.server == "config":
        return None
    on = flag.value.strip().lower() not in ("false", "0", "no", "off")
    if spelled.negated:
        on = not on
    reason = check.say("takes_none", flag=flag.spelled)
    edits = [check.edit("unset", flag.name, None, reason)]
    if on or (spelled.fact is not None and spelled.fact.negations):
        edits.append(check.edit("set", flag.name, "true" if on else "false", reason))
    return check.problem(INVALID, flag, reason, edits=edits)


# --- numbers and choices ---------------------------------------------------------------------------------------------


def _judge_plain(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem | None:
    values = flag.values if fact.nargs == "many" and flag.values else (flag.value or "",)
    for value in values:
        problem = _judge_one(check, flag, fact, value)
        if problem is not None:
            return problem
    return None


def _judge_one(check: Check, flag: Flag, fact: FlagFact, value: str) -> FlagProblem | None:
    if fact.value in ("int", "human-int", "human-int-or-auto") and not _is_int(value, fact.value):
        meant = _int_meant(flag, value)
        return _invalid(check, flag, check.say("not_int", flag=flag.spelled), meant)
    if fact.value == "float" and as_number(value) is None:
        return _invalid(check, flag, check.say("not_float", flag=flag.spelled), _float_meant(flag, value))
    return _judge_choice(check, flag, fact, value) or _judge_range(check, flag, value)


def _is_int(value: str, kind: str) -> bool:
    if _INT.fullmatch(value):
        return True
    if kind != "int" and _HUMAN_TAKEN.fullmatch(value):
        number, unit = value.strip()[:-1], value.strip()[-1]
        return unit.islower() or number.isdigit()
    return kind == "human-int-or-auto" and value.strip().lower() == "auto"


def _int_meant(flag: Flag, value: str) -> str | None:
    human = _HUMAN.fullmatch(value)
    if human is not None and (human.group(2) in "kK" or flag.name.endswith("-bytes")):
        # Context lengths are powers of two: 32k means 32768 there, whatever vLLM's own reader makes of a small k.
        power = _POWERS[human.group(2).upper() if flag.name == "--max-model-len" else human.group(2)]
        return str(int(float(human.group(1)) * power))
    number = as_number(value.replace(",", ""))
    return str(int(number)) if number is not None and number == int(number) and abs(number) < 2**53 else None


def _float_meant(flag: Flag, value: str) -> str | None:
    percent = _PERCENT.fullmatch(value)
    if percent is not None:
        return f"{float(percent.group(1)) / 100:g}"
    size = _SIZE.fullmatch(value)
    if size is not None and flag.name != "--gpu-memory-utilization":
        return size.group(1)
    number = as_number(value.replace(",", "."))
    return None if number is None else f"{number:g}"


def _judge_choice(check: Check, flag: Flag, fact: FlagFact, value: str) -> FlagProblem | None:
    choices = fact.choices
    if fact.name == "--quantization" and choices is None:
        known = tuple(check.known.quantization())
        choices = known or None
        if value.lower() in known or value in ("", "None", "ascend") or "." in value:
            return None  # plugins register methods of their own, among them these
    if choices is None or value in [str(c) for c in choices]:
        return None
    meant = check.advice.meant.get(fact.name, {}).get(value.lower())
    texts = [str(c) for c in choices]
    if meant not in texts:
        lowered = {t.lower(): t for t in texts}
        near = nearest_option(f"--{value.lower()}", [f"--{t}" for t in lowered])
        meant = lowered.get(value.lower()) or (lowered.get(near[2:]) if near else None)
    why = check.say("not_choice", flag=flag.spelled, choices=", ".join(texts[:40]))
    return _invalid(check, flag, why, meant)


def _judge_range(check: Check, flag: Flag, value: str) -> FlagProblem | None:
    limits = RANGES.get(flag.name)
    number = as_number(value)
    if limits is None or number is None:
        return None
    if (limits.low < number if limits.open_low else limits.low <= number) and number <= limits.high:
        return None
    meant = None
    if limits is _SHARE and 1 < number <= 100:
        meant = f"{number / 100:g}"
    elif limits is _COUNT and number == 0:
        meant = "1"
    words = limits.words.get(check.language, limits.words["en"])
    return _invalid(check, flag, check.say("range", flag=flag.spelled, range=words), meant)


def _invalid(check: Check, flag: Flag, why: str, meant: str | None) -> FlagProblem:
    edits: list[Edit] = []
    if meant is not None:
        if len(check.command.find(flag.name)) > 1:  # given twice: one of them is enough
            edits.append(check.edit("unset", flag.name, None, why))
        edits.append(check.edit("set", flag.name, meant, why))
    else:  # nothing tells what was meant; with it nothing starts
        edits.append(check.edit("unset", flag.name, None, check.say("default_instead"), safety="unsafe"))
    return check.problem(INVALID, flag, why, edits=edits, nearest=meant)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _judge_dotted(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem | None:
    """--flag.key value: only for JSON flags, and only where the parser knows keys behind dots."""
    if check.known.traits.dotted:
        if not fact.takes_json:
            return _plain_with_keys(check, flag, fact)
        return _unknown_key(check, flag, fact, {".".join(flag.path): flag.value})
    why = check.say("dotted", name=fact.name)
    present = check.command.json_value(fact.name)
    edits = [check.edit("unset", fact.name, None, why)]
    if isinstance(present, dict) and (fact.takes_json or fact.value == "pairs"):
        text = _pairs_text(present) if fact.value == "pairs" else dumps(present)
        edits = [check.edit("set", fact.name, text, check.say("same_value"))] if text else edits
    return check.problem(LIMIT if fact.name == LIMITS else NOT_YET, flag, why, edits=edits)


def _plain_with_keys(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem | None:
    """The parser makes JSON of keys behind dots; a flag that takes text takes that too, others do not."""
    if fact.value == "str" and fact.choices is None and fact.nargs != "switch":
        return None
    why = check.say("no_keys", name=fact.name)
    return check.problem(INVALID, flag, why, edits=[check.edit("unset", fact.name, None, why)])


def _judge_json(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem | None:
    value = flag.value or ""
    split = len(flag.values) > 1 and fact.nargs == "one"
    if not split and _accepted(value, fact):
        return _judge_keys(check, flag, fact, value)
    if fact.nullable and value in ("", "None"):
        return None
    meant, reason = _json_meant(check, value, split=split)
    if fact.name == LIMITS and reason in ("pairs", None):
        why = check.say("pairs_only" if fact.value == "pairs" else "json_only")
        return check.problem(LIMIT, flag, why, edits=_whole(check, flag, fact, meant))
    if flag.unresolved and not split and reason == "broken":
        return None  # a variable holds it: what that is can't be told
    why = check.say("bad_json", reason=check.say(reason or "broken"))
    kind = LIMIT if fact.name == LIMITS and not split else QUOTING
    if meant is None:
        return check.problem(kind, flag, why)
    by_keys = kind == QUOTING and fact.name != LIMITS and check.known.traits.dotted
    edits = _by_keys(check, flag, meant) if by_keys else None
    return check.problem(kind, flag, why, edits=edits or _whole(check, flag, fact, meant))


def _accepted(value: str, fact: FlagFact) -> bool:
    """Whether the release's own reader of this flag takes the text."""
    as_pairs = pairs(value)
    if fact.value == "pairs":
        return value == "" or (as_pairs is not None and ":" not in value)
    if fact.value == "json-or-pairs" and as_pairs is not None and ":" not in value:
        return True
    if fact.value == "json-or-text" and not value.strip().startswith("{"):
        return True
    if fact.name == "--compilation-config" and fact.value == "json" and value.strip().isdigit():
        return True  # a level, in releases that read the text themselves
    try:
        parsed = loads(_expanded(value) if fact.value == "json-config-short" else value)
    except ValueError:
        return False
    return isinstance(parsed, dict) or not fact.value.startswith("json-config")


def _judge_keys(check: Check, flag: Flag, fact: FlagFact, value: str) -> FlagProblem | None:
    """JSON that arrives, but with a key that means nothing."""
    try:
        parsed = loads(_expanded(value))
    except ValueError:
        return None
    return _unknown_key(check, flag, fact, parsed) if isinstance(parsed, dict) else None


def _unknown_key(check: Check, flag: Flag, fact: FlagFact, given: dict[str, Any]) -> FlagProblem | None:
    keys: frozenset[str] | None = MEDIA if fact.name == LIMITS else check.known.config_keys(fact.name)
    if keys is None:
        return None
    for key in given:
        first = key.partition(".")[0]
        if first in keys:
            continue
        near = nearest_option(f"--{first}", [f"--{k}" for k in keys])
        meant = None if near is None else next(k for k in keys if k.replace("_", "-") == near[2:].replace("_", "-"))
        why = check.say("unknown_key", name=fact.name, key=first, keys=", ".join(sorted(keys)))
        edits: list[Edit] = []
        if meant is not None and not flag.path:
            renamed = {meant if k == key else k: v for k, v in given.items()}
            edits = [check.edit("set", flag.name, dumps(renamed), why)]
        return check.problem(INVALID, flag, why, edits=edits, nearest=meant)
    return None


def _expanded(value: str) -> str:
    """JSON with bare 80m or 1k in it, which newer releases expand, made plain (what they become does not matter)."""
    parts = re.split(r'("(?:[^"\\]|\\.){0,4000}")', value)
    return "".join(
        p if i % 2 else re.sub(r"\b(\d{1,18}(?:\.\d{1,9})?)[kKmMgGtT]\b", r"\1", p) for i, p in enumerate(parts)
    )


def _json_meant(check: Check, value: str, *, split: bool) -> tuple[Any, str | None]:
    """The object that was meant (None where it can't be told) and the key of the reason why it does not arrive."""
    as_pairs = None if value.strip().startswith(("{", "[")) else pairs(value)
    if as_pairs is not None:
        return as_pairs, "pairs"
    resolved, complete = _resolved(check, value)
    try:
        whole = loads(resolved)
    except ValueError:
        try:
            whole = lenient(resolved)
        except ValueError:
            return None, "split" if split else "broken"
        reason: str | None = "split" if split else "unquoted"
    else:
        reason = "split" if split else None
    if not isinstance(whole, dict) or not complete:
        return (_usual(check, whole) if isinstance(whole, dict) else None), reason or "broken"
    return whole, reason


def _resolved(check: Check, value: str) -> tuple[str, bool]:
    """The text with variables put in that the command itself defines; whether all could be."""
    complete = True

    def put(match: re.Match[str]) -> str:
        nonlocal complete
        name = match.group(1)
        if name in check.command.env and name not in check.command.env_unresolved:
            return check.command.env[name]
        complete = False
        return match.group(0)

    return _VARIABLE.sub(put, value), complete


def _usual(check: Check, value: dict[str, Any]) -> dict[str, Any] | None:
    """An object with an unknown variable for its pixel cap: the usual cap in its place. None for other unknowns."""
    result: dict[str, Any] = value
    for path, leaf in leaves(value):
        if not (isinstance(leaf, str) and _VARIABLE.search(leaf)):
            continue
        if path[-1] not in ("max_pixels", "longest_edge") or check.model is None:
            return None
        result = merged(result, path, default_cap_pixels(check.model))
    return result


def _whole(check: Check, flag: Flag, fact: FlagFact, meant: Any) -> list[Edit]:
    """The edit that writes the object in the form that the release reads."""
    if not isinstance(meant, dict):
        return []
    text = _pairs_text(meant) if fact.value == "pairs" else dumps(meant)
    return [check.edit("set", flag.name, text, check.say("same_value"))] if text else []


def _pairs_text(meant: dict[str, Any]) -> str | None:
    """image=4,video=0; counts out of nested options; None where it can't be said in pairs."""
    counts = {k: v.get("count", 1) if isinstance(v, dict) else v for k, v in meant.items()}
    if not all(isinstance(v, int) for v in counts.values()):
        return None
    return ",".join(f"{k}={v}" for k, v in counts.items())


def _by_keys(check: Check, flag: Flag, meant: Any) -> list[Edit] | None:
    """Dotted keys need no quoting at all; None where a value is no plain one."""
    if not isinstance(meant, dict):
        return None
    reason = check.say("same_value")
    edits = [check.edit("unset", flag.name, None, reason)]
    for path, leaf in leaves(meant):
        if isinstance(leaf, dict | list) or leaf is None or any("." in key or not key for key in path):
            return None
        text = leaf if isinstance(leaf, str) else dumps(leaf)
        edits.append(check.edit("set", ".".join((flag.name, *path)), text, reason))
    return edits
