"""A running server on this host, as /proc shows it: command line, environment, interpreter."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from qvl_doctor.core.phrase import reason_of
from qvl_doctor.core.records import record
from qvl_doctor.errors import DoctorError, Exit

_PROC = Path("/proc")
_LIMIT_BYTES = 1 << 20
# The environment holds secrets of all kinds; only what bears on vLLM is kept.
_KEPT_PREFIXES = ("VLLM_", "CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "HF_HUB_", "TRANSFORMERS_", "RAY_", "OMP_")
_KEPT = frozenset({"LD_LIBRARY_PATH", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "HF_ENDPOINT"})


@record
class RunningProcess:
    """One process; `interpreter` is the Python that runs it where that can be told."""

    pid: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    interpreter: Path | None

    @property
    def command(self) -> str:
        """The command line as one would type it."""
        return shlex.join(_as_typed(self.argv))


def running(pid: int) -> RunningProcess:
    """The process. Raises DoctorError (exit status 3) where there is none, or it cannot be looked at."""
    folder = _PROC / str(pid)
    if not _PROC.joinpath("self").exists():
        raise DoctorError("error_no_proc", exit_code=Exit.UNOBSERVABLE)
    try:
        argv = _words(folder / "cmdline")
    except FileNotFoundError:
        raise DoctorError("error_no_process", pid=pid, exit_code=Exit.UNOBSERVABLE) from None
    except OSError as error:
        reason = reason_of(error)
        raise DoctorError("error_process", pid=pid, reason=reason, exit_code=Exit.UNOBSERVABLE) from None
    argv = tuple(word for word in argv if word)
    if not argv:
        raise DoctorError("error_process_bare", pid=pid, exit_code=Exit.UNOBSERVABLE)
    return RunningProcess(pid, argv, _environment(folder), _interpreter(folder, argv))


def _words(path: Path) -> tuple[str, ...]:
    with path.open("rb") as stream:
        return tuple(stream.read(_LIMIT_BYTES).decode("utf-8", errors="replace").split("\0"))


def _environment(folder: Path) -> Mapping[str, str]:
    try:
        entries = [entry.partition("=") for entry in _words(folder / "environ")]
    except OSError:
        return {}  # another user's process: the command line alone has to do
    return {name: value for name, _, value in entries if name.startswith(_KEPT_PREFIXES) or name in _KEPT}


def _interpreter(folder: Path, argv: tuple[str, ...]) -> Path | None:
    first = Path(argv[0])
    if first.is_absolute() and "python" in first.name:
        return first  # its place says which environment it belongs to; the resolved file does not
    try:
        return (folder / "exe").readlink()
    except OSError:
        return None


def _as_typed(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`/venv/bin/python /venv/bin/vllm serve …` was typed as `vllm serve …`."""
    if len(argv) > 1 and "python" in Path(argv[0]).name and Path(argv[1]).name == "vllm":
        return ("vllm", *argv[2:])
    return argv
