"""Facts: what is known about one server, as flat names with values and the evidence they come from.

Base facts are observed (`launch.*`, `log.*`, `gpu.*`, `host.*`, `env.*`, `version.*`); derived facts (`plan.*`,
`derived.*`, `effective.*`, `model.*`) are computed from them by the functions registered here. Unknown is absent,
never 0 or "". Rules see nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from qvl_doctor.core.findings import Evidence
from qvl_doctor.core.records import field, record

if TYPE_CHECKING:
    from qvl_doctor.core.gpus import Gpu
    from qvl_doctor.core.launch import LaunchCommand
    from qvl_doctor.core.logs import LogSummary
    from qvl_doctor.core.model import ModelSpec
    from qvl_doctor.core.vllm.knowledge import Knowledge

Value = bool | int | float | str | tuple["Mapping[str, Any]", ...]
Compute = Callable[["View"], "Value | None"]


@record
class Known:
    """A fact's value and what shows it (None: it follows from the version or from other facts)."""

    value: Value
    evidence: Evidence | None = None


@record
class Objects:
    """The parsed inputs behind the facts, for computations that need more than single values."""

    launch: LaunchCommand | None = None
    log: LogSummary | None = None
    knowledge: Knowledge | None = None
    model: ModelSpec | None = None
    gpus: tuple[Gpu, ...] = ()


@record
class DerivedFact:
    """One registered computation: its name, kind of value, unit and meaning."""

    name: str
    kind: str
    unit: str
    meaning: str
    compute: Compute


REGISTRY: dict[str, DerivedFact] = {}


def derived(name: str, kind: str, unit: str, meaning: str) -> Callable[[Compute], Compute]:
    """Register the decorated function as the computation of fact `name`.

    The function takes a `View` and returns the value, or None where its inputs are unknown. ArithmeticError,
    ValueError, KeyError and TypeError inside it count as unknown. Raises ValueError for a name that is taken.
    """

    def register(compute: Compute) -> Compute:
        if name in REGISTRY:
            raise ValueError(f"derived fact {name} is registered twice")
        REGISTRY[name] = DerivedFact(name, kind, unit, meaning, compute)
        return compute

    return register


# Whose facts are known to be complete once the owner's own marker is known: only then does "absent" hold.
_OWNERS = {
    "launch": "launch.present",
    "log": "log.present",
    "gpu": "gpu.count",
    "host": "host.present",
    "env": "launch.present",
}
_ALWAYS_COMPLETE = frozenset({"match", "item"})


@record(frozen=False)
class View:
    """Read access to the facts, with the groups of one log match (`match.*`) and one list item (`item.*`) laid over.

    Derived facts are computed when asked for and kept; a cycle among them reads as unknown.
    """

    base: Mapping[str, Known]
    objects: Objects = field(default_factory=Objects)
    overlay: Mapping[str, Known] = field(default_factory=dict)
    _memo: dict[str, Known | None] = field(default_factory=dict)

    def over(self, overlay: Mapping[str, Known]) -> View:
        """The same facts with `overlay` on top (nothing computed is carried over: it may depend on the overlay)."""
        return View(self.base, self.objects, {**self.overlay, **overlay}) if overlay else self

    def known(self, name: str) -> Known | None:
        """The fact with its evidence, or None where it is unknown."""
        found = self.overlay.get(name) or self.base.get(name)
        if found is not None:
            return found
        if name in self._memo:
            return self._memo[name]
        entry = REGISTRY.get(name)
        self._memo[name] = None  # what a cycle sees
        if entry is not None:
            self._memo[name] = self._computed(entry)
        return self._memo[name]

    def _computed(self, entry: DerivedFact) -> Known | None:
        try:
            value = entry.compute(self)
        except (ArithmeticError, ValueError, KeyError, TypeError, IndexError):
            return None
        return None if value is None else Known(value)

    def value(self, name: str) -> Value | None:
        """The fact's value, or None where it is unknown."""
        found = self.known(name)
        return None if found is None else found.value

    def is_absent(self, name: str) -> bool | None:
        """Whether the fact is known not to be given; None where its owner (launch, log, …) is itself unknown."""
        if self.known(name) is not None:
            return False
        owner = name.partition(".")[0]
        if owner in _ALWAYS_COMPLETE:
            return True
        marker = _OWNERS.get(owner)
        if marker is None:
            return None
        return True if self.value(marker) else None

    def number(self, name: str) -> float | None:
        """The fact as a number (numeric text with thousands separators counts), or None."""
        value = self.value(name)
        if isinstance(value, bool):
            return None
        if isinstance(value, int | float):
            return float(value)
        return as_number(value) if isinstance(value, str) else None

    def integer(self, name: str) -> int | None:
        """The fact as a whole number, or None where it is none."""
        number = self.number(name)
        return int(number) if number is not None and number == int(number) else None

    def text(self, name: str) -> str | None:
        """The fact as text, or None where it is unknown or a list."""
        value = self.value(name)
        return None if value is None or isinstance(value, tuple) else shown(value)

    def flag(self, name: str) -> bool | None:
        """The fact as yes or no, or None where it is unknown or neither."""
        value = self.value(name)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS_OF_TRUTH:
            return _WORDS_OF_TRUTH[value.lower()]
        return bool(value) if isinstance(value, int) else None

    def version(self, name: str) -> Version | None:
        """The fact as a PEP 440 version, or None."""
        return as_version(self.text(name))

    def at_least(self, name: str, version: str) -> bool | None:
        """Whether the version in fact `name` is `version` or newer; None where it is unknown."""
        found = self.version(name)
        return None if found is None else found >= Version(version)

    def names(self) -> Iterator[str]:
        """Names of the observed facts, overlay included."""
        yield from self.base
        yield from (name for name in self.overlay if name not in self.base)


_WORDS_OF_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def as_number(text: str) -> float | None:
    """'12,288', '0.92' or '1.5e3' as a number, else None."""
    try:
        number = float(text.replace(",", "").strip()) if len(text) < 40 else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def as_version(text: str | None) -> Version | None:
    """A PEP 440 version, or None; a leading "v" and "unknown" tails are tolerated."""
    if not text:
        return None
    try:
        return Version(text.removeprefix("v").strip())
    except InvalidVersion:
        return None


def shown(value: Value) -> str:
    """A fact's value as a person reads it: whole numbers without a point, others with at most two decimals."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)
