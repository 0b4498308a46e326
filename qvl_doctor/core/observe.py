"""Observations to base facts: what the launch command, the log, the host and the user state, with its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qvl_doctor.core.facts import Known, Value, as_number
from qvl_doctor.core.findings import Evidence
from qvl_doctor.core.host import HostFacts
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import field, record

if TYPE_CHECKING:
    from qvl_doctor.core.gpus import Gpu
    from qvl_doctor.core.launch import Flag, LaunchCommand
    from qvl_doctor.core.logs import LogSummary, OomReport

GIB = 1 << 30
MIB = 1 << 20
_WSL = lazy_regex(r"\bwsl", re.IGNORECASE)
_COMMAND_CHARACTERS = 300  # of a command that is shown as evidence
_JSON_DEPTH = 3  # levels of a JSON flag that become facts


@record
class Observed:
    """Everything a diagnosis starts from."""

    launch: LaunchCommand | None = None
    log: LogSummary | None = None
    host: HostFacts = field(default_factory=HostFacts)
    gpus: tuple[Gpu, ...] = ()
    gpu_text: str | None = None
    version: str | None = None  # stated by the user
    model: str | None = None  # stated by the user


def base_facts(observed: Observed) -> dict[str, Known]:
    """The observed facts by name. Later sources fill gaps; they never replace what an earlier one states."""
    facts: dict[str, Known] = {}
    for name, known in _all_facts(observed):
        facts.setdefault(name, known)
    return facts


def _all_facts(observed: Observed) -> Iterator[tuple[str, Known]]:
    yield from _version_facts(observed)
    if observed.launch is not None:
        yield from _launch_facts(observed.launch)
    if observed.log is not None:
        yield from _log_facts(observed.log)
    yield from _host_facts(observed.host, observed.gpu_text)
    yield from _gpu_facts(observed)


def _version_facts(observed: Observed) -> Iterator[tuple[str, Known]]:
    if observed.version is not None:
        yield "version.vllm", Known(observed.version, Evidence("host", "--vllm-version", f"vllm {observed.version}"))
    for package, version in observed.host.packages.items():
        yield f"version.{package}", Known(version, Evidence("host", "facts", f"{package} {version}"))
    log = observed.log
    if log is not None and log.version is not None:
        yield "version.vllm", Known(str(log.version.value), Evidence("log", log.version.where, log.version.text))
    if log is not None:
        for package in ("torch", "transformers", "cuda"):
            seen = log.facts.get(f"{package}_version")
            if seen is not None:
                yield f"version.{package}", Known(str(seen.value), Evidence("log", seen.where, seen.text))
    launch = observed.launch
    if launch is not None and launch.version is not None:
        yield "version.vllm", Known(launch.version, Evidence("launch", launch.where, f"image tag {launch.version}"))


def _launch_facts(launch: LaunchCommand) -> Iterator[tuple[str, Known]]:
    yield "launch.present", Known(True, Evidence("launch", launch.where, launch.text[:_COMMAND_CHARACTERS]))
    yield "launch.server", Known(launch.server, Evidence("launch", launch.where, launch.server))
    if launch.model:
        yield "launch.model", Known(launch.model, Evidence("launch", launch.where, launch.model))
    given: set[str] = set()
    for flag in reversed(launch.flags):  # of a flag given twice, the last holds
        key = flag.name.removeprefix("--").replace("-", "_")
        if key in given and not flag.path:
            continue
        given.add(key)
        evidence = Evidence("launch", f"{_document(launch.where)}:{flag.line}", _flag_text(flag))
        name = ".".join(("launch", key, *flag.path))
        yield name, Known(_flag_value(flag), evidence)
        if flag.path:
            yield f"launch.{key}", Known(_flag_value(flag), evidence)
        elif flag.value and flag.value.lstrip().startswith("{"):
            for path, value in _json_leaves(launch.json_value(flag.name), (), _JSON_DEPTH):
                yield ".".join(("launch", key, *path)), Known(value, evidence)
    for name, text in launch.env.items():
        known = Known(text, Evidence("launch", launch.where, f"{name}={text}"))
        yield f"launch.env.{name}", known
        yield f"env.{name}", known
    container = launch.container
    yield "launch.in_container", Known(container is not None)
    if container is not None:
        stated: dict[str, Value | None] = {
            "image": container.image,
            "gpus": container.gpus,
            "ipc": container.ipc,
            "shm_size_bytes": container.shm_size_bytes,
            "network": container.network,
        }
        for attribute, setting in stated.items():
            if setting is not None:
                evidence = Evidence("launch", launch.where, f"{attribute}={setting}")
                yield f"launch.container.{attribute}", Known(setting, evidence)


def _document(where: str) -> str:
    return where.rpartition(":")[0] or where


def _flag_text(flag: Flag) -> str:
    return flag.spelled if flag.value is None else f"{flag.spelled} {flag.value}"


def _flag_value(flag: Flag) -> Value:
    if flag.value is None:
        return not flag.negated
    return typed(flag.value)


def typed(text: str) -> Value:
    """A flag's text as the value it means: whole number, number, true/false, else the text itself."""
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    number = as_number(text) if lowered[:1] in "+-.0123456789" else None
    if number is None or "," in text:
        return text
    return int(number) if re.fullmatch(r"[+-]?\d+", lowered) else number


def _json_leaves(value: object, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Value]]:
    if isinstance(value, Mapping) and depth > 0:
        for key, inner in list(value.items())[:50]:
            if re.fullmatch(r"\w{1,60}", str(key)):
                yield from _json_leaves(inner, (*path, str(key)), depth - 1)
    elif path and isinstance(value, bool | int | float | str):
        yield path, value


