"""Kubernetes manifests: each container that runs vLLM is a command, in whatever kind of object it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qvl_doctor.core.launch.assemble import Context, Surroundings
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.docker import size_bytes
from qvl_doctor.core.launch.manifest import (
    command_of,
    key_node,
    line_before,
    line_behind,
    lines_gone,
    part_of,
    value_slot,
)
from qvl_doctor.core.launch.places import EnvPlace, EnvSlot
from qvl_doctor.core.launch.values import ContainerFacts, Mount, Splice
from qvl_doctor.core.launch.yaml_nodes import Node, indent_of, written_scalar

_MAX_DEPTH = 14


def kubernetes_commands(root: Node, context: Context) -> list[LaunchCommand]:
    """The containers of one object, in order."""
    found: list[LaunchCommand] = []
    for pod in _pods(root, 0):
        containers = pod.get("containers")
        for container in containers.items() if containers else []:
            if container.kind != "mapping":
                continue
            command = _container(pod, container, context)
            if command is not None:
                found.append(command)
    return found


def _pods(node: Node, depth: int) -> Iterator[Node]:
    """Every mapping that has `containers`."""
    if depth > _MAX_DEPTH:
        return
    if node.kind == "mapping":
        containers = node.get("containers")
        if containers is not None and containers.kind == "sequence":
            yield node
            return
        for _, value in node.own_pairs()[:500]:
            yield from _pods(value, depth + 1)
    for item in node.items()[:500]:
        yield from _pods(item, depth + 1)


def _container(pod: Node, container: Node, context: Context) -> LaunchCommand | None:
    layer = container.layer
    start = layer.begin(layer.text.rfind("\n", 0, container.start) + 1)
    end = layer.finish(len(layer.text[: container.end].rstrip()))
    env, unresolved = _environment(container)
    around = Surroundings(start, end, env, unresolved, _facts(pod, container), _env_place(container))
    parts = [part_of(container.get("command")), part_of(container.get("args"))]
    return command_of(context, parts, container.text_at("image"), around)


def _facts(pod: Node, container: Node) -> ContainerFacts:
    mounts = container.get("volumeMounts")
    found = [
        Mount(item.text_at("name") or "", target)
        for item in (mounts.items() if mounts else [])
        if (target := item.text_at("mountPath"))
    ]
    memory = container.text_at("resources", "limits", "memory")
    return ContainerFacts(
        image=container.text_at("image"),
        gpus=container.text_at("resources", "limits", "nvidia.com/gpu"),
        ipc="host" if pod.text_at("hostIPC") == "true" else None,
        shm_size_bytes=_shm_bytes(pod, found),
        network="host" if pod.text_at("hostNetwork") == "true" else None,
        runtime=pod.text_at("runtimeClassName"),
        memory_limit_bytes=size_bytes(memory) if memory else None,
        mounts=tuple(found),
        kind="kubernetes",
    )


def _shm_bytes(pod: Node, mounts: list[Mount]) -> int | None:
    """The size limit of the memory volume at /dev/shm; None where there is none, or no limit."""
    volumes = pod.get("volumes")
    names = {mount.source for mount in mounts if mount.target.rstrip("/") == "/dev/shm"}
    for volume in volumes.items() if volumes else []:
        if volume.text_at("name") in names and volume.text_at("emptyDir", "medium") == "Memory":
            limit = volume.text_at("emptyDir", "sizeLimit")
            return size_bytes(limit) if limit else None
    return None


def _variables(container: Node) -> list[tuple[str, Node, Node | None]]:
    node = container.get("env")
    return [
        (name, item, item.get("value")) for item in (node.items() if node else []) if (name := item.text_at("name"))
    ]


def _environment(container: Node) -> tuple[dict[str, str], frozenset[str]]:
    env: dict[str, str] = {}
    unresolved: set[str] = set()
    for name, _, value in _variables(container):
        env[name] = (value.text or "") if value else ""
        if value is None or value.text is None or "$(" in value.text:
            unresolved.add(name)
    return env, frozenset(unresolved)


def _env_place(container: Node) -> EnvPlace:
    variables = _variables(container)
    slots: list[EnvSlot] = []
    for name, item, value in variables:
        if value is not None and value.text is not None:
            slots.append(value_slot(name, value, _gone(item, sole=len(variables) == 1)))
    return EnvPlace(tuple(slots), lambda name, value: _add(container, name, value))


def _gone(item: Node, *, sole: bool) -> Callable[[], Splice | None]:
    end = len(item.layer.text[: item.end].rstrip())
    return lambda: None if item.flow or sole else lines_gone(item.layer, item.start, end)


def _add(container: Node, name: str, value: str) -> Splice | None:
    lines = [f"- name: {name}", f"  value: {written_scalar(value, chr(34))}"]
    node = container.get("env")
    items = node.items() if node else []
    if node is not None and (node.flow or not items):
        return None
    if items:
        last = items[-1]
        dash = last.layer.text.rfind("-", 0, last.start)
        return line_behind(last, lines, indent_of(last.layer, dash))
    key = key_node(container, "args") or key_node(container, "command") or key_node(container, "image")
    if key is None or container.flow:
        return None
    return line_before(key, ["env:", *lines])
