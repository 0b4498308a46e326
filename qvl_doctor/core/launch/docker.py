"""`docker run OPTIONS IMAGE ARGUMENTS`: what the options give the container, and where each stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from qvl_doctor.core.launch.places import EnvPlace, EnvSlot, OptionPlace, OptionSlot, own_separator, removal, splice
from qvl_doctor.core.launch.quoting import quoted
from qvl_doctor.core.launch.values import ContainerFacts, Mount, Splice, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import field, record

_SWITCHES_TEXT = """
--detach --disable-content-trust --init --interactive --no-healthcheck --oom-kill-disable --privileged
--publish-all --quiet --read-only --rm --sig-proxy --tty --replace --use-api-socket
"""
_SWITCHES = frozenset(_SWITCHES_TEXT.split())
_SHORT = {
    "-e": "--env",
    "-v": "--volume",
    "-p": "--publish",
    "-m": "--memory",
    "-w": "--workdir",
    "-u": "--user",
    "-h": "--hostname",
    "-l": "--label",
    "-a": "--attach",
    "-c": "--cpu-shares",
}
_SHORT_SWITCHES = frozenset("ditPq")
_ALIASES = {"--net": "--network", "--shm_size": "--shm-size"}
_SIZE = lazy_regex(r"(\d{1,12}(?:\.\d{1,6})?)\s*([bkmgt]?)(i?b?)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_TAG = lazy_regex(r"v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?(?:\.?(?:post|rc|dev)\d{1,4})?)(?:[^\d.].*)?")


def size_bytes(text: str) -> int | None:
    """ "16g", "64m", "8Gi", "1073741824" in bytes; units are powers of 1024, as docker takes them."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else None


def image_version(image: str | None) -> str | None:
    """vLLM's version from an image such as vllm/vllm-openai:v0.8.5.post1; None where the tag does not say."""
    if not image:
        return None
    name = image.split("@", 1)[0]
    repository, _, last = name.rpartition("/")
    short, _, tag = last.partition(":")
    match = _TAG.fullmatch(tag)
    return match[1] if match and "vllm" in f"{repository}/{short}".lower() else None


def is_server_image(image: str) -> bool:
    """Whether the image's entry point is vLLM's API server, so that arguments follow directly."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0].lower()
    return name.startswith("vllm-openai") or name in (
        "vllm-cpu-release-repo",
        "vllm-cpu",
        "vllm-arm64-cpu-release-repo",
    )


@record
class Option:
    name: str  # long form
    value: str | None
    words: tuple[Word, ...]
    joined: bool  # --name=value or -eNAME=value


@record(frozen=False)
class ContainerRun:
    """A parsed `docker run`; `image` is None if it is missing."""

    options: list[Option] = field(default_factory=list)
    image: Word | None = None
    arguments: int = 0  # index of the first word behind the image
    last: Word | None = None  # before the image

    def values(self, name: str) -> list[str]:
        return [option.value for option in self.options if option.name == name and option.value is not None]

    def value(self, name: str) -> str | None:
        found = self.values(name)
        return found[-1] if found else None


def read_run(words: Sequence[Word], start: int) -> ContainerRun:
    """Options from `start` (behind `run`) on, up to the image."""
    run = ContainerRun(last=words[start - 1])
    index = start
    while index < len(words):
        word = words[index]
        if not word.value.startswith("-") or word.value == "-":
            if not word.value.strip():
                index += 1
                continue
            run.image = word
            run.arguments = index + 1
            return run
        index = _option(words, index, run)
    run.arguments = len(words)
    return run


def _option(words: Sequence[Word], index: int, run: ContainerRun) -> int:
    word = words[index]
    following = words[index + 1] if index + 1 < len(words) else None
    name, equals, value = word.value.partition("=")
    found: Option
    if not name.startswith("--"):
        letters = word.value[1:]
        if letters and set(letters) <= _SHORT_SWITCHES:
            found = Option(word.value, None, (word,), False)
        elif len(letters) > 1:
            found = Option(_SHORT.get(word.value[:2], word.value[:2]), letters[1:].removeprefix("="), (word,), True)
        else:
            found = _separate(_SHORT.get(word.value, word.value), word, following)
    elif equals:
        found = Option(_ALIASES.get(name, name), value, (word,), True)
    elif name in _SWITCHES:
        found = Option(name, None, (word,), False)
    else:
        found = _separate(_ALIASES.get(name, name), word, following)
    run.options.append(found)
    run.last = found.words[-1]
    return index + len(found.words)


def _separate(name: str, word: Word, following: Word | None) -> Option:
    if following is None or following.value.startswith("--"):
        return Option(name, None, (word,), False)
    return Option(name, following.value, (word, following), False)


def facts_of(run: ContainerRun) -> ContainerFacts:
    """What `docker run` gives the container."""
    gpus = run.value("--gpus")
    if gpus is None:
        devices = [value for value in run.values("--device") if "nvidia.com/gpu=" in value]
        gpus = ",".join(value.split("=", 1)[1] for value in devices) or None
    shm, memory = run.value("--shm-size"), run.value("--memory")
    return ContainerFacts(
        image=run.image.value if run.image else None,
        gpus=gpus.strip("\"'") if gpus else None,
        ipc=run.value("--ipc"),
        shm_size_bytes=size_bytes(shm) if shm else None,
        network=run.value("--network"),
        runtime=run.value("--runtime"),
        memory_limit_bytes=size_bytes(memory) if memory else None,
        ports=tuple(run.values("--publish")),
        mounts=tuple(mount for value in run.values("--volume") if (mount := mount_of(value))),
        env_files=tuple(run.values("--env-file")),
        entrypoint=run.value("--entrypoint"),
    )


def mount_of(value: str) -> Mount | None:
    """source:target[:mode]; None for what is not a pair."""
    parts = value.split(":")
    return Mount(parts[0], parts[1]) if len(parts) >= 2 and parts[1].startswith("/") else None


def environment(run: ContainerRun) -> dict[str, Word]:
    """Variables given with -e NAME=value, each with the word that it stands in."""
    found: dict[str, Word] = {}
    for option in run.options:
        if option.name == "--env" and option.value and "=" in option.value:
            found[option.value.partition("=")[0]] = option.words[-1]
    return found


def option_place(run: ContainerRun) -> OptionPlace:
    """Where docker's own options are replaced and added."""
    slots = tuple(
        OptionSlot(option.name, _writer(option), _remover(option))
        for option in run.options
        if option.name not in ("--env", "--volume", "--publish")
    )
    return OptionPlace(slots, lambda name, value: _add(run, name, value))