def _log_facts(log: LogSummary) -> Iterator[tuple[str, Known]]:
    yield "log.present", Known(True)
    yield "log.state", Known(log.state)
    yield "log.phase", Known(log.phase)
    yield "log.lines", Known(log.lines)
    yield "log.attempts", Known(log.attempts)
    if log.failure_phase is not None:
        yield "log.failure_phase", Known(log.failure_phase)
    for name, seen in log.facts.items():
        yield f"log.{name}", Known(seen.value, Evidence("log", seen.where, seen.text))
    if log.failures:
        root = log.failures[0]
        evidence = Evidence("log", root.where, root.text)
        yield "log.failure.type", Known(root.type, evidence)
        yield "log.failure.message", Known(root.message, evidence)
        yield "log.failure.phase", Known(root.phase, evidence)
        yield "log.failure.frames", Known(" ".join(root.frames), evidence)
    if log.oom is not None:
        yield from _oom_facts(log.oom)
    yield from _stats_facts(log)
    for status, count in log.http_errors.items():
        yield f"log.http.{status}", Known(count)


def _oom_facts(oom: OomReport) -> Iterator[tuple[str, Known]]:
    evidence = Evidence("log", oom.where, oom.text)
    yield "log.oom.present", Known(True, evidence)
    yield "log.oom.phase", Known(oom.phase, evidence)
    yield "log.oom.frames", Known(" ".join(oom.frames), evidence)
    sizes: Mapping[str, tuple[int | None, int]] = {
        "tried_mib": (oom.tried_bytes, MIB),
        "free_mib": (oom.free_bytes, MIB),
        "total_gib": (oom.total_bytes, GIB),
        "this_process_gib": (oom.this_process_bytes, GIB),
        "pytorch_gib": (oom.pytorch_bytes, GIB),
        "reserved_mib": (oom.reserved_bytes, MIB),
    }
    for name, (size_bytes, unit) in sizes.items():
        if size_bytes is not None:
            yield f"log.oom.{name}", Known(round(size_bytes / unit, 2), evidence)
    if oom.other_processes:
        held = sum(size_bytes or 0 for _, size_bytes in oom.other_processes)
        yield "log.oom.others_gib", Known(round(held / GIB, 2), evidence)
        yield "log.oom.others_count", Known(len(oom.other_processes), evidence)
    if oom.gpu_index is not None:
        yield "log.oom.gpu_index", Known(oom.gpu_index, evidence)


def _stats_facts(log: LogSummary) -> Iterator[tuple[str, Known]]:
    stats = log.stats
    if not stats.lines or stats.last_where is None:
        return
    last = Evidence("log", stats.last_where, stats.last_text or "")
    shown_by: dict[str, Evidence] = {}
    for prefix in ("kv_usage_max", "stuck", "preemption"):
        where, text = getattr(stats, f"{prefix}_where", None), getattr(stats, f"{prefix}_text", None)
        if where is not None:
            shown_by[prefix] = Evidence("log", where, text or "")
    for name in type(stats).__match_args__:
        value: Any = getattr(stats, name)
        if isinstance(value, bool | int | float):
            evidence = next((one for prefix, one in shown_by.items() if name.startswith(prefix)), last)
            yield f"log.stats.{name}", Known(value, evidence)


def _host_facts(host: HostFacts, gpu_text: str | None) -> Iterator[tuple[str, Known]]:
    stated = host != HostFacts()
    if stated:
        yield "host.present", Known(True)
    for name in ("shm_bytes", "ram_bytes", "driver", "os", "container"):
        value = getattr(host, name)
        if value is not None:
            yield f"host.{name}", Known(value, Evidence("host", "facts", f"{name}={value}"))
    for source, text in (("facts", host.os), ("--gpu", gpu_text)):
        if text and _WSL.search(text):
            yield "host.wsl", Known(True, Evidence("host", source, text))
    if host.os:
        yield "host.wsl", Known(False)
    for name, text in host.env.items():
        known = Known(text, Evidence("host", "facts", f"{name}={text}"))
        yield f"host.env.{name}", known
        yield f"env.{name}", known


def _gpu_facts(observed: Observed) -> Iterator[tuple[str, Known]]:
    gpus = observed.gpus
    if not gpus:
        return
    evidence = Evidence("gpu", "--gpu" if observed.gpu_text else "gpu", observed.gpu_text or gpus[0].name or "GPU")
    yield "gpu.count", Known(len(gpus), evidence)
    if gpus[0].name:
        yield "gpu.name", Known(gpus[0].name, evidence)
    yield "gpu.cuda", Known(all(gpu.cuda for gpu in gpus), evidence)
    smallest = [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes is not None]
    if smallest:
        yield "gpu.memory_total_gib", Known(round(min(smallest) / GIB, 2), evidence)
    used = [gpu.memory_used_bytes for gpu in gpus if gpu.memory_used_bytes is not None]
    if used:
        yield "gpu.memory_used_gib", Known(round(max(used) / GIB, 2), evidence)
    free = [
        gpu.memory_total_bytes - gpu.memory_used_bytes
        for gpu in gpus
        if gpu.memory_total_bytes is not None and gpu.memory_used_bytes is not None
    ]
    if free:
        yield "gpu.memory_free_gib", Known(round(min(free) / GIB, 2), evidence)
    capabilities = [gpu.compute_capability for gpu in gpus if gpu.compute_capability is not None]
    if capabilities:
        yield "gpu.compute_capability", Known(min(capabilities), evidence)
