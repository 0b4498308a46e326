"""The host around the server: shared memory, nodes, links between GPUs, driver, the address it listens on.

Sources: vllm/entrypoints/openai/cli_args.py and vllm/entrypoints/common/cli_args.py (0.4-0.33: no `--host` means every
interface), vllm/envs.py (VLLM_API_KEY), Docker's documentation (64 MiB of /dev/shm), NVIDIA's CUDA compatibility table
(driver branch of each CUDA release), the `torch` pins of vLLM's wheels and torch's own CUDA pins.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from packaging.version import Version

from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.lazy_regex import lazy_regex

MIB = 1 << 20
_CONTAINER_SHM_BYTES = 64 * MIB  # what Docker and Kubernetes give a container that asks for nothing
_SERVERS = ("serve", "api_server", "legacy", "config")

# Cards without NVLink: what they exchange goes over PCIe, where IOMMU, ACS or the driver may break peer-to-peer copies.
_PCIE_ONLY = lazy_regex(
    r"\b(?:RTX|GTX|GeForce|TITAN|L4|L20|L40S?|T4|A2|A10G?|A16|A40|PCIe|4090|3090|5090|4080|5080|3080|2080|6000)\b",
    re.IGNORECASE,
)
_NVLINK = lazy_regex(r"SXM|NVL|HGX|DGX|GB200|GB300", re.IGNORECASE)
_NODES = lazy_regex(r"\b(\d{1,3})\s*(?:x\s*)?(?:nodes?|hosts?|machines?|台|机|节点)", re.IGNORECASE)
_PER_NODE = lazy_regex(r"(?:nodes?|hosts?|machines?|台|机|节点)\s*[x×*]\s*(\d{1,2})\b", re.IGNORECASE)

# CUDA release -> driver branch that came with it (first of the branch).
_DRIVERS = {"12.1": "530", "12.4": "550", "12.6": "560", "12.8": "570", "13.0": "580"}
# First torch release that is built with the CUDA release (PyPI wheels).
_TORCH_CUDA = (("2.11", "13.0"), ("2.8", "12.8"), ("2.7", "12.6"), ("2.5", "12.4"), ("2.2", "12.1"))


@derived("derived.unexplained", "bool", "", "no log, or a log without a failure of its own")
def _unexplained(view: View) -> bool:
    log = view.objects.log
    return log is None or not log.failures


@derived("derived.no_exception", "bool", "", "no log, or one whose failures only report that something ended")
def _no_exception(view: View) -> bool:
    """True as well of a traceback that was cut before its last line."""
    log = view.objects.log
    return log is None or all(failure.kind == "consequence" for failure in log.failures)


_OF_ITSELF = frozenset(
    {"ValueError", "TypeError", "KeyError", "AttributeError", "AssertionError", "NotImplementedError", "ImportError",
     "ModuleNotFoundError", "ValidationError", "OutOfMemoryError"}
)  # fmt: skip


@derived("derived.failed_by_itself", "bool", "", "an exception of the server's own came before anything ended it")
def _failed_by_itself(view: View) -> bool:
    """Such as a refused setting: a process that is killed afterwards is only cleared away. Lost connections don't
    count, as they are what the others see of one that was killed."""
    log = view.objects.log
    first = log.failures[0] if log is not None and log.failures else None
    return first is not None and first.kind == "root" and first.type.rpartition(".")[2] in _OF_ITSELF


@derived("derived.came_up", "bool", "", "the log shows a server that became ready")
def _came_up(view: View) -> bool:
    return view.text("log.state") in ("ready", "degraded")


# --- shared memory ---------------------------------------------------------------------------------------------------


@derived("derived.shm_mib", "float", "MiB", "size of /dev/shm as the server sees it")
def _shm_mib(view: View) -> float | None:
    """Measured, else as the container asks for it, else what a container gets that asks for nothing.

    None where the container shares the host's or another's, or mounts its own.
    """
    measured = view.number("host.shm_bytes")
    if measured is not None:
        return round(measured / MIB, 1)
    launch = view.objects.launch
    container = None if launch is None else launch.container
    if container is None:
        return None
    if container.shm_size_bytes is not None:
        return round(container.shm_size_bytes / MIB, 1)
    if container.ipc in ("host", "shareable") or (container.ipc or "").startswith("container:"):
        return None
    if any(mount.target == "/dev/shm" for mount in container.mounts):
        return None
    return round(_CONTAINER_SHM_BYTES / MIB, 1)


@derived("derived.shm_default_container", "bool", "", "a container that asks for no shared memory, so it has 64 MiB")
def _shm_default(view: View) -> bool | None:
    container = None if view.objects.launch is None else view.objects.launch.container
    size = view.number("derived.shm_mib")
    return None if container is None or size is None else size <= _CONTAINER_SHM_BYTES / MIB


@derived("derived.several_gpus", "bool", "", "one copy of the model uses more than one GPU")
def _several_gpus(view: View) -> bool | None:
    """By the sizes in force; a model of more than 60 billion parameters counts as several by itself."""
    stated = view.integer("launch.tensor_parallel_size") or view.integer("log.tensor_parallel_size")
    world = view.integer("effective.world_size") or 1
    if world > 1:
        return True
    if stated is None and (view.number("model.parameters_billion") or 0) > 60:
        return True
    known = view.value("launch.present") or stated is not None
    return False if known else None


# --- nodes and links -------------------------------------------------------------------------------------------------


def _gpu_text(view: View) -> str:
    known = view.known("gpu.count")
    return "" if known is None or known.evidence is None else known.evidence.text


@derived("derived.nodes", "int", "", "hosts over which one launch runs")
def _nodes(view: View) -> int | None:
    given = view.integer("launch.nnodes") or view.integer("log.nnodes")
    if given is not None:
        return given
    stated = _NODES.search(_gpu_text(view))
    return int(stated[1]) if stated else None


@derived("plan.gpus_per_node", "int", "", "GPUs of each host")
def _gpus_per_node(view: View) -> int | None:
    stated = _PER_NODE.search(_gpu_text(view))
    if stated:
        return int(stated[1])
    nodes, world = view.integer("derived.nodes"), view.integer("effective.world_size")
    if nodes is None or world is None or nodes < 2 or world % nodes:
        return None
    return world // nodes


@derived("derived.tensor_parallel_leaves_node", "bool", "", "the GPUs that share a layer stand in several hosts")
def _leaves_node(view: View) -> bool | None:
    nodes, here = view.integer("derived.nodes"), view.integer("plan.gpus_per_node")
    if nodes is None or here is None:
        return None
    return nodes > 1 and (view.integer("effective.tensor_parallel_size") or 1) > here


@derived("derived.pcie_only", "bool", "", "the GPUs have no NVLink")
def _pcie_only(view: View) -> bool | None:
    known = [gpu.nvlink for gpu in view.objects.gpus if gpu.nvlink is not None]
    if known:
        return not any(known)
    name = view.text("gpu.name") or view.text("log.gpu_name")
    if name is None:
        return None
    return _NVLINK.search(name) is None and _PCIE_ONLY.search(name) is not None


# --- driver ----------------------------------------------------------------------------------------------------------


@derived("plan.cuda_of_release", "str", "", "CUDA release with which this vLLM release was built")
def _cuda_of_release(view: View) -> str | None:
    """The newer of what its torch brings and what its own wheels are known for (12.8 for 0.9-0.10)."""
    knowledge, version = view.objects.knowledge, view.version("version.vllm")
    if knowledge is None or version is None:
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - 5 ms, where a version is known

    try:
        pins = SpecifierSet(knowledge.requires().get("torch", ""))
    except InvalidSpecifier:
        return None
    pinned = next((Version(pin.version) for pin in pins if pin.operator in ("==", ">=")), None)
    if pinned is None:
        return None
    cuda = next((cuda for torch, cuda in _TORCH_CUDA if pinned >= Version(torch)), None)
    return "12.8" if cuda == "12.6" and version >= Version("0.9") else cuda


@derived("plan.cuda_needed", "str", "", "CUDA release that the driver must know; 12.8 where the release is unknown")
def _cuda_needed(view: View) -> str:
    return view.text("plan.cuda_of_release") or "12.8"


@derived("plan.driver_branch", "int", "", "oldest driver branch that runs this release's kernels")
def _driver_branch(view: View) -> int | None:
    return int(_DRIVERS[view.text("plan.cuda_needed") or "12.8"])


@derived("derived.driver_behind", "bool", "", "the driver is older than the branch that this release's kernels need")
def _driver_behind(view: View) -> bool | None:
    driver = re.match(r"\d{3}", view.text("host.driver") or view.text("log.driver") or "")
    needed = view.integer("plan.driver_branch")
    return None if driver is None or needed is None else int(driver[0]) < needed


# --- the address it listens on ---------------------------------------------------------------------------------------


@derived("derived.listens_on", "str", "", "address that the HTTP server binds; 0.0.0.0 where --host is not given")
def _listens_on(view: View) -> str | None:
    """None where there is no HTTP server of its own, or nothing says what it was started with."""
    server = view.text("launch.server")
    if server is not None:
        if server not in _SERVERS or view.value("launch.uds") is not None or view.flag("launch.headless"):
            return None
        return view.text("launch.host") or "0.0.0.0"
    log = view.objects.log
    if log is None or log.args is None:
        return None
    if log.args.get("uds") or log.args.get("headless"):
        return None
    return str(log.args.get("host") or "0.0.0.0")


@derived("derived.open_without_key", "bool", "", "reachable from other hosts, and no API key is asked for")
def _open_without_key(view: View) -> bool | None:
    address = view.text("derived.listens_on")
    if address is None:
        return None
    if _is_loopback(address) or _published_to_loopback(view):
        return False
    log, launch = view.objects.log, view.objects.launch
    if log is not None and log.args is not None and log.args.get("api_key"):
        return False
    keys = (view.value("launch.api_key"), view.value("env.VLLM_API_KEY"))
    if any(key not in (None, "") for key in keys):
        return False
    if launch is not None and launch.container is not None and launch.container.env_files:
        return None  # the key may be in there
    return True


def _is_loopback(address: str) -> bool:
    if address.strip().lower() == "localhost":
        return True
    try:
        return ip_address(address.strip().strip("[]")).is_loopback
    except ValueError:
        return False  # a host name: not known to be loopback


def _published_to_loopback(view: View) -> bool:
    """Whether a container can be reached from its own host only; docker run without a published port counts."""
    container = None if view.objects.launch is None else view.objects.launch.container
    if container is None or container.kind != "docker" or container.network == "host":
        return False
    return all(_is_loopback(port.rpartition(":")[0].rpartition(":")[0] or port) for port in container.ports)


@derived("derived.served_name", "str", "", "name under which clients reach the model")
def _served_name(view: View) -> str | None:
    """The first of --served-model-name, else what was given as the model (vllm/entrypoints/openai/cli_args.py)."""
    launch = view.objects.launch
    if launch is not None:
        flag = next((one for one in reversed(launch.flags) if one.name == "--served-model-name"), None)
        if flag is not None:
            return flag.values[0] if flag.values else flag.value
    return view.text("launch.model") or view.text("log.model")


# --- what the GPUs can do --------------------------------------------------------------------------------------------

_BEFORE_AMPERE = lazy_regex(
    r"\b(?:V100S?|T4|T10|P100|P40|P4|TITAN|RTX\s?20\d\d|2080|GTX\s?1\d\d\d|Quadro RTX)\b", re.IGNORECASE
)


@derived("derived.before_ampere", "bool", "", "the GPU's compute capability is below 8.0 (Volta, Turing and older)")
def _before_ampere(view: View) -> bool | None:
    capability = view.number("gpu.compute_capability")
    if capability is not None:
        return capability < 8.0
    name = view.text("gpu.name") or view.text("log.gpu_name")
    return None if name is None else _BEFORE_AMPERE.search(name) is not None


@derived("derived.dropped_by_cuda13", "bool", "", "the wheels for CUDA 13 have no code for this GPU (Volta and older)")
def _dropped_by_cuda13(view: View) -> bool | None:
    """vLLM's wheels are for CUDA 13 from 0.20 on (torch 2.11), and CUDA 13 ended support below capability 7.5."""
    capability = view.number("gpu.compute_capability")
    cuda = view.text("plan.cuda_of_release")
    return None if capability is None or cuda is None else cuda == "13.0" and capability < 7.5