def env_place(run: ContainerRun) -> EnvPlace:
    """Where -e NAME=value is replaced and added."""
    slots = tuple(
        EnvSlot(name, value, _env_writer(option, name), _remover(option))
        for option in run.options
        if option.name == "--env" and option.value
        for name, _, value in [option.value.partition("=")]
    )
    return EnvPlace(slots, lambda name, value: _add_env(run, name, value))


def _writer(option: Option) -> Callable[[str | None], Splice | None]:
    first, last = option.words[0], option.words[-1]

    def write(value: str | None) -> Splice | None:
        if value is None:
            text = option.name
        elif option.joined:
            text = f"{option.name}={quoted(value)}"
        else:
            text = f"{first.raw} {quoted(value, last.raw if last is not first else '')}"
        return splice(first.layer, first.lstart, last.lend, text)

    return write


def _env_writer(option: Option, name: str) -> Callable[[str], Splice | None]:
    word = option.words[-1]
    lead = "-e" if option.joined and not word.raw.startswith("--") else "--env="

    def write(value: str) -> Splice | None:
        text = quoted(f"{name}={value}", word.raw)
        return splice(word.layer, word.lstart, word.lend, lead + text if option.joined else text)

    return write


def _remover(option: Option) -> Callable[[], Splice | None]:
    first, last = option.words[0], option.words[-1]
    return lambda: removal(first.layer, first.lstart, last.lend)


def _behind_options(run: ContainerRun, text: str) -> Splice | None:
    """Behind the last option, in the way (blank or continuation) in which the options are set apart."""
    last = run.last
    if last is None:
        return None
    separator = own_separator(last.layer, run.options[-1].words[0].lstart) if run.options else " "
    made = splice(last.layer, last.lend, last.lend, text)
    return None if made is None else Splice(made.start, made.end, separator + made.text)


def _add(run: ContainerRun, name: str, value: str | None) -> Splice | None:
    valued = [option for option in run.options if option.value is not None and option.words[0].raw.startswith("--")]
    joined = bool(valued) and all(option.joined for option in valued)
    text = name if value is None else f"{name}{'=' if joined else ' '}{quoted(value)}"
    return _behind_options(run, text)


def _add_env(run: ContainerRun, name: str, value: str) -> Splice | None:
    given = [option.words[0].raw for option in run.options if option.name == "--env"]
    lead = "--env" if given and all(raw.startswith("--env") for raw in given) else "-e"
    return _behind_options(run, f"{lead} {quoted(f'{name}={value}')}")
