"""Short ways to check a command in tests."""

from __future__ import annotations

import tomllib

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.facts import Objects, View
from qvl_doctor.core.launch import LaunchCommand, edited_command, parse_text
from qvl_doctor.core.model import model_spec, model_table
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.core.vllm.flag_problems import FlagProblem
from qvl_doctor.core.vllm.flags import check_flags
from qvl_doctor.resources import data_text
from qvl_doctor.sources import vllm_facts

TABLE = model_table(tomllib.loads(data_text("models.toml")))


def command_of(text: str, version: str | None) -> LaunchCommand:
    """The first command of a text, split by the release's own grammar."""
    return parse_text(text, grammar=vllm_facts.knowledge(version)).commands[0]


def problems_of(text: str, version: str | None = None, language: str = "en") -> tuple[FlagProblem, ...]:
    """The problems of the first command of a text."""
    load_all()
    known = vllm_facts.knowledge(version)
    command = command_of(text, version)
    spec = model_spec(command.model, TABLE) if command.model else None
    view = View(
        base_facts(Observed(launch=command, version=version)), Objects(launch=command, knowledge=known, model=spec)
    )
    return check_flags(command, known, view, language)


def kinds_of(text: str, version: str | None = None) -> list[str]:
    """The kinds of the problems, those without harm left out."""
    return [p.kind for p in problems_of(text, version) if p.detail.get("harmless") != "yes"]


def mended(text: str, version: str | None = None) -> str:
    """The command after all edits that are not for a person to decide."""
    edits = [e for p in problems_of(text, version) for e in p.edits if e.safety != "manual"]
    return edited_command(command_of(text, version), edits)
