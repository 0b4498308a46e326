"""All regexes that are looked for in a log, by number: the reader's own, then those of the rules.

What is to be known of a regex before it is run (how much of a line it may look at, which texts a line must hold) is
found out once, in `prepare`, and can be kept by whoever knows that the regexes are still the same. A regex is compiled
when a line first holds one of its texts: most of them never meet such a line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain

from qvl_doctor.core.logs import oom, stats
from qvl_doctor.core.logs.failures import FATAL_LINES
from qvl_doctor.core.logs.model import LinePattern
from qvl_doctor.core.logs.phases import PHASE_MARKS
from qvl_doctor.core.logs.prefilter import Index, required_skeletons
from qvl_doctor.core.logs.sightings import SIGHTING_PATTERNS
from qvl_doctor.core.logs.texts import bounded
from qvl_doctor.core.logs.tracebacks import ALONE_REGEX, CHAIN_REGEX, FRAME_REGEX, HEADER_REGEX
from qvl_doctor.core.records import record

SEARCH_REACH = 4000  # characters of a message that rules look at, and as many at its end
SEARCH_REACH_SLOW = 500  # the same for regexes of cubic cost
SLOW_REPEATS = 3
OWN_REACH = 20_000  # characters of a message that the reader's own regexes look at

# The reader's own single regexes, in the order of their rows.
STATS, PREEMPTION, ARGUMENTS, CONFIG, ACCESS, OOM, HEADER, FRAME, ALONE, CHAIN, SHUTDOWN = range(11)
_SINGLE = (
    stats.STATS_REGEX,
    stats.PREEMPTION_REGEX,
    r"\bargs: (?=\{|Namespace\()",
    r" LLM engine \(v[^)]{1,60}\) with config: ",
    r'- "(?P<method>[A-Z]{3,7}) (?P<path>[^"\n]{0,2000}) HTTP/[\d.]{1,3}" (?P<status>\d{3})\b(?P<phrase>[\w -]{0,40})',
    oom.OOM_REGEX,
    HEADER_REGEX,
    FRAME_REGEX,
    ALONE_REGEX,
    CHAIN_REGEX,
    r"Shutting down(?: FastAPI HTTP server\.)?$|\[shutdown\] API server: shutdown triggered|trigger received signal="
    r"|Gracefully stopping http server",
)
_GROUPS = (
    tuple(row.regex for row in SIGHTING_PATTERNS),
    tuple(regex for regex, _ in PHASE_MARKS),
    tuple(regex for regex, _, _ in FATAL_LINES),
    _SINGLE,
)
_OWN = tuple(chain.from_iterable(_GROUPS))
# Where each further group begins.
PHASES, FATAL, SINGLE, RULES = accumulate(len(group) for group in _GROUPS)
TRACING = frozenset(SINGLE + row for row in (HEADER, FRAME, ALONE, CHAIN))


@record
class Prepared:
    """What is known of a regex before it is run."""

    reach: int  # characters at an end of a message that it looks at
    literals: tuple[str, ...]  # skeletons, of which each line that it matches holds one; none: it is tried on any line


def regexes_of(patterns: Sequence[LinePattern]) -> tuple[str, ...]:
    """The regexes of all rows: what decides whether kept preparations are still good."""
    return (*_OWN, *(pattern.regex for pattern in patterns))


def prepare(patterns: Sequence[LinePattern]) -> tuple[Prepared, ...]:
    """The preparations of all rows. Raises `re.error` for a rule's regex that is none, or may take exponential time."""
    own = (Prepared(OWN_REACH, required_skeletons(regex)) for regex in _OWN)
    return (*own, *(_prepared(pattern.regex) for pattern in patterns))


@lru_cache(maxsize=4096)  # rules share regexes, and samples are read with the same rules again and again
def _prepared(regex: str) -> Prepared:
    from qvl_doctor.core.logs.regexes import broad_repeats, regex_problem  # noqa: PLC0415 - not for what is kept

    re.compile(regex)
    problem = regex_problem(regex)
    if problem is not None:
        raise re.error(problem, regex)
    reach = SEARCH_REACH if broad_repeats(regex) < SLOW_REPEATS else SEARCH_REACH_SLOW
    return Prepared(reach, required_skeletons(regex))


class Rows:
    """The regexes of the reader and of some rules, ready to be looked for."""

    def __init__(self, patterns: Sequence[LinePattern], prepared: Sequence[Prepared]) -> None:
        """`prepared` as `prepare(patterns)` gives it."""
        self._patterns = tuple(patterns)
        self._regexes = regexes_of(patterns)
        self._compiled: list[re.Pattern[str] | None] = [None] * len(self._regexes)
        self._reach = [row.reach for row in prepared]
        self._index = Index([row.literals for row in prepared])

    def candidates(self, skeleton: bytes) -> tuple[int, ...]:
        """Numbers of the rows that may match a line of this skeleton, ascending."""
        return self._index.candidates(skeleton)

    def search(self, row: int, message: str) -> re.Match[str] | None:
        """Looks for a row's regex within its reach: at the start of a message, that of a rule at the end as well."""
        compiled = self._compiled[row]
        if compiled is None:
            compiled = self._compiled[row] = re.compile(self._regexes[row])
        if row < RULES:
            return compiled.search(message, 0, OWN_REACH)
        return compiled.search(bounded(message, self._reach[row]))

    def key(self, row: int) -> str:
        """The key of a rule's row."""
        return self._patterns[row - RULES].key


@lru_cache(maxsize=8)
def rows_of(patterns: tuple[LinePattern, ...]) -> Rows:
    """Prepared once for all readers of the same patterns: it takes longer than reading a short log."""
    return Rows(patterns, prepare(patterns))


def parted(rows: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The reader's own rows and those of rules."""
    cut = bisect_left(rows, RULES)
    return rows[:cut], rows[cut:]
