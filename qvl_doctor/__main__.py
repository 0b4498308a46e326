"""Entry point: `qvl-doctor` and `python -m qvl_doctor`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns its exit status."""
    from qvl_doctor.cli import run  # noqa: PLC0415 - nothing else is imported before arguments are known

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
