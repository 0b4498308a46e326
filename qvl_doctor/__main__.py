"""Entry point: `qvl-doctor` and `python -m qvl_doctor`."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line; returns its exit status."""
    gc.set_threshold(100_000)  # a run is short and drops few cycles: collecting often was a sixth of its time
    from qvl_doctor.cli import run  # noqa: PLC0415 - nothing else is imported before arguments are known

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
