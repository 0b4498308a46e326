"""GPUs: what a card can do, how much memory the driver grants, and reading what people write ("4x A100 80GB").

The table of cards is data (`data/gpus.toml`), handed in as the parsed document; nothing here reads a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record, replace

GIB: Final = 1 << 30
MIB: Final = 1 << 20

MemoryBasis = Literal["driver", "derived", "assumed", "stated", "measured"]
"""driver: a figure the driver prints for this card; derived: worked out from the box's size; assumed: the card is sold
in several sizes and none was written; stated: only what the user wrote; measured: read from the machine itself."""

_MAX_TEXT: Final = 400
_MAX_CARDS: Final = 1024


@record
class GpuModel:
    """One row of the table: a card as sold."""

    name: str
    aliases: tuple[str, ...]
    vendor: str
    size_gb: int
    memory_total_bytes: int
    memory_usable_bytes: int | None
    memory_basis: MemoryBasis
    compute_capability: float | None
    nvlink: bool


@record
class Gpu:
    """One GPU of a machine. `memory_usable_bytes` is the total that CUDA grants (the one that
    --gpu-memory-utilization multiplies); `memory_total_bytes` the one that nvidia-smi prints."""

    name: str | None = None
    vendor: str = "nvidia"
    memory_total_bytes: int | None = None
    memory_usable_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_basis: MemoryBasis | None = None
    compute_capability: float | None = None
    nvlink: bool | None = None
    mig: str | None = None

    @property
    def cuda(self) -> bool:
        return self.vendor == "nvidia"

    @property
    def bf16(self) -> bool | None:
        """bfloat16 arithmetic (compute capability 8.0); None where the card is unknown."""
        return None if self.compute_capability is None else self.compute_capability >= 8.0

    @property
    def fp8(self) -> bool | None:
        """FP8 arithmetic (8.9); below that vLLM runs FP8 weights as weight-only, if at all."""
        return None if self.compute_capability is None else self.compute_capability >= 8.9

    @property
    def fp4(self) -> bool | None:
        """FP4 arithmetic (10.0)."""
        return None if self.compute_capability is None else self.compute_capability >= 10.0

    @property
    def budget_base_bytes(self) -> int | None:
        """Bytes that a memory fraction is taken of; where CUDA's own total is unknown, estimated from the driver's."""
        if self.memory_usable_bytes is not None:
            return self.memory_usable_bytes
        return None if self.memory_total_bytes is None else usable_estimate(self.memory_total_bytes)


def usable_estimate(total_bytes: int) -> int:
    """CUDA's total from the driver's: the known cards lose 0.7-1.0 % above 40 GiB and 1.4-1.9 % below."""
    return int(total_bytes * (0.991 if total_bytes >= 40 * GIB else 0.983))


def gpu_models(table: Mapping[str, object]) -> tuple[GpuModel, ...]:
    """The rows of a parsed `gpus.toml`; raises ValueError naming the row that is not well formed."""
    rows = table.get("gpu")
    if not isinstance(rows, list):
        raise ValueError("gpus.toml: no [[gpu]] entries")
    return tuple(_model(row) for row in rows)


def _model(row: Mapping[str, object]) -> GpuModel:
    name, aliases, mib = row.get("name"), row.get("aliases"), row.get("memory_mib")
    basis, usable, capability = row.get("memory_from"), row.get("usable_gib"), row.get("compute_capability")
    if not (isinstance(name, str) and isinstance(aliases, list) and isinstance(mib, int)):
        raise ValueError(f"gpus.toml: incomplete entry {name!r}")
    if basis not in ("driver", "derived"):
        raise ValueError(f"gpus.toml: {name}: memory_from must be driver or derived")
    return GpuModel(
        name=name,
        aliases=(*(str(alias) for alias in aliases), _plain(name)),
        vendor=str(row.get("vendor", "nvidia")),
        size_gb=_integer(row.get("gb"), name),
        memory_total_bytes=mib * MIB,
        memory_usable_bytes=int(usable * GIB) if isinstance(usable, (int, float)) else None,
        memory_basis="driver" if basis == "driver" else "derived",
        compute_capability=float(capability) if isinstance(capability, (int, float)) else None,
        nvlink=bool(row.get("nvlink", False)),
    )


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"gpus.toml: {name}: gb must be a whole number")
    return value


def gpu_from_model(model: GpuModel) -> Gpu:
    return Gpu(
        name=model.name,
        vendor=model.vendor,
        memory_total_bytes=model.memory_total_bytes,
        memory_usable_bytes=model.memory_usable_bytes,
        memory_basis=model.memory_basis,
        compute_capability=model.compute_capability,
        nvlink=model.nvlink,
    )


def gpu_from_facts(facts: Mapping[str, object], models: Sequence[GpuModel]) -> Gpu:
    """A GPU as the facts file gives it (name, memory_total_mib, memory_used_mib, compute_capability), completed from
    the table. What was read from the machine stands above the table. Odd values are dropped, nothing raises."""
    name = facts.get("name")
    known = parse_gpus(name, models) if isinstance(name, str) else ()
    gpu = known[0] if known else Gpu()
    if isinstance(name, str):
        gpu = replace(gpu, name=name[:120])
    total = _number(facts.get("memory_total_mib"))
    if total is not None and total > 0:
        known_total = gpu.memory_total_bytes
        same_card = known_total is not None and abs(known_total - total * MIB) < 0.02 * known_total
        gpu = replace(
            gpu,
            memory_total_bytes=int(total * MIB),
            memory_usable_bytes=gpu.memory_usable_bytes if same_card else None,
            memory_basis="measured",
        )
    used = _number(facts.get("memory_used_mib"))
    if used is not None and used >= 0:
        gpu = replace(gpu, memory_used_bytes=int(used * MIB))
    capability = _number(facts.get("compute_capability"))
    return gpu if capability is None else replace(gpu, compute_capability=capability)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if -1e12 < number < 1e12 else None


# --- reading what people write -------------------------------------------------------------------------------------

_PREFIX = r"(?:(?:nvidia|geforce|rtx|gtx|tesla|quadro|amd|instinct|radeon|ascend|huawei|atlas|intel)[\s_-]{0,3}){0,4}"
_SIZE = lazy_regex(
    r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s{0,2}(gib|gb|g)(?![a-z0-9.])(?!\s{0,2}(?:ram|ddr|shm|disk|host|内存))"
)
_SIZE_MIB = lazy_regex(r"(?<![\w.])(\d{4,7})\s{0,2}(?:mib|mb)(?![a-z])")
_USABLE = lazy_regex(r"(?<![\w.])(\d{1,3}\.\d{1,2})\s{0,2}gib")
_MIG = lazy_regex(r"(?<![\w.])(\d{1,2}c\.)?(\d)g\.(\d{1,3})gb")
_OF = lazy_regex(r"(?<![\w.])(\d{1,4})\s{1,3}of\s{1,3}(?:the\s{1,3})?(\d{1,4})\s{0,2}(?:x|gpus?|cards?)?(?=\s|$)")
_NODES = lazy_regex(
    r"(?<![\w.])(\d{1,3})\s{0,2}(?:nodes?|machines?|hosts?|servers?|台|机|节点)(?![a-z])\s{0,2}(?:x|of|with|each)?"
)
_LEADING = lazy_regex(r"(?<![\w.])((?:\d{1,3}\s{0,2}x\s{0,2}){1,3})(?!\s*$)|(?<![\w.])(\d{1,3})\s{0,2}x\s*$")
_TRAILING = lazy_regex(r"(?:\s{0,2}x\s{0,2}|:)(\d{1,3})\s{0,2}$")
_UNITS = lazy_regex(r"(?<![\w.])(\d{1,4})\s{0,2}(?:(gpus?|cards?)(?![a-z])|(npus?)(?![a-z])|[卡张块片个])")
_BARE = lazy_regex(r"^\s{0,3}(\d{1,3})\s{1,3}(?=[a-z])")
_NARROW: Final = str.maketrans("×✕*（），：", "xxx(),:", "®™")
_WORDS: Final = {"单": 1, "一": 1, "双": 2, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "八": 8, "十六": 16}
_WORD = lazy_regex("(" + "|".join(sorted(_WORDS, key=len, reverse=True)) + ")(?=[卡张块片个台机])")


@record
class _Group:
    """What one comma-separated part says."""

    count: int | None
    gpu: Gpu | None  # named, or with a size only
    named: bool
    size_gb: float | None
    mig: str | None
    npu: bool = False


def parse_gpus(text: str, models: Sequence[GpuModel]) -> tuple[Gpu, ...]:
    """One `Gpu` for each card that the text names; () where it names none ("not stated", "any").

    Of alternatives ("8x A100 80GB / 8x H800 80GB") the first is taken. Never raises.
    """
    plain = _plain(text[:_MAX_TEXT])
    first = re.split(r"(?<!\bw)/(?!o\b)|\bor\b|或", plain, maxsplit=1)[0]
    notes = " ".join(re.findall(r"\(([^()]*)\)", first))
    usable = _USABLE.search(notes) or _USABLE.search(first)
    body = re.sub(r"\([^()]*\)", " ", first)
    cards: list[tuple[int, Gpu]] = []
    for part in re.split(r"\s?[,;、+]\s?|\band\b|和", body):
        _add(cards, _group(part, models))
    mig = _MIG.search(notes)
    if mig and cards:
        cards[-1] = (cards[-1][0], _as_mig(cards[-1][1], mig))
    if usable and cards:
        cards = [(count, _with_usable(gpu, float(usable[1]))) for count, gpu in cards]
    return tuple(_spread(cards))


def _plain(text: str) -> str:
    """Lower case, ASCII signs for the usual full-width ones, the count words of Chinese as digits."""
    return _WORD.sub(lambda found: str(_WORDS[found[1]]), text.translate(_NARROW).lower())


def _add(cards: list[tuple[int, Gpu]], group: _Group) -> None:
    """Append a group's cards, or let it say more about the ones before ("RTX 3090, 24GB each", "H100, MIG 2g.20gb")."""
    if cards and not group.named and group.count is None:
        count, gpu = cards[-1]
        if group.mig is not None:
            found = _MIG.search(group.mig)
            cards[-1] = (count, _as_mig(gpu, found) if found else gpu)
        elif group.size_gb is not None and gpu.memory_total_bytes is None:
            cards[-1] = (count, _with_size(gpu, group.size_gb))
        return
    if group.gpu is not None:
        cards.append((group.count or 1, group.gpu))
    elif group.count is not None:
        cards.append((group.count, Gpu(vendor="npu") if group.npu else Gpu()))


