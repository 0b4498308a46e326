"""Prints the option table of the vLLM that this interpreter has, as JSON; the oracle tests run it in vLLM's venv."""

import argparse
import json
import sys
from importlib import import_module


def describe(action: argparse.Action) -> dict[str, object]:
    """What one action takes."""
    kind = type(action).__name__
    return {
        "options": list(action.option_strings),
        "action": kind,
        "switch": action.nargs == 0,
        "nargs": action.nargs,
        "choices": None if action.choices is None else [c for c in action.choices if c is not None],
        "default": action.default if isinstance(action.default, (str, int, float, bool, list)) else None,
        "type": getattr(action.type, "__name__", str(action.type)),
    }


def main() -> None:
    """Build the parser of `vllm serve` and list its actions."""
    serve = import_module("vllm.entrypoints.cli.serve")  # only vLLM's own interpreter has it
    utilities = import_module("vllm.utils.argparse_utils")

    root = utilities.FlexibleArgumentParser()
    parser = serve.ServeSubcommand().subparser_init(root.add_subparsers(dest="subparser"))
    table = [describe(a) for a in parser._actions if a.option_strings]
    every = sorted(parser._option_string_actions)
    sys.stdout.write("\n" + json.dumps({"actions": table, "every": every}) + "\n")


if __name__ == "__main__":
    main()
