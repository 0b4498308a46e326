"""The problem record of a flag, and what all checks need at hand to make one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qvl_doctor.core.findings import Edit, Safety
from qvl_doctor.core.masking import masked
from qvl_doctor.core.records import field, record
from qvl_doctor.core.vllm.advice import Advice
from qvl_doctor.core.vllm.knowledge import FlagFact, Knowledge

if TYPE_CHECKING:
    from qvl_doctor.core.facts import View
    from qvl_doctor.core.launch import Flag, LaunchCommand
    from qvl_doctor.core.model import ModelSpec

MAX_EVIDENCE = 300
NEVER, NOT_YET, REMOVED, DEPRECATED, TYPO, INVALID, NO_EFFECT, CONFLICT, LIMIT, QUOTING = (
    "flag-never-existed",
    "flag-not-yet",
    "flag-removed-or-renamed",
    "flag-deprecated",
    "flag-typo",
    "flag-value-invalid",
    "flag-no-effect",
    "flags-conflict",
    "flag-syntax-limit-mm-json",
    "flag-syntax-json-quoting",
)


@record
class FlagProblem:
    """One thing wrong with one flag of a command.

    `kind` is the id of the rule it belongs to; `flag` is as written, `name` canonical; `text` the evidence. In
    `detail`: `why` (a sentence in the reader's language), `release` that it was judged by, `assumed` = "yes" where
    the version was not known for sure, `harmless` = "yes" where nothing fails or is lost, `instead` (what to use).
    """

    kind: str
    flag: str
    name: str
    value: str | None
    where: str
    text: str
    since: str | None = None
    until: str | None = None
    nearest: str | None = None
    detail: Mapping[str, str] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


@record
class Check:
    """A command, the release to judge it by, and what else is known."""

    command: LaunchCommand
    known: Knowledge
    view: View
    language: str

    @property
    def advice(self) -> Advice:
        """The advice of the shipped data."""
        return self.known.advice

    @property
    def model(self) -> ModelSpec | None:
        """The model, if it is one that the tables know."""
        return self.view.objects.model

    @property
    def release(self) -> str:
        """The release as it is shown: "vLLM 0.11.2"."""
        return f"vLLM {self.known.release}"

    def say(self, key: str, /, **names: object) -> str:
        """A text of the data file in the reader's language."""
        return self.advice.say(self.language, key, release=self.release, **names)

    def why(self, entry: Mapping[str, str]) -> str:
        """The explanation of an advice entry, "" where it has none."""
        return entry.get(self.language) or entry.get("en", "")

    def edit(self, op: str, name: str, value: str | None, reason: str, *, safety: Safety = "safe") -> Edit:
        """An edit; `op` is one of findings.OPS."""
        return Edit(op, name, value, reason, safety)  # type: ignore[arg-type] # the literals stand in this package

    def problem(  # what a problem consists of
        self, kind: str, flag: Flag, why: str, *, edits: Sequence[Edit] = (), detail: Mapping[str, str] | None = None,
        span: tuple[str | None, str | None] = (None, None), nearest: str | None = None, sure: bool = False,
    ) -> FlagProblem:  # fmt: skip
        """A problem of one flag. `span`: (since, until); `sure`: it does not depend on the release."""
        facts = {"why": why, "release": self.known.release, **(detail or {})}
        if not sure and self.known.basis == "nearest":
            facts["assumed"] = "yes"
        return FlagProblem(
            kind=kind,
            flag=flag.spelled,
            name=flag.name,
            value=None if flag.value is None else masked(f"{flag.name} {flag.value}")[len(flag.name) + 1 :],
            where=f"{self.command.where.rpartition(':')[0] or self.command.where}:{flag.line}",
            text=written(flag),
            since=span[0],
            until=span[1],
            nearest=nearest,
            detail=facts,
            edits=tuple(edits),
        )


def written(flag: Flag) -> str:
    """The flag with its value, secrets masked, as evidence."""
    joint = "=" if flag.joined and flag.spelled != "-O" else "" if flag.joined else " "
    text = flag.spelled if flag.value is None else f"{flag.spelled}{joint}{flag.value}"
    return masked(text)[:MAX_EVIDENCE]


@record
class Spelled:
    """An option string as the parser sees it, and what the release makes of it."""

    option: str  # "--max-model-len", "-tp", "--no-enable-prefix-caching"
    fact: FlagFact | None
    negated: bool
    prefixes: tuple[str, ...] = ()  # the options that it is the beginning of, if it is none itself


def as_number(text: Any) -> float | None:
    """A plain number, None for anything else."""
    try:
        return float(str(text).strip())
    except ValueError:
        return None
