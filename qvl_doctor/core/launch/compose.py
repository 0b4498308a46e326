"""docker compose files: each service that runs vLLM is a command."""

from __future__ import annotations

from collections.abc import Callable

from qvl_doctor.core.launch.assemble import Context, Surroundings
from qvl_doctor.core.launch.command import LaunchCommand
from qvl_doctor.core.launch.docker import mount_of, size_bytes
from qvl_doctor.core.launch.manifest import (
    command_of,
    key_node,
    line_before,
    line_behind,
    lines_gone,
    part_of,
    replaced,
    value_slot,
)
from qvl_doctor.core.launch.places import EnvPlace, EnvSlot, OptionPlace, OptionSlot
from qvl_doctor.core.launch.values import ContainerFacts, Mount, Splice
from qvl_doctor.core.launch.yaml_nodes import Node, indent_of, written_scalar

# docker's option -> the service's key
_KEYS = {
    "--shm-size": "shm_size",
    "--ipc": "ipc",
    "--network": "network_mode",
    "--runtime": "runtime",
    "--privileged": "privileged",
    "--gpus": "gpus",
    "--memory": "mem_limit",
    "--hostname": "hostname",
}


def compose_commands(root: Node, context: Context) -> list[LaunchCommand]:
    """The services of a compose file, in order."""
    services = root.get("services")
    if services is None:
        return []
    found: list[LaunchCommand] = []
    for key, service in services.own_pairs():
        if service.kind != "mapping":
            continue
        layer = root.layer
        start = layer.begin(layer.text.rfind("\n", 0, key.start) + 1)
        end = layer.finish(len(layer.text[: service.end].rstrip()))
        env, unresolved = _environment(service)
        around = Surroundings(start, end, env, unresolved, _facts(service), _env_place(service), _option_place(service))
        parts = [part_of(service.get("entrypoint")), part_of(service.get("command"))]
        command = command_of(context, parts, service.text_at("image"), around)
        if command is not None:
            found.append(command)
    return found


def _facts(service: Node) -> ContainerFacts:
    shm, memory = service.text_at("shm_size"), service.text_at("mem_limit")
    return ContainerFacts(
        image=_defaulted(service.text_at("image")),
        gpus=_gpus(service),
        ipc=service.text_at("ipc"),
        shm_size_bytes=size_bytes(shm) if shm else None,
        network=service.text_at("network_mode"),
        runtime=service.text_at("runtime"),
        memory_limit_bytes=size_bytes(memory) if memory else None,
        ports=_texts(service.get("ports")),
        mounts=_mounts(service),
        env_files=_texts(service.get("env_file")),
        kind="compose",
    )


def _defaulted(text: str | None) -> str | None:
    """${TAG:-v0.8.5} in an image's name stands for its default."""
    if text is None or "${" not in text:
        return text
    head, _, rest = text.partition("${")
    inner, closed, tail = rest.partition("}")
    default = inner.partition(":-")[2]
    return head + default + tail if closed and default else text


def _texts(node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    if node.text is not None:
        return (node.text,)
    return tuple(item.text for item in node.items()[:100] if item.text is not None)


def _mounts(service: Node) -> tuple[Mount, ...]:
    node = service.get("volumes")
    found: list[Mount] = []
    for item in node.items()[:100] if node else []:
        target = item.text_at("target") if item.kind == "mapping" else None
        mount = Mount(item.text_at("source") or "", target) if target else mount_of(item.text or "")
        if mount is not None:
            found.append(mount)
    return tuple(found)


def _gpus(service: Node) -> str | None:
    """`gpus: all`, or the first device reservation's count or ids."""
    if (gpus := service.text_at("gpus")) is not None:
        return gpus
    devices = service.get("deploy", "resources", "reservations", "devices")
    for device in devices.items() if devices else []:
        ids = _texts(device.get("device_ids"))
        if ids:
            return "device=" + ",".join(ids)
        return device.text_at("count") or "all"
    return None


def _environment(service: Node) -> tuple[dict[str, str], frozenset[str]]:
    env: dict[str, str] = {}
    node = service.get("environment")
    if node is None:
        return env, frozenset()
    for key, value in node.pairs():
        if key.text and value.text is not None:
            env[key.text] = value.text
    for item in node.items():
        name, equals, text = (item.text or "").partition("=")
        if equals:
            env[name] = text
    return env, frozenset(name for name, text in env.items() if "${" in text or text.startswith("$"))


def _env_place(service: Node) -> EnvPlace:
    node = service.get("environment")
    if node is None:
        return EnvPlace((), lambda name, value: _add_block(service, name, value))
    if node.kind == "mapping":
        slots = tuple(
            value_slot(key.text, value, _gone(node, key, value))
            for key, value in node.own_pairs()
            if key.text and value.text is not None
        )
        return EnvPlace(slots, lambda name, value: _add_key(node, name, value))
    found = [_item_slot(node, item) for item in node.items() if "=" in (item.text or "")]
    return EnvPlace(tuple(found), lambda name, value: _add_item(node, name, value))


def _gone(parent: Node, key: Node, value: Node) -> Callable[[], Splice | None]:
    sole = len(parent.own_pairs()) == 1  # an emptied mapping would be null: refused
    return lambda: None if parent.flow or sole else lines_gone(key.layer, key.start, value.end)


def _item_slot(parent: Node, item: Node) -> EnvSlot:
    name, _, value = (item.text or "").partition("=")
    sole = len(parent.items()) == 1
    return EnvSlot(
        name,
        value,
        lambda text: replaced(item, f"{name}={text}"),
        lambda: None if parent.flow or sole else lines_gone(item.layer, item.start, item.end),
    )


def _add_key(node: Node, name: str, value: str) -> Splice | None:
    pairs = node.own_pairs()
    if node.flow or not pairs:
        return None
    key, last = pairs[-1]
    return line_behind(last, [f"{name}: {written_scalar(value)}"], indent_of(node.layer, key.start))


def _add_item(node: Node, name: str, value: str) -> Splice | None:
    items = node.items()
    if node.flow or not items:
        return None
    last = items[-1]
    raw = last.layer.text[last.start : last.end]
    dash = last.layer.text.rfind("-", 0, last.start)
    like = raw if raw[:1] in ("'", '"') else ""
    return line_behind(last, [f"- {written_scalar(f'{name}={value}', like)}"], indent_of(node.layer, dash))


def _add_block(service: Node, name: str, value: str) -> Splice | None:
    key = key_node(service, "command") or key_node(service, "image")
    if key is None or service.flow:
        return None
    return line_before(key, ["environment:", f"  - {written_scalar(f'{name}={value}')}"])


def _option_place(service: Node) -> OptionPlace:
    slots: list[OptionSlot] = []
    for option, name in _KEYS.items():
        for key, value in service.own_pairs():
            if key.text == name and value.text is not None:
                slots.append(_option_slot(option, service, key, value))
    return OptionPlace(tuple(slots), lambda option, value: _add_option(service, option, value))


def _option_slot(option: str, service: Node, key: Node, value: Node) -> OptionSlot:
    return OptionSlot(option, lambda text: replaced(value, text or "true", text=False), _gone(service, key, value))


def _add_option(service: Node, option: str, value: str | None) -> Splice | None:
    name = _KEYS.get(option)
    key = key_node(service, "command") or key_node(service, "image")
    if name is None or key is None or service.flow:
        return None
    return line_before(key, [f"{name}: {written_scalar(value or 'true', text=False) if value else 'true'}"])