@derived("derived.card_stated", "bool", "", "the kind of GPU is known")
def _card_stated(view: View) -> bool:
    return (view.text("gpu.name") or view.text("log.gpu_name")) is not None


@derived("derived.fp8", "bool", "", "the weights are FP8, by the launch or the model's name")
def _fp8(view: View) -> bool | None:
    if "fp8" in (view.text("launch.quantization") or view.text("log.quantization") or "").lower():
        return True
    name = view.text("launch.model") or view.text("log.model")
    return None if name is None else "fp8" in name.lower()


# --- hangs -----------------------------------------------------------------------------------------------------------

_AFTER_NCCL = lazy_regex(
    r"vLLM is using nccl==|Found nccl from library|NCCL version \d|rank \d+ in world size \d+ is assigned"
)


@derived("derived.stops_at_nccl", "bool", "", "the log ends where the GPUs were to make their first contact")
def _stops_at_nccl(view: View) -> bool | None:
    log = view.objects.log
    if log is None:
        return None
    said = [line for line in log.tail if line.strip() and "shared memory broadcast block" not in line]
    return bool(said) and _AFTER_NCCL.search(said[-1]) is not None


@derived("derived.distributed", "bool", "", "one launch runs over several hosts")
def _distributed(view: View) -> bool:
    return (view.integer("derived.nodes") or 1) > 1 or view.value("launch.node_rank") is not None


