"""Articles: every command on the page is checked, and each corrected one passes the check itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.harness import REPOSITORY, doctor

FOLDER = REPOSITORY / "samples" / "commands"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "articles.json").read_text(encoding="utf-8"))


def faults(findings: list[dict[str, Any]]) -> list[str]:
    """ "rule flag" of each finding at warning or above that is no risk; the flag is the one its first edit names."""
    serious = [one for one in findings if one["severity"] != "info" and not one["risk"]]
    return [f"{one['rule']} {one['edits'][0]['name']}" for one in serious]


@pytest.mark.parametrize("page", sorted(EXPECTED))
def test_each_command_is_reported_by_its_line(page: str) -> None:
    outcome = doctor(
        "diagnose", "--json", "--command-file", str(FOLDER / page), "--vllm-version", EXPECTED[page]["vllm"]
    )
    found = [
        {"line": int(command["where"].rpartition(":")[2]), "faults": faults(command["findings"])}
        for command in outcome.document["commands"]
    ]
    assert found == EXPECTED[page]["commands"]


@pytest.mark.parametrize("page", sorted(EXPECTED))
def test_corrected_commands_have_no_flag_fault_left(page: str) -> None:
    version = EXPECTED[page]["vllm"]
    outcome = doctor("diagnose", "--json", "--command-file", str(FOLDER / page), "--vllm-version", version)
    for command in outcome.document["commands"]:
        if not command["changed"]:
            continue
        text = command["after"].replace("\n> ", "\n")  # a quoted block of Markdown
        again = doctor("diagnose", "--json", "--command", text, "--vllm-version", version)
        assert faults(again.document["findings"]) == [], text
