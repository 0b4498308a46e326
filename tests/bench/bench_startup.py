"""CPU time of one short run of each kind, as a multiple of a bare interpreter measured in between.

    python tests/bench/bench_startup.py [ROUNDS]

User plus system time of the whole process, best of ROUNDS (15), all kinds in turn within each round so that a busy
machine hits them alike; bytecode is cached by a first run of each. Judge the ratios: milliseconds are the machine's.
Goals: `--help` within 3 times bare, `diagnose --command` within that and 50 ms, a short log within 350 ms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # run as a script

from tests.cli.harness import COMMAND, FAILED_LOG, doctor_argv, environment  # noqa: E402


def cpu_seconds(argv: list[str]) -> float:
    """User plus system time of one process and its children, from start to exit."""
    with Path(os.devnull).open("w") as nothing:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=nothing, stderr=nothing, env=environment())
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0  # reaped above
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        log.write_text(FAILED_LOG)
        kinds = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "--help": doctor_argv("--help"),
            "diagnose --command": doctor_argv("diagnose", "--command", COMMAND),
            "diagnose --log (8 lines)": doctor_argv("diagnose", "--log", str(log)),
            "rules list": doctor_argv("rules", "list"),
        }
        for argv in kinds.values():
            cpu_seconds(argv)
        best = dict.fromkeys(kinds, float("inf"))
        for _ in range(rounds):
            for name, argv in kinds.items():
                best[name] = min(best[name], cpu_seconds(argv))
    bare = best["python -c pass"]
    print(f"{'run':28}{'CPU ms':>8}{'x bare':>8}   best of {rounds}, Python {sys.version.split()[0]}")
    for name, seconds in best.items():
        print(f"{name:28}{seconds * 1000:8.0f}{seconds / bare:8.2f}")


if __name__ == "__main__":
    main()
