"""The inputs that commands share: rules, the launch command, the log, GPUs, host facts, release knowledge."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from qvl_doctor.core.diagnose import Context
from qvl_doctor.core.facts import as_version
from qvl_doctor.core.host import HostFacts, HostGpu
from qvl_doctor.core.launch import Document, LaunchCommand, YamlSupportMissing, parse_text
from qvl_doctor.core.observe import Observed
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import field, record, replace
from qvl_doctor.core.rules import Rule
from qvl_doctor.core.safe_text import printable
from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.errors import DoctorError
from qvl_doctor.render import Style
from qvl_doctor.sources import files, tables, vllm_facts
from qvl_doctor.sources.rule_store import load_rules, rows_of_rules
from qvl_doctor.text import language_of

if TYPE_CHECKING:
    from qvl_doctor.core.gpus import Gpu
    from qvl_doctor.core.logs import LogSummary
    from qvl_doctor.core.model import ModelSpec
    from qvl_doctor.sources.processes import RunningProcess

_MINIMUM_WIDTH, _DEFAULT_WIDTH, _MAXIMUM_WIDTH = 40, 100, 120


@record
class Gathered:
    """Everything a diagnosis needs, and remarks for the user."""

    observed: Observed
    context: Context
    document: Document | None
    recovered: bool
    remarks: tuple[Phrase, ...]


def style_of(arguments: argparse.Namespace) -> Style:
    """Language, width and colour for this run; colour only on a terminal and without NO_COLOR."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns if on_terminal else _DEFAULT_WIDTH
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(arguments.lang or language_of(), min(max(width, _MINIMUM_WIDTH), _MAXIMUM_WIDTH), colour)


def gather(arguments: argparse.Namespace, style: Style) -> Gathered:
    """Read everything the arguments name. Raises DoctorError for what cannot be read or is not vLLM's."""
    if not any((arguments.command, arguments.command_file, arguments.log, arguments.pid)):
        raise DoctorError("error_nothing", hint="hint_give_something")
    rules = load_rules(arguments.rules, with_log=arguments.log is not None)
    if arguments.ignore:
        unknown = set(arguments.ignore) - {rule.id for rule in load_rules(arguments.rules)}
        if unknown:
            raise DoctorError("error_ignored", hint="hint_rules_list", names=", ".join(sorted(unknown)))
    host, remarks = files.read_facts(arguments.facts) if arguments.facts else (HostFacts(), ())
    if arguments.pid is not None and (arguments.command or arguments.command_file):
        raise DoctorError("error_two_commands", hint="hint_leave_out_command")
    process = None if arguments.pid is None else _running(arguments.pid)
    if process is not None:
        host = replace(host, env={**process.env, **host.env})
    installation = arguments.vllm_path
    if installation is None and process is not None and process.interpreter is not None:
        # inside a container the path means another file system: shipped data has to do there
        installation = vllm_facts.find_sources(process.interpreter)
    log = None if arguments.log is None else files.read_log(arguments.log, rows_of_rules(rules))
    return assemble(
        rules,
        Given(
            command_text=_command_text(arguments) if process is None else process.command,
            command_name=_command_name(arguments) if process is None else f"process {process.pid}",
            log=log,
            host=host,
            gpu_text=arguments.gpu,
            version=arguments.vllm_version,
            vllm_path=None if installation is None else Path(installation),
            model=arguments.model,
            alone=log is None and not arguments.facts,
        ),
        style.language,
        frozenset(arguments.ignore),
        remarks=tuple(Phrase("remark_of_file", {"name": arguments.facts, "remark": remark}) for remark in remarks),
    )


@record
class Given:
    """What the user handed over, read but not yet understood."""

    command_text: str | None = None
    command_name: str = "command"
    log: LogSummary | None = None
    host: HostFacts = field(default_factory=HostFacts)
    gpu_text: str | None = None
    version: str | None = None
    vllm_path: Path | None = None
    model: str | None = None
    alone: bool = False  # the command is all there is, so it has to be one of vLLM's


