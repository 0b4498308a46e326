"""Which words start a server: vLLM's entry points, behind whatever wraps them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qvl_doctor.core.launch import docker
from qvl_doctor.core.launch.argv import is_flag
from qvl_doctor.core.launch.values import Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

if TYPE_CHECKING:
    from qvl_doctor.core.launch.command import Server

_PYTHON = lazy_regex(r"(?:python|pypy)(?:\d(?:\.\d+)?)?(?:\.exe)?")
_MODULES: dict[str, Server] = {
    "vllm.entrypoints.openai.api_server": "api_server",
    "vllm.entrypoints.api_server": "legacy",
    "vllm.entrypoints.cli.main": "serve",
    "vllm": "serve",
}
_SCRIPTS = lazy_regex(r"(?:^|/)vllm/entrypoints/(?P<openai>openai/)?api_server\.py$")
_SHELLS = lazy_regex(r"(?:ba|z|da|k|a)?sh")
_SPEAKERS_TEXT = """
echo printf grep egrep rg pkill pgrep killall which whereis man cat pip pip3 apt apt-get brew conda mamba git
curl wget ps awk sed type alias tail head less watch kill cd ls mkdir chmod touch rm cp mv source . set
"""
_SPEAKERS = frozenset(_SPEAKERS_TEXT.split())
_RUN_CONTAINER = frozenset(("docker", "podman", "nerdctl", "nvidia-docker"))


_WRAPPERS_TEXT = """
nohup sudo doas env exec time timeout nice ionice numactl taskset chrt stdbuf setsid unbuffer uv uvx poetry pipenv conda
mamba srun sbatch torchrun accelerate ray bash sh zsh tmux screen ssh docker podman nerdctl nvidia-docker kubectl
singularity apptainer nsys systemd-run proxychains proxychains4
"""
_WRAPPERS = frozenset(_WRAPPERS_TEXT.split())


ENV_WORD = lazy_regex(r"[A-Z_][A-Z0-9_]*=")
_INSTALLERS = frozenset(("pip", "pip3", "conda", "uv"))


def basename(value: str) -> str:
    return value.rsplit("/", 1)[-1].rsplit("\\", 1)[-1]


@record
class Program:
    """`words[start:end]` start a server; the rest are its arguments."""

    start: int
    end: int
    server: Server


def server_at(words: Sequence[Word], index: int) -> Program | None:
    """The vLLM entry point that begins at this word, if one does."""
    name = basename(words[index].value)
    following = words[index + 1].value if index + 1 < len(words) else ""
    if name in ("vllm", "vllm.exe") and following == "serve":
        return Program(index, index + 2, "serve")
    if _PYTHON.fullmatch(name):
        return _python_module(words, index)
    script = _SCRIPTS.search(words[index].value)
    if script:
        return Program(index, index + 1, "api_server" if script["openai"] else "legacy")
    return None


def _python_module(words: Sequence[Word], index: int) -> Program | None:
    for at in range(index + 1, min(index + 8, len(words))):
        value = words[at].value
        if value == "-m" and at + 1 < len(words):
            return _module(words, index, at)
        if _SCRIPTS.search(value):
            return Program(index, at + 1, "api_server" if "openai/" in value else "legacy")
        if not value.startswith("-"):
            return None
    return None


def _module(words: Sequence[Word], index: int, at: int) -> Program | None:
    server = _MODULES.get(words[at + 1].value)
    if server is None:
        return None
    end = at + 2
    if server == "serve":
        if end >= len(words) or words[end].value != "serve":
            return None
        end += 1
    return Program(index, end, server)


def wrappers_of(words: Sequence[Word]) -> tuple[str, ...]:
    """The wrappers among the words before a program, without their options."""
    return tuple(name for word in words if (name := basename(word.value)) in _WRAPPERS)[:10]


def find_server(words: Sequence[Word], start: int = 0) -> Program | None:
    """The first vLLM entry point from `start` on, whatever wraps it."""
    for index in range(start, len(words)):
        found = server_at(words, index)
        if found:
            return found
    return None


def find_container(words: Sequence[Word]) -> int | None:
    """The index behind `docker run`."""
    for index, word in enumerate(words[:-1]):
        if basename(word.value) in _RUN_CONTAINER:
            if words[index + 1].value in ("run", "create"):
                return index + 2
            if words[index + 1].value == "container" and index + 2 < len(words) and words[index + 2].value == "run":
                return index + 3
    return None


def find_nested(words: Sequence[Word], start: int = 0) -> int | None:
    """The index of the command text of `bash -c TEXT` and `eval TEXT`."""
    if len(words) == 2 and words[0].value == "eval":
        return 1
    for index in range(start, len(words)):
        if not _SHELLS.fullmatch(basename(words[index].value)):
            continue
        for at in range(index + 1, min(index + 5, len(words))):
            value = words[at].value
            if re.fullmatch(r"-[a-z]*c", value):
                return at + 1 if at + 1 < len(words) else None
            if not value.startswith("-"):
                break
    return None


def only_speaks(words: Sequence[Word]) -> bool:
    """Whether the command is about a server rather than one: `pkill -f "vllm serve"`, `echo …`."""
    return bool(words) and basename(words[0].value) in _SPEAKERS


def begins_another(words: Sequence[Word], index: int) -> bool:
    """Whether a new command begins at this word although no line ended: web pages lose line ends."""
    value = words[index].value
    following = words[index + 1].value if index + 1 < len(words) else ""
    if value.startswith("-"):
        return False
    if server_at(words, index) is not None:
        return True
    name = basename(value)
    if name in _RUN_CONTAINER and following in ("run", "exec", "pull", "compose"):
        return True
    if name in _INSTALLERS and following in ("install", "create", "activate", "pip", "add"):
        return True
    if value == "export" and re.match(r"[A-Za-z_]\w*=", following):
        return True
    return value == "curl" and (following.startswith(("-", "http", "localhost")))


def command_cuts(words: Sequence[Word]) -> list[int]:
    """Where further commands begin in words that stand on one line. One pass: each word is looked at once."""
    cuts: list[int] = []
    started = bool(words) and basename(words[0].value) in _INSTALLERS
    if only_speaks(words) and not started:
        return cuts
    index, inner_allowed = 0, False
    while index < len(words):
        if not begins_another(words, index) or (index == 0 and started):
            index += 1
            continue
        server = server_at(words, index)
        if started and not (inner_allowed and server is not None):
            cuts.append(_behind_assignments(words, index, cuts[-1] if cuts else 0))
        started = True
        inner_allowed = server is None and _runs_inner(words, index)
        index = server.end if server is not None else index + 1
    return cuts


def _runs_inner(words: Sequence[Word], index: int) -> bool:
    """Whether a `docker run` here names a command behind its image: arguments alone begin with a flag."""
    if basename(words[index].value) not in _RUN_CONTAINER or words[index + 1].value != "run":
        return False
    run = docker.read_run(words, index + 2)
    if run.image is None or run.arguments >= len(words) or is_flag(words[run.arguments].value):
        return False
    return server_at(words, run.arguments) is not None or not docker.is_server_image(run.image.value)


def _behind_assignments(words: Sequence[Word], cut: int, low: int) -> int:
    """The cut moved before the assignments that belong to what follows."""
    while cut > low + 1 and ENV_WORD.match(words[cut - 1].value):
        cut -= 1
    return cut