def _spread(cards: Iterable[tuple[int, Gpu]]) -> Iterable[Gpu]:
    left = _MAX_CARDS
    for count, gpu in cards:
        for _ in range(min(count, left)):
            yield gpu
        left -= min(count, left)


def _group(part: str, models: Sequence[GpuModel]) -> _Group:
    count, rest, npu = _count(part)
    rows, rest = _named(rest, models)
    if rows and count is None:
        trailing = _TRAILING.search(rest)
        if trailing:
            count, rest = int(trailing[1]), rest[: trailing.start()]
    mig = _MIG.search(rest)
    size = _size(rest if mig is None else rest[: mig.start()] + " " + rest[mig.end() :])
    gpu: Gpu | None = None
    if rows:
        gpu = _variant(rows, size)
        gpu = gpu if mig is None else _as_mig(gpu, mig)
    elif mig is None and size is not None:
        gpu = _with_size(Gpu(), size)
    count = None if count == 0 else count
    return _Group(count, gpu, bool(rows), size, mig[0] if mig else None, npu)


def _count(part: str) -> tuple[int | None, str, bool]:
    """Number of cards that a part states, the part without that, and whether it spoke of NPUs."""
    some = _OF.search(part)
    if some:
        return int(some[1]), part[: some.start()] + " " + part[some.end() :], False
    nodes, rest = 1, part
    machines = _NODES.search(part)
    if machines:
        nodes, rest = int(machines[1]), part[: machines.start()] + " " + part[machines.end() :]
    npu = False
    for pattern in (_LEADING, _UNITS, _BARE):
        found = pattern.search(rest)
        if found:
            npu = pattern is _UNITS and found[3] is not None
            number = math.prod(int(factor) for factor in re.findall(r"\d+", found[0]))
            return nodes * number, rest[: found.start()] + " " + rest[found.end() :], npu
    if machines:
        alone = re.fullmatch(r"\s*x?\s*(\d{1,4})\s*", rest)
        if alone:
            return nodes * int(alone[1]), " ", npu
    return (nodes if machines else None), rest, npu


