"""Writes what the READMEs' first command prints into their first `text` block.

    python scripts/update_readme.py            # after a change of a rule's text or of the layout of reports

The test `tests/docs/test_docs.py` fails where the two differ.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "en", "README.zh.md": "zh"}
_COMMAND = re.compile(r"qvl-doctor (diagnose .*)")
_OUTPUT = re.compile(r"(^```text\n).*?(^```$)", re.MULTILINE | re.DOTALL)


def printed(arguments: list[str], language: str) -> str:
    """What `qvl-doctor ARGUMENTS` prints in a pipe, 100 columns wide."""
    done = subprocess.run(
        [sys.executable, "-m", "qvl_doctor", *arguments, "--lang", language],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,  # 1: there are findings
    )
    if done.returncode not in {0, 1}:
        raise SystemExit(f"the command of the README ended with status {done.returncode}")
    return done.stdout.strip("\n")


def main() -> None:
    for page, language in PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        command = _COMMAND.search(text)
        assert command is not None, f"{page} shows no diagnose command"
        output = re.sub(r"[ \t]+$", "", printed(shlex.split(command[1]), language), flags=re.MULTILINE)
        text = _OUTPUT.sub(lambda block, output=output: f"{block[1]}{output}\n{block[2]}", text, count=1)  # type: ignore[misc]
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
