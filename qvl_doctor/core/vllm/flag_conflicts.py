"""Flags that can't hold together, and flags that are taken without doing anything here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qvl_doctor.core.vllm.advice import Effect
from qvl_doctor.core.vllm.flag_problems import CONFLICT, DEPRECATED, NO_EFFECT, Check, FlagProblem, Spelled, written
from qvl_doctor.core.vllm.history import fits
from qvl_doctor.core.vllm.knowledge import FlagFact
from qvl_doctor.core.vllm.unknown_flags import replacement

if TYPE_CHECKING:
    from qvl_doctor.core.launch import Flag

_GRAPH_FLAGS = (
    "--cudagraph-capture-sizes",
    "--max-cudagraph-capture-size",
    "--cuda-graph-sizes",
    "--max-seq-len-to-capture",
)
_REPEATABLE = frozenset({"--middleware", "--api-key", "--lora-modules", "--allowed-origins", "--served-model-name"})


def judge_effect(check: Check, flag: Flag, spelled: Spelled) -> FlagProblem | None:
    """A flag without effect here, or one that the release calls deprecated."""
    fact = spelled.fact
    if fact is None:
        return None
    if not spelled.negated and (flag.value or "").lower() != "false":
        for effect in check.advice.effects.get(fact.name, ()):
            if _applies(check, effect):
                return _no_effect(check, flag, check.why(effect.why), harmless=effect.harmless)
    if fact.deprecated:
        return _deprecated(check, flag, fact)
    return None


def _applies(check: Check, effect: Effect) -> bool:
    if effect.vllm is not None and not fits(check.known.version, effect.vllm):
        return False
    if effect.engine is not None and check.view.text("effective.engine") != effect.engine:
        return False
    return not effect.families or (check.model is not None and check.model.family in effect.families)


def _no_effect(check: Check, flag: Flag, why: str, *, harmless: bool) -> FlagProblem:
    edits = () if harmless else (check.edit("unset", flag.name, None, check.say("no_use")),)
    text = f"{check.say('effect', flag=flag.spelled)} {why}".strip()
    return check.problem(NO_EFFECT, flag, text, edits=edits, detail={"harmless": "yes"} if harmless else {})


def _deprecated(check: Check, flag: Flag, fact: FlagFact) -> FlagProblem:
    history = check.known.history(fact.name)
    if "no effect" in fact.note.lower():
        return _no_effect(check, flag, check.say("note_effect", flag=flag.spelled), harmless=True)
    move = check.advice.move(fact.name, flag.value, check.known)
    edits, instead = replacement(check, flag, fact.name, reason="deprecated") if move is not None else ((), "")
    why = check.say("deprecated", flag=flag.spelled)
    if move is not None and check.why(move.why):
        why = f"{why} {check.why(move.why)}"
    detail = {"note": fact.note, **({"instead": instead} if instead else {})}
    return check.problem(
        DEPRECATED, flag, why, edits=edits, span=(history.deprecated_since, history.until), detail=detail
    )


def judge_together(check: Check, judged: frozenset[str]) -> Iterator[FlagProblem]:
    """Everything that only two or more flags show; `judged` names the flags that have a problem of their own."""
    found = [problem for judge in (_model_option, _batch, _needs, _eager) for problem in judge(check)]
    yield from found
    edited = {edit.name for problem in found for edit in problem.edits}
    yield from _twice(check, judged | edited)


def _first(check: Check, name: str) -> Flag | None:
    """The flag as it holds (the last one given), if it is given and the release takes it."""
    found = check.command.find(name) if check.known.flag(name) is not None else ()
    return found[-1] if found else None


def _int(check: Check, name: str) -> int | None:
    text = check.command.get(name)
    return int(text) if text is not None and text.strip().isdigit() else None


def _model_option(check: Check) -> Iterator[FlagProblem]:
    """`vllm serve --model X`: an error before 0.11.1 (FlexibleArgumentParser.parse_args; vllm/scripts.py before)."""
    flag = _first(check, "--model")
    if check.command.server != "serve" or flag is None or check.known.traits.model_option == "moved":
        return
    why = check.say("model_option")
    edits = [check.edit("unset", "--model", None, why)]
    if check.command.model_word is None and flag.value is not None:
        edits.append(check.edit("set", "model", flag.value, why))
    yield check.problem(CONFLICT, flag, why, edits=edits, detail={"fatal": "yes"})


def _twice(check: Check, judged: frozenset[str]) -> Iterator[FlagProblem]:
    groups: dict[str, list[Flag]] = {}
    for flag in check.command.flags:
        if not flag.path and flag.name not in _REPEATABLE and not flag.unresolved:
            groups.setdefault(flag.name, []).append(flag)
    for name, flags in groups.items():
        values = {(flag.value, flag.negated) for flag in flags}
        if len(values) > 1 and name not in judged and check.known.flag(name) is not None:
            last = flags[-1]
            shown = last.value or ("false" if last.negated else "true")
            why = check.say("twice", flag=name, count=len(flags), value=shown)
            edits = [check.edit("unset", name, None, why), check.edit("set", name, shown, why)]
            yield check.problem(CONFLICT, last, why, edits=edits, detail={"fatal": "no"}, sure=True)


def _batch(check: Check) -> Iterator[FlagProblem]:
    """vllm/config/scheduler.py (verify_max_model_len; _verify_args before): two refusals that all releases share."""
    flag = _first(check, "--max-num-batched-tokens")
    tokens = _int(check, "--max-num-batched-tokens")
    if flag is None or tokens is None:
        return
    seqs = _int(check, "--max-num-seqs")
    if seqs is not None and tokens < seqs:
        why = check.say("batched_below_seqs", tokens=tokens, seqs=seqs)
        edit = check.edit("set", "--max-num-seqs", str(tokens), why)
        yield check.problem(CONFLICT, flag, why, edits=[edit], detail={"fatal": "yes"})
    length = _int(check, "--max-model-len")
    if length is not None and tokens < length and _unchunked(check, length):
        why = check.say("batched_below_len", tokens=tokens, length=length)
        edit = check.edit("set", "--max-num-batched-tokens", str(length), why, safety="unsafe")
        yield check.problem(CONFLICT, flag, why, edits=[edit], detail={"fatal": "yes"})


def _unchunked(check: Check, length: int) -> bool:
    """Whether prefill is known not to be chunked: switched off, or V0's default (on only above 32768, not for VL)."""
    given = check.command.get("--enable-chunked-prefill")
    if given is not None:
        return given == "false"
    return check.view.text("effective.engine") == "V0" and (length <= 32768 or check.model is not None)


