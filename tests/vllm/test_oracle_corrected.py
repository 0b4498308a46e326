"""Whatever the diagnosis corrects, vLLM's own parser takes: over the commands of every rule sample and sample file.

Run like `test_oracle.py`. Each command is judged as one for the release that is installed; the log of a sample belongs
to its own release and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qvl_doctor import resources
from qvl_doctor.commands.inputs import Given, assemble
from qvl_doctor.core.diagnose import diagnose
from qvl_doctor.core.host import host_facts
from qvl_doctor.core.launch import LaunchCommand, parse_text
from qvl_doctor.sources.rule_store import load_rules, read_rule
from tests.cli.harness import REPOSITORY
from tests.vllm.test_oracle import ask, installed

pytestmark = pytest.mark.oracle

OF_SERVE = ("serve", "api_server")
FOREIGN = "omni"  # a plug-in's flags have a parser of their own


def sample_commands() -> Iterator[tuple[str, str, str]]:
    """(where, text, GPUs) of every launch command that the samples hold."""
    for path in resources.rule_files(resources.rules_folder()):
        rule, problems = read_rule(path)
        assert rule is not None, problems
        for sample in rule.samples:
            if sample.launch:
                yield f"{rule.id} sample {sample.index + 1}", sample.launch, sample.gpu or ""
    for path in sorted((REPOSITORY / "samples" / "commands").iterdir()):
        if path.suffix != ".json":
            yield path.name, path.read_text(encoding="utf-8"), ""


def arguments_of(command: LaunchCommand) -> list[str]:
    """The command's arguments for `vllm serve`: the model first, then each flag as written."""
    model = [command.model] if command.model else []
    words = [[flag.spelled, *flag.values] for flag in command.flags if flag.name != "--model"]
    return [*model, *(word for group in words for word in group)]


def corrected() -> Iterator[tuple[str, list[str]]]:
    """Where each command stands and its arguments after the correction for the installed release."""
    release = installed().release
    rules = load_rules([], with_log=False)
    for where, text, gpu in sample_commands():
        host, _ = host_facts({})
        given = Given(command_text=text, command_name=where, host=host, gpu_text=gpu or None, version=release)
        gathered = assemble(rules, given, "en", frozenset())
        report = diagnose(gathered.observed, gathered.context, gathered.document)
        for one in report.commands:
            if one.not_editable is not None:
                continue
            again = parse_text(one.after, name=where, grammar=gathered.context.knowledge).commands
            if again and again[0].server in OF_SERVE and not again[0].strays and FOREIGN not in one.after:
                yield f"{where}: {one.after}", arguments_of(again[0])


def test_corrected_commands_are_taken_by_the_real_parser() -> None:
    commands = dict(corrected())
    assert len(commands) > 100
    errors = ask("parse", list(commands.values()))
    refused = {where: error for where, error in zip(commands, errors, strict=True) if error is not None}
    assert refused == {}
