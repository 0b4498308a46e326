"""What one vLLM release (or one installation) accepts, and when a flag came and went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from qvl_doctor.core.records import record
from qvl_doctor.core.vllm import packing
from qvl_doctor.core.vllm.history import Basis, FlagHistory, as_version, history_of

if TYPE_CHECKING:
    from packaging.version import Version

    from qvl_doctor.core.vllm.advice import Advice

Nargs = Literal["switch", "one", "many", "optional"]
Load = Callable[[str], packing.Packed]


@record
class FlagFact:
    """One option of the server's command line in one release.

    `value`: bool (a switch), int, float, str, json; with finer kinds where the spelling matters: human-int ("32k"
    is taken), human-int-or-auto (also "auto" and -1), json-or-text, json-or-pairs (image=4 is taken too), pairs
    (only image=4), json-config (an object; with -short: 80m and 1k are taken as numbers in it). `choices` are enforced;
    `default` is None where there is none or it is known only at run time.
    """

    name: str
    aliases: tuple[str, ...]
    negations: tuple[str, ...]
    value: str
    nargs: Nargs
    choices: tuple[Any, ...] | None
    default: Any
    nullable: bool
    deprecated: bool
    note: str  # what the release itself says about the deprecation, "" where it says nothing
    source: str
    servers: tuple[str, ...]  # "serve", "api_server"

    @property
    def negation(self) -> str | None:
        """The spelling that switches it off, None where there is none."""
        return self.negations[0] if self.negations else None

    @property
    def takes_json(self) -> bool:
        """Whether a JSON object is one of the forms of its value."""
        return self.value.startswith("json")


@record
class ParserTraits:
    """What the release's parser class adds to argparse.

    `underscores`: --max_model_len is taken. `dotted`: --limit-mm-per-prompt.image 4 is taken. `config`: --config FILE.
    `model_option`: what `vllm serve --model X` does: "error", "moved" (taken with a warning) or "plain".
    `level`: what -O3 stands for: "--compilation-config", "--optimization-level" or "".
    `inverse`: ((--enable-, --disable-), ...) prefixes that a switch is paired with, beside its --no- form.
    """

    underscores: bool
    dotted: bool
    config: bool
    model_option: str
    level: str
    inverse: tuple[tuple[str, str], ...]
    source: str


@record
class EnvironmentFact:
    """An environment variable of a release: its annotated type, its default, its choices."""

    name: str
    kind: str
    default: Any
    choices: tuple[str, ...] | None


@record
class MetricFact:
    """A metric as a scrape shows it; `labels` None: not known; `hidden`: only shown on demand."""

    name: str
    kind: str
    labels: tuple[str, ...] | None
    engines: tuple[str, ...]
    hidden: bool
    source: str


@record
class BatchDefaults:
    """Defaults for one class of GPU. The first row of a release whose conditions hold is the one in force.

    `min_memory_gib` of total device memory; `without`/`named`: words that the lower-case device name must not
    contain / of which it must contain one. Values are by usage: `_server`, `_llm` (Python's LLM class); None: not set.
    """

    min_memory_gib: int
    without: tuple[str, ...]
    named: tuple[str, ...]
    tokens_server: int | None
    tokens_llm: int | None
    seqs_server: int | None
    seqs_llm: int | None

    def covers(self, memory_gib: float, device_name: str) -> bool:
        """Whether a GPU of this total memory and name falls into this row."""
        name = device_name.lower()
        return (
            memory_gib >= self.min_memory_gib
            and not any(word in name for word in self.without)
            and (not self.named or any(word in name for word in self.named))
        )


def negations_of(name: str, aliases: tuple[str, ...], inverse: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The spellings that switch a paired option off, the preferred one first."""
    options = [o for o in (name, *aliases) if o.startswith("--")]
    inverses = [
        other + option.removeprefix(prefix)
        for option in options
        for prefix, other in inverse
        if option.startswith(prefix)
    ]
    return (*inverses, *(f"--no-{option[2:]}" for option in options))


class Knowledge:
    """One release.

    `load(stem)` gives a document: a packed table of the release at hand ("flags", "environment", "metrics",
    "architectures", "quantization", "releases"), the flags of all releases ("history") or the parsed advice
    ("replacements"). It is expected to keep what it loads. `asked` is the version that the user or the log states.
    """

    def __init__(self, load: Load, release: str, basis: Basis, source: str, *, asked: str | None = None) -> None:
        self._load = load
        self.release = release
        self.asked = asked
        self.basis: Basis = basis
        self.source = source
        self._flags = load("flags")
        self._position = self._flags["releases"].index(release)
        self._cache: dict[str, FlagFact | None] = {}

    @cached_property
    def version(self) -> Version:
        """The release as a comparable version."""
        return as_version(self.release)

    @cached_property
    def traits(self) -> ParserTraits:
        """What the release's parser class adds to argparse."""
        parser = self._flags["parser"]
        record = parser["facts"][packing.index_at(parser["runs"], self._position)]
        return traits_from_record(record)

    # ---- flags

    def flag(self, name: str) -> FlagFact | None:
        """The fact about a flag by its long name, an alias, a short option or a negation; None if it has none such."""
        fact = self._canonical(name)
        if fact is not None:
            return fact
        return self._by_spelling.get(name)

    def _canonical(self, name: str) -> FlagFact | None:
        if name not in self._cache:
            record = packing.fact_at(self._flags, name, self._position)
            self._cache[name] = None if record is None else fact_from_record(name, record, self.traits)
        return self._cache[name]

    @cached_property
    def _by_spelling(self) -> dict[str, FlagFact]:
        return {s: fact for fact in self.flags().values() for s in (*fact.negations, *fact.aliases)}

    def flags(self) -> Mapping[str, FlagFact]:
        """All flags of the release by long name."""
        facts = {}
        for name in packing.names_at(self._flags, self._position):
            fact = self._canonical(name)
            if fact is not None:
                facts[name] = fact
        return facts

    @cached_property
    def spellings(self) -> frozenset[str]:
        """Every option string that the parser has."""
        return frozenset(self.flags()) | frozenset(self._by_spelling)

    def arity(self, flag: str) -> Nargs | None:
        """What values a flag takes; None for a flag that the release does not have."""
        fact = self.flag(flag)
        if fact is None:
            return "switch" if flag in {"--help", "--version", "-h", "-v"} else None
        return "switch" if flag in fact.negations else fact.nargs

    def canonical(self, flag: str) -> str | None:
        """The long name behind an alias, a short option or a negation; None for an unknown flag."""
        fact = self.flag(flag)
        return None if fact is None else fact.name

    def negation(self, flag: str) -> str | None:
        """How a switch is turned off ("--no-enable-prefix-caching"), None where it can't be."""
        fact = self.flag(flag)
        return None if fact is None else fact.negation

    def history(self, option: str) -> FlagHistory:
        """When an option existed, over all releases that the shipped data describes."""
        return history_of(self._load("history"), option)

    def history_spans(self, name: str) -> list[tuple[str, str, FlagFact]]:
        """(first release, last release, fact) for each span over which a flag stayed the same, oldest first."""
        table = self._load("history")
        releases = table["releases"]
        spans = []
        for first, last, fact in packing.spans(table["runs"].get(name, ())):
            parser = table["parser"]
            traits = traits_from_record(parser["facts"][packing.index_at(parser["runs"], last)])
            spans.append((releases[first], releases[last], fact_from_record(name, table["facts"][fact], traits)))
        return spans

    @cached_property
    def all_releases(self) -> tuple[str, ...]:
        """All releases that the shipped data describes, oldest first."""
        return tuple(self._load("history")["releases"])

    @cached_property
    def advice(self) -> Advice:
        """What says the same in other releases."""
        from qvl_doctor.core.vllm.advice import advice_of  # noqa: PLC0415 # it needs this module

        return advice_of(self._load("replacements"))

    def default(self, name: str) -> Any:
        """The static default of "max_model_len" or "--max-model-len"; None where there is none."""
        flag = name if name.startswith("-") else f"--{name.replace('_', '-')}"
        fact = self.flag(flag)
        return None if fact is None else fact.default

    @cached_property
    def _config_keys(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for name in self._table("config_keys"):
            flag, _, key = name.partition(" ")
            found.setdefault(flag, set()).add(key)
        return {flag: frozenset(keys) for flag, keys in found.items()}

    def config_keys(self, flag: str) -> frozenset[str] | None:
        """The keys that the JSON of a configuration flag may hold; None where others are not an error or not known."""
        return self._config_keys.get(flag)

    # ---- everything else

    def env_vars(self) -> Mapping[str, EnvironmentFact]:
        """The environment variables of the release's own table."""
        return {
            name: EnvironmentFact(name, record[0], record[1], None if record[2] is None else tuple(record[2]))
            for name, record in self._table("environment").items()
        }

    def metrics(self) -> Mapping[str, MetricFact]:
        """The metrics that the release registers, by the name of a scrape."""
        return {
            name: MetricFact(name, r[0], None if r[1] is None else tuple(r[1]), tuple(r[2]), r[3], r[4])
            for name, r in self._table("metrics").items()
        }

    def architectures(self) -> Mapping[str, str]:
        """Architecture name -> group ("multimodal", "text_generation", …)."""
        return self._table("architectures")

    def quantization(self) -> Mapping[str, int | None]:
        """Quantization method -> lowest compute capability times ten (75), None where none is stated."""
        return self._table("quantization")

    def requires(self) -> Mapping[str, str]:
        """Package -> specifier of the release's own requirements ("torch": "==2.6.0")."""
        rows = self._table("releases")
        return {name.removeprefix("requires "): spec for name, spec in rows.items() if name.startswith("requires ")}

    def batch_defaults(self, memory_gib: float, device_name: str = "") -> BatchDefaults | None:
        """The row for a GPU of this total memory; None for releases without such a table (before 0.8.0)."""
        rows = self._table("releases").get("batch") or []
        parsed = [BatchDefaults(r[0], tuple(r[1]), tuple(r[2]), r[3], r[4], r[5], r[6]) for r in rows]
        return next((row for row in parsed if row.covers(memory_gib, device_name)), None)

    def _table(self, stem: str) -> Mapping[str, Any]:
        table = self._load(stem)
        return {name: packing.fact_at(table, name, self._position) for name in packing.names_at(table, self._position)}


def traits_from_record(record: list[Any]) -> ParserTraits:
    """The inverse of `release_facts.traits_record`."""
    return ParserTraits(
        record[0], record[1], record[2], record[3], record[4], tuple((a, b) for a, b in record[5]), record[6]
    )


def fact_from_record(name: str, record: list[Any], traits: ParserTraits) -> FlagFact:
    """The inverse of `release_facts.flag_record`."""
    aliases = tuple(record[0])
    return FlagFact(
        name=name,
        aliases=aliases,
        negations=negations_of(name, aliases, traits.inverse) if record[1] else (),
        value=record[2],
        nargs=record[3],
        choices=None if record[4] is None else tuple(record[4]),
        default=record[5],
        nullable=record[6],
        deprecated=record[7],
        note=record[8],
        source=record[9],
        servers=tuple(record[10]),
    )