def _needs(check: Check) -> Iterator[FlagProblem]:
    """vllm/entrypoints/openai/cli_args.py (validate_parsed_serve_args), vllm/config/lora.py (_validate_lora_config)."""
    tool = _first(check, "--enable-auto-tool-choice")
    if tool is not None and not tool.negated and not check.command.has("--tool-call-parser"):
        why = check.say("tool_parser")
        edit = check.edit("set", "--tool-call-parser", "hermes", why, safety="unsafe")  # Qwen's own tool-call form
        yield check.problem(CONFLICT, tool, why, edits=[edit], detail={"fatal": "yes"})
    outputs = _first(check, "--enable-log-outputs")
    if outputs is not None and not outputs.negated and check.command.get("--enable-log-requests") != "true":
        why = check.say("log_outputs")
        edit = check.edit("set", "--enable-log-requests", "true", why)
        yield check.problem(CONFLICT, outputs, why, edits=[edit], detail={"fatal": "yes"})
    cpu, gpu, flag = _int(check, "--max-cpu-loras"), _int(check, "--max-loras") or 1, _first(check, "--max-cpu-loras")
    if flag is not None and cpu is not None and cpu < gpu:
        why = check.say("cpu_loras", cpu=cpu, gpu=gpu)
        edit = check.edit("set", "--max-cpu-loras", str(gpu), why)
        yield check.problem(CONFLICT, flag, why, edits=[edit], detail={"fatal": "yes"})


def _eager(check: Check) -> Iterator[FlagProblem]:
    """vllm/config/vllm.py: with enforce_eager the cudagraph mode is NONE, whatever the sizes say."""
    if check.command.get("--enforce-eager") != "true":
        return
    for name in _GRAPH_FLAGS:
        flag = _first(check, name)
        if flag is not None and check.known.flag(name) is not None:
            why = check.say("eager_graphs", flag=written(flag))
            edit = check.edit("unset", name, None, why)
            yield check.problem(CONFLICT, flag, why, edits=[edit], detail={"fatal": "no"})
