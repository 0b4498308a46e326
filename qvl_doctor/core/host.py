"""Facts about a host as JSON (`--facts`), checked key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record

MIB = 1 << 20
UNKNOWN_KEY = "facts_unknown_key"  # the one problem that is not fatal


@record
class HostGpu:
    """One GPU as a facts file states it; memory in bytes, capability as 8.0."""

    name: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: float | None = None


@record
class HostFacts:
    """What is known about the host; unknown is None or empty."""

    gpus: tuple[HostGpu, ...] = ()
    shm_bytes: int | None = None
    ram_bytes: int | None = None
    driver: str | None = None
    os: str | None = None
    container: bool | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)


def host_facts(document: object) -> tuple[HostFacts, tuple[Phrase, ...]]:
    """Read a parsed facts document; the second value lists everything in it that is not of the documented form.

    Unknown keys are named, not fatal: newer files stay readable.
    """
    problems: list[Phrase] = []
    if not isinstance(document, Mapping):
        return HostFacts(), (Phrase("facts_no_object"),)
    known = {"gpus", "shm_bytes", "ram_bytes", "driver", "os", "container", "env", "packages"}
    problems += [Phrase(UNKNOWN_KEY, {"name": repr(str(key)[:40])}) for key in document if key not in known]
    container = _kind_of_container(document.get("container"))
    if container is not None and not isinstance(container, bool):
        problems.append(Phrase("facts_no_switch", {"name": "container"}))
    return (
        HostFacts(
            gpus=_gpus(document.get("gpus"), problems),
            shm_bytes=_count(document, "shm_bytes", problems),
            ram_bytes=_count(document, "ram_bytes", problems),
            driver=_text(document, "driver", problems),
            os=_text(document, "os", problems),
            container=container if isinstance(container, bool) else None,
            env=_texts(document, "env", problems),
            packages=_texts(document, "packages", problems),
        ),
        tuple(problems),
    )


def _kind_of_container(value: object) -> object:
    """ "docker" or "kubernetes" say that there is a container; what kind does not matter here."""
    if not isinstance(value, str):
        return value
    return value.strip().lower() not in ("", "no", "none", "false", "0")


def _gpus(value: object, problems: list[Phrase]) -> tuple[HostGpu, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        problems.append(Phrase("facts_no_list", {"name": "gpus"}))
        return ()
    return tuple(
        HostGpu(
            name=_text(entry, "name", problems),
            memory_total_bytes=_mib(entry, "memory_total_mib", problems),
            memory_used_bytes=_mib(entry, "memory_used_mib", problems),
            compute_capability=_capability(entry.get("compute_capability"), problems),
        )
        for entry in value
    )


def _mib(entry: Mapping[str, Any], key: str, problems: list[Phrase]) -> int | None:
    count = _count(entry, key, problems)
    return None if count is None else count * MIB


def _count(entry: Mapping[str, Any], key: str, problems: list[Phrase]) -> int | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 60:
        problems.append(Phrase("facts_no_count", {"name": key}))
        return None
    return int(value)


def _capability(value: object, problems: list[Phrase]) -> float | None:
    if value is None:
        return None
    try:
        return float(str(value))
    except ValueError:
        problems.append(Phrase("facts_no_capability", {"name": "compute_capability"}))
        return None


def _text(entry: Mapping[str, Any], key: str, problems: list[Phrase]) -> str | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        problems.append(Phrase("facts_no_text", {"name": key}))
        return None
    return str(value)[:500]


def _texts(entry: Mapping[str, Any], key: str, problems: list[Phrase]) -> Mapping[str, str]:
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Phrase("facts_no_texts", {"name": key}))
        return {}
    return {str(name)[:200]: str(text)[:2000] for name, text in value.items() if isinstance(text, str | int | float)}
