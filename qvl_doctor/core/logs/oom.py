"""PyTorch's out-of-memory messages, of every wording since 1.13, on CUDA, ROCm and XPU."""

from __future__ import annotations

import re

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.lines import Line
from qvl_doctor.core.logs.model import OomReport

# A message must hold this to be a failed device allocation (host memory is another matter).
OOM_REGEX = r"\b(?:CUDA|HIP|XPU) (?:error: )?out of memory|\bOutOfMemoryError\b"

_SIZE = r"(\d[\d.]{0,24}) (bytes|[KMGT]i?B)"
_UNITS = {"bytes": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_IMPLAUSIBLE_BYTES = 2**44  # 16 TiB: PyTorch prints 17179869184.00 GiB where the driver tells it nothing

_DEVICE = lazy_regex(r"\b(CUDA|HIP|XPU) (?:error: )?out of memory")
_TRIED = lazy_regex(rf"Tried to allocate (?:more than )?{_SIZE}")
_TOTAL = lazy_regex(rf"has a total capac\w+ of {_SIZE}")
_FREE = lazy_regex(rf"of which {_SIZE} is free")
_GPU = lazy_regex(r"\bGPU (\d{1,3})\b")
_THIS = lazy_regex(rf"this process has {_SIZE} memory in use")
_OTHER = lazy_regex(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")
_PYTORCH = lazy_regex(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_POOL = lazy_regex(rf"with {_SIZE} allocated in private pools")
_RESERVED = lazy_regex(rf"and {_SIZE} is reserved by PyTorch but unallocated")
# Before PyTorch 2.1: (GPU 0; 23.69 GiB total capacity; 21.13 GiB already allocated; 14.06 MiB free; 21.46 GiB reserved
_OLD = lazy_regex(
    rf"\(GPU (?P<gpu>\d{{1,3}}); {_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free; {_SIZE} reserved"
)
_SAMPLER = lazy_regex(r"warming up (?:sampler|pooler) with (\d{1,7}) dummy requests")
_REACH = 6000  # characters of a message looked at


def size_bytes(number: str, unit: str) -> int | None:
    """Bytes of "13.67", "GiB"; None for what cannot be."""
    try:
        size = float(number) * _UNITS["bytes" if unit == "bytes" else unit[0]]
    except ValueError:
        return None
    return round(size) if size < _IMPLAUSIBLE_BYTES else None


def _size(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return size_bytes(found[1], found[2]) if found else None


def parse_oom(line: Line, *, where: str, text: str, phase: str, frames: tuple[str, ...]) -> OomReport:
    """The report in one line. `text` is the line as kept; `phase` where the start stood."""
    message = line.message[:_REACH]
    device = _DEVICE.search(message)
    gpu = _GPU.search(message)
    total, free = _size(_TOTAL, message), _size(_FREE, message)
    pytorch, reserved = _size(_PYTORCH, message), _size(_RESERVED, message)
    if (old := _OLD.search(message)) is not None:
        total, pytorch, free = (size_bytes(*old.group(n, n + 1)) for n in (2, 4, 6))
        all_reserved = size_bytes(*old.group(8, 9))
        reserved = max(0, all_reserved - pytorch) if all_reserved is not None and pytorch is not None else None
    sampler = _SAMPLER.search(message)
    return OomReport(
        where=where,
        text=text,
        phase=phase,
        device=device[1] if device else "CUDA",
        tried_bytes=_size(_TRIED, message),
        total_bytes=total,
        free_bytes=free,
        this_process_bytes=_size(_THIS, message),
        pytorch_bytes=pytorch,
        reserved_bytes=reserved,
        graph_pool_bytes=_size(_POOL, message),
        other_processes=tuple((int(pid), size_bytes(number, unit)) for pid, number, unit in _OTHER.findall(message)),
        gpu_index=int(gpu[1]) if gpu else None,
        sampler_requests=int(sampler[1]) if sampler else None,
        frames=frames,
        process=line.process,
    )