def _named(text: str, models: Sequence[GpuModel]) -> tuple[tuple[GpuModel, ...], str]:
    """The rows whose name or alias stands in the text (the longest match wins) and the text without it."""
    best: tuple[int, int] | None = None
    rows: list[GpuModel] = []
    for model in models:
        for alias in model.aliases:
            span = _find_alias(text, alias)
            if span is None:
                continue
            length = span[1] - span[0]
            if best is None or length > best[1] - best[0]:
                best, rows = span, [model]
            elif span == best and model not in rows:
                rows.append(model)
    if best is None:
        return (), text
    return tuple(rows), text[: best[0]] + " " + text[best[1] :]


def _find_alias(text: str, alias: str) -> tuple[int, int] | None:
    words = alias.split()
    if not all(word in text for word in words):  # a cheap test before a pattern is built
        return None
    pattern = r"[\s_-]{0,3}".join(re.escape(word) for word in words)
    found = re.search(rf"(?<![a-z0-9.])({_PREFIX}{pattern})s?(?![a-wyz0-9]|x(?!\d)|\.\d)", text)
    return found.span(1) if found else None


def _size(text: str) -> float | None:
    found = _SIZE.search(text)
    if found:
        size = float(found[1])
        return size if 1 <= size <= 1024 else None
    mib = _SIZE_MIB.search(text)
    return int(mib[1]) / 1024 if mib and 1024 <= int(mib[1]) <= 1024 * 1024 else None


