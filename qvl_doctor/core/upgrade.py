"""What a change of the vLLM release means for one launch command: flags, defaults, metrics, requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import Known, Objects, View
from qvl_doctor.core.findings import Edit
from qvl_doctor.core.launch import edited_command
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.core.records import record
from qvl_doctor.core.vllm.flag_problems import FlagProblem
from qvl_doctor.core.vllm.flags import check_flags
from qvl_doctor.core.vllm.knowledge import Knowledge

Kind = Literal["flag", "default", "engine", "metric", "requirement"]

# What is in force without the user's doing, as `core/derived/effective.py` works it out for a release.
_IN_FORCE = (
    ("effective.engine", "engine"),
    ("effective.model_runner", "engine"),
    ("effective.max_num_seqs", "default"),
    ("effective.max_num_batched_tokens", "default"),
)
_REQUIREMENTS = ("torch", "transformers")


@record
class Change:
    """One difference; `before` and `after` are the texts of the two releases, None where there is nothing."""

    kind: Kind
    name: str
    before: str | None
    after: str | None
    why: str = ""


@record
class Upgrade:
    """All differences between two releases that concern the command, and the command for the later one."""

    old: str
    new: str
    changes: tuple[Change, ...]
    before: str
    after: str


def explain_upgrade(observed: Observed, old: Knowledge, new: Knowledge, language: str) -> Upgrade:
    """Compare two releases for the command in `observed`, whose launch must be known. Works in both directions."""
    if observed.launch is None:
        raise ValueError("a launch command is needed")
    load_all()
    views = [_view(observed, known) for known in (old, new)]
    problems = check_flags(observed.launch, new, views[1], language)
    given = {flag.name for flag in observed.launch.flags}
    changes = (
        *(_flag_change(problem) for problem in problems),
        *_in_force(views[0], views[1]),
        *_defaults(old, new, given),
        *_requirements(old, new),
        *_metrics(old, new),
    )
    edits = tuple(edit for problem in problems for edit in problem.edits if edit.safety != "manual")
    after = edited_command(observed.launch, edits) if observed.launch.editable else observed.launch.text
    return Upgrade(old.release, new.release, changes, observed.launch.text, after)


def _view(observed: Observed, known: Knowledge) -> View:
    facts: dict[str, Known] = {**base_facts(observed), "version.vllm": Known(known.release)}
    return View(facts, Objects(launch=observed.launch, knowledge=known, gpus=observed.gpus))


def _flag_change(problem: FlagProblem) -> Change:
    return Change("flag", problem.flag, problem.text, _edits_in_words(problem.edits), problem.detail.get("why", ""))


def _edits_in_words(edits: tuple[Edit, ...]) -> str | None:
    texts = [" ".join(filter(None, (edit.name, edit.value))) for edit in edits if edit.op in ("set", "rename", "env")]
    return "; ".join(texts) or None


def _in_force(old: View, new: View) -> Iterator[Change]:
    for name, kind in _IN_FORCE:
        before, after = old.text(name), new.text(name)
        if before != after and before is not None and after is not None:
            yield Change("engine" if kind == "engine" else "default", name.removeprefix("effective."), before, after)


def _defaults(old: Knowledge, new: Knowledge, given: set[str]) -> Iterator[Change]:
    """Flags that both releases have, that the command leaves open, and whose static defaults differ."""
    later = new.flags()
    for name, flag in old.flags().items():
        other = later.get(name)
        if other is None or name in given or name == "--model" or flag.default == other.default:
            continue
        if flag.default in (None, {}, []) or other.default in (None, {}, []):
            continue  # "worked out at run time" on one side: nothing to compare
        yield Change("default", name, _shown(flag.default), _shown(other.default))


def _shown(value: Any) -> str:
    return "on" if value is True else "off" if value is False else str(value)


def _requirements(old: Knowledge, new: Knowledge) -> Iterator[Change]:
    before, after = old.requires(), new.requires()
    for package in _REQUIREMENTS:
        if before.get(package) != after.get(package):
            yield Change("requirement", package, before.get(package), after.get(package))


def _metrics(old: Knowledge, new: Knowledge) -> Iterator[Change]:
    """Metrics that a dashboard made for the old release will miss."""
    later: Mapping[str, Any] = new.metrics()
    for name in old.metrics():
        if name not in later:
            yield Change("metric", name, name, None)
