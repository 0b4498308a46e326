"""When releases took a flag, and which known release an arbitrary version is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from qvl_doctor.core.records import record
from qvl_doctor.core.vllm import packing

if TYPE_CHECKING:
    from packaging.version import Version

Basis = Literal["release", "installation", "nearest"]


@record
class FlagHistory:
    """When an option existed. `releases`: all known releases that take it, oldest first; `since`, `until`: the first
    and the last of them (`until` None while it still exists); `removed_in`: the first release after `until`;
    `earlier_possible`: `since` is the oldest release known here, so the option may be older.
    """

    name: str
    releases: tuple[str, ...]
    since: str | None
    until: str | None
    removed_in: str | None
    deprecated_since: str | None
    earlier_possible: bool

    @property
    def existed(self) -> bool:
        """Whether any known release has it."""
        return bool(self.releases)

    def before(self, version: Version) -> str | None:
        """The last release older than a version that takes it."""
        return next((r for r in reversed(self.releases) if as_version(r) < version), None)

    def after(self, version: Version) -> str | None:
        """The first release newer than a version that takes it."""
        return next((r for r in self.releases if as_version(r) > version), None)


def as_version(text: str) -> Version:
    """A version to compare with; anything unreadable counts as 0."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 # a plain look-up does not need it

    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def fits(version: Version, specifier: str) -> bool:
    """Whether a version is in a range like ">=0.8,<0.18"."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 # a plain look-up does not need it

    return SpecifierSet(specifier).contains(version, prereleases=True)


def nearest_release(releases: tuple[str, ...], version: str | None) -> tuple[str, Basis]:
    """The known release to judge a version by: itself (a local part or build taken off), else the newest known one
    that is not newer; a development version counts as the release that it leads to, if that is known.
    """
    if not releases:
        raise ValueError("no releases")
    if version is None:
        return releases[-1], "nearest"
    if version in releases:
        return version, "release"
    wanted = as_version(version)
    if wanted == as_version("0"):
        return releases[-1], "nearest"
    for candidate in (wanted.public, wanted.base_version):
        if candidate in releases:
            return candidate, "release" if not wanted.is_prerelease else "nearest"
    older = [r for r in releases if as_version(r) <= wanted]
    return (older[-1] if older else releases[0]), "nearest"


def history_of(flags: packing.Packed, option: str) -> FlagHistory:
    """When an option existed, as a flag of its own, an alias or a negation, over all releases of a packed table."""
    releases: list[str] = flags["releases"]
    positions: set[int] = set()
    deprecated: int | None = None
    for first, last, fact in _spans_of(flags, option):
        positions.update(range(first, last + 1))
        if flags["facts"][fact][7] and (deprecated is None or first < deprecated):
            deprecated = first
    if not positions:
        return FlagHistory(option, (), None, None, None, None, False)
    oldest, newest = min(positions), max(positions)
    gone = newest + 1 < len(releases)
    return FlagHistory(
        name=option,
        releases=tuple(releases[p] for p in sorted(positions)),
        since=releases[oldest],
        until=releases[newest] if gone else None,
        removed_in=releases[newest + 1] if gone else None,
        deprecated_since=None if deprecated is None else releases[deprecated],
        earlier_possible=oldest == 0,
    )


def _spans_of(flags: packing.Packed, option: str) -> list[tuple[int, int, int]]:
    """The spans over which an option string is taken."""
    own = list(packing.spans(flags["runs"].get(option, ())))
    if own:
        return own + _paired_spans(flags, option)
    aliased = [
        span for run in flags["runs"].values() for span in packing.spans(run) if option in flags["facts"][span[2]][0]
    ]
    return aliased or _paired_spans(flags, option)


def _paired_spans(flags: packing.Packed, option: str) -> list[tuple[int, int, int]]:
    """The spans over which an option is the other half of a switch: --no-x, --disable-x of --enable-x."""
    found: list[tuple[int, int, int]] = []
    if option.startswith("--no-"):
        run = flags["runs"].get(f"--{option[5:]}", ())
        found += [span for span in packing.spans(run) if flags["facts"][span[2]][1]]
    parser = flags["parser"]
    for first, last, fact in packing.spans(parser["runs"]):
        for prefix, inverse in parser["facts"][fact][5]:
            if not option.startswith(inverse):
                continue
            run = flags["runs"].get(prefix + option.removeprefix(inverse), ())
            found += [
                (max(first, a), min(last, b), fact)
                for a, b, fact in packing.spans(run)
                if flags["facts"][fact][1] and max(first, a) <= min(last, b)
            ]
    return found