def _variant(rows: Sequence[GpuModel], size_gb: float | None) -> Gpu:
    """The row that the stated size means. A size that no row has (a modified card) replaces the row's memory."""
    if size_gb is None:
        gpu = gpu_from_model(rows[0])
        one_size = all(row.size_gb == rows[0].size_gb for row in rows)
        return gpu if one_size else replace(gpu, memory_basis="assumed")
    nearest = min(rows, key=lambda row: abs(row.size_gb - size_gb))
    gpu = gpu_from_model(nearest)
    if abs(nearest.size_gb - size_gb) <= max(2.0, 0.12 * nearest.size_gb):
        return gpu
    return _with_size(gpu, size_gb)


def _with_size(gpu: Gpu, size_gb: float) -> Gpu:
    return replace(gpu, memory_total_bytes=int(size_gb * GIB), memory_usable_bytes=None, memory_basis="stated")


def _with_usable(gpu: Gpu, usable_gib: float) -> Gpu:
    """A figure like "(23.69 GiB usable)" is CUDA's own total, if it is near the card's size."""
    usable = int(usable_gib * GIB)
    total = gpu.memory_total_bytes
    if total is not None and not 0.85 * total <= usable <= 1.02 * total:
        return gpu
    return replace(gpu, memory_usable_bytes=usable, memory_total_bytes=total or usable)


def _as_mig(gpu: Gpu, found: re.Match[str]) -> Gpu:
    """A MIG slice has the memory that its profile's name states, less some 2.5 % (NVIDIA's MIG user guide lists 19.50
    GiB for 2g.20gb, 4.75 for 1g.5gb); the other figures are the card's. Slices see no peer over NVLink."""
    profile = f"{found[2]}g.{found[3]}gb"
    total = int(int(found[3]) * GIB * 0.975)
    return replace(
        gpu, memory_total_bytes=total, memory_usable_bytes=None, memory_basis="derived", mig=profile, nvlink=False
    )