@derived("derived.docker", "bool", "", "started by docker run or compose, as against Kubernetes or no container")
def _docker(view: View) -> bool | None:
    container = None if view.objects.launch is None else view.objects.launch.container
    return None if container is None else container.kind in ("docker", "compose")


@derived("derived.fork_asked", "bool", "", "nothing asks for spawned worker processes")
def _fork_asked(view: View) -> bool:
    return view.text("env.VLLM_WORKER_MULTIPROC_METHOD") in (None, "fork")


@derived("derived.ray_dp_counts_wrong", "bool", "", "a release that makes a placement group for every node with room")
def _ray_dp_counts_wrong(view: View) -> bool:
    """0.9.2-0.22.1 (vllm/v1/engine/utils.py): only the inner of two loops ends. An unknown release counts as such."""
    version = view.version("version.vllm")
    return version is None or Version("0.9.2") <= version < Version("0.23.dev0")


# --- which GPUs and which port ---------------------------------------------------------------------------------------


def _visible(view: View) -> tuple[str, ...] | None:
    text = view.text("env.CUDA_VISIBLE_DEVICES")
    return None if text is None else tuple(part.strip() for part in text.strip("\"' ").split(",") if part.strip())


@derived("derived.visible_gpus", "int", "", "number of GPUs that CUDA_VISIBLE_DEVICES lets the server see")
def _visible_gpus(view: View) -> int | None:
    entries = _visible(view)
    return None if not entries or entries[0].lower() in ("all", "none", "-1") else len(entries)


@derived("derived.visible_beyond", "str", "", "entry of CUDA_VISIBLE_DEVICES that names no GPU of this host")
def _visible_beyond(view: View) -> str | None:
    """Only where all GPUs of the host are known, that is, read from it or stated as more than are made visible."""
    entries, count = _visible(view), view.integer("gpu.count")
    if entries is None or count is None or len(set(entries)) == count:
        return None  # as many as are named: the statement lists the visible ones
    return next((entry for entry in entries if entry.isdigit() and int(entry) >= count), None)


@derived("derived.too_few_visible", "bool", "", "the launch needs more GPUs than CUDA_VISIBLE_DEVICES shows")
def _too_few_visible(view: View) -> bool | None:
    visible, world = view.integer("derived.visible_gpus"), view.integer("effective.world_size")
    if visible is None or world is None or view.flag("derived.distributed"):
        return None
    if (view.text("launch.distributed_executor_backend") or "") == "ray":
        return None
    return world > visible


@derived("plan.next_port", "int", "", "a port beside the one that is taken")
def _next_port(view: View) -> int | None:
    port = view.integer("match.port") or view.integer("launch.port") or 8000
    return port + 1 if 0 < port < 65535 else None