def assemble(
    rules: Sequence[Rule], given: Given, language: str, ignore: frozenset[str], *, remarks: tuple[Phrase, ...] = ()
) -> Gathered:
    """Understand what was handed over: the command in its document, the release, the model, the GPUs."""
    notes = list(remarks)
    log = given.log
    version = given.version or given.host.packages.get("vllm")
    if version is None and log is not None and log.version is not None:
        version = str(log.version.value)
    if (parsed := as_version(version)) is not None and parsed < Version(vllm_facts.releases()[0]):
        notes.append(Phrase("remark_too_old", {"version": version}))
        given, version = replace(given, version=None), None
    knowledge = _knowledge(version, given.vllm_path)
    document = None if given.command_text is None else _document(given.command_text, given.command_name, knowledge)
    launch = document.commands[0] if document is not None and document.commands else None
    if version is None and launch is not None and launch.version is not None and given.vllm_path is None:
        # the image's tag says which release splits the arguments
        knowledge = _knowledge(launch.version, None)
        document = _document(launch.document, given.command_name, knowledge)
        launch = document.commands[0] if document.commands else None
    if given.command_text is not None and (launch is None or (given.alone and launch.server == "other")):
        if given.alone:
            raise DoctorError("error_no_launch", hint="hint_launch", name=printable(given.command_name))
        notes.append(Phrase("remark_no_launch", {"name": given.command_name}))
    if log is not None and log.lines and not log.facts and not log.matches and not log.failures:
        notes.append(Phrase("remark_other_log", {"name": log.source}))
    recovered = launch is None and log is not None and bool(log.args)
    if recovered and log is not None and log.args is not None:
        from qvl_doctor.core.recover import command_from_args  # noqa: PLC0415 - for logs only

        text = command_from_args(log.args, _defaults(knowledge))
        document = None if text is None else parse_text(text, name=f"arguments in {log.source}", grammar=knowledge)
        launch = document.commands[0] if document is not None and document.commands else None
    gpus = tables.parse_gpus(given.gpu_text) if given.gpu_text else tuple(_gpu(gpu) for gpu in given.host.gpus)
    if given.gpu_text and not gpus:
        notes.append(Phrase("remark_no_gpu", {"text": given.gpu_text}))
    observed = Observed(
        launch=launch,
        log=log,
        host=given.host,
        gpus=gpus,
        gpu_text=given.gpu_text,
        version=given.version,
        model=given.model,
    )
    context = Context(rules, knowledge, _model(given, launch, log), language, ignore)
    return Gathered(observed, context, document, recovered and launch is not None, tuple(notes))


def _running(pid: int) -> RunningProcess:
    from qvl_doctor.sources.processes import running  # noqa: PLC0415 - for --pid only

    return running(pid)


def _command_text(arguments: argparse.Namespace) -> str | None:
    if arguments.command is not None:
        if not arguments.command.strip():
            raise DoctorError("error_empty_command")
        return str(arguments.command)
    if arguments.command_file is not None:
        return files.read_text(arguments.command_file, files.COMMAND_FILE)
    return None


def _command_name(arguments: argparse.Namespace) -> str:
    if arguments.command_file in (None, "-"):
        return "command"
    return Path(arguments.command_file).name


def _document(text: str, name: str, knowledge: Knowledge) -> Document:
    try:
        return parse_text(text, name=printable(name), grammar=knowledge)
    except YamlSupportMissing:
        raise DoctorError("error_no_yaml", hint="hint_install_yaml", name=printable(name)) from None


def _knowledge(version: str | None, installation: Path | None) -> Knowledge:
    if installation is None:
        return vllm_facts.knowledge(version)
    known = vllm_facts.knowledge_from_path(installation)
    if known is None:
        raise DoctorError("error_no_installation", hint="hint_installation", path=printable(str(installation)))
    return known


def _defaults(knowledge: Knowledge) -> dict[str, object]:
    return {name.removeprefix("--").replace("-", "_"): flag.default for name, flag in knowledge.flags().items()}


def _gpu(gpu: HostGpu) -> Gpu:
    from qvl_doctor.core.gpus import MIB, gpu_from_facts  # noqa: PLC0415 - many runs are told of no GPU

    stated = {
        "name": gpu.name,
        "memory_total_mib": None if gpu.memory_total_bytes is None else gpu.memory_total_bytes / MIB,
        "memory_used_mib": None if gpu.memory_used_bytes is None else gpu.memory_used_bytes / MIB,
        "compute_capability": gpu.compute_capability,
    }
    return gpu_from_facts(stated, tables.gpu_models())


def _model(given: Given, launch: LaunchCommand | None, log: LogSummary | None) -> ModelSpec | None:
    name = given.model or (launch.model if launch is not None else None)
    if name is None and log is not None and (seen := log.facts.get("model")) is not None:
        name = str(seen.value)
    return None if name is None else tables.model_spec(name)
