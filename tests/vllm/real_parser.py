"""Asks the vLLM that this interpreter has; the oracle tests run it in vLLM's own environment, never in ours.

python real_parser.py table            the options of `vllm serve`, as JSON
python real_parser.py parse < FILE     FILE is a JSON list of argument lists; for each: null, or the parser's error
"""

import argparse
import contextlib
import io
import json
import sys
from importlib import import_module


def build() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of the command `vllm` with its `serve`, and that one alone."""
    serve = import_module("vllm.entrypoints.cli.serve")  # only vLLM's own interpreter has it
    utilities = import_module("vllm.utils.argparse_utils")
    root = utilities.FlexibleArgumentParser(prog="vllm")
    return root, serve.ServeSubcommand().subparser_init(root.add_subparsers(dest="subparser"))


def describe(action: argparse.Action) -> dict[str, object]:
    """What one action takes."""
    return {
        "options": list(action.option_strings),
        "nargs": action.nargs,
        "choices": None if action.choices is None else [c for c in action.choices if c is not None],
        "default": action.default if isinstance(action.default, (str, int, float, bool, list)) else None,
        "type": getattr(action.type, "__name__", str(action.type)),
    }


def attempt(root: argparse.ArgumentParser, arguments: list[str]) -> str | None:
    """The error that the parser ends with, None if it takes the arguments."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            root.parse_args(["serve", *arguments])
    except SystemExit:
        lines = errors.getvalue().strip().splitlines()
        return lines[-1] if lines else "exit"
    except Exception as error:  # the parser raises ValueError and more, on purpose
        return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    """Print one line of JSON, behind whatever importing vLLM prints."""
    root, parser = build()
    if sys.argv[1] == "table":
        actions = [describe(a) for a in parser._actions if a.option_strings]
        result: object = {"actions": actions, "every": sorted(parser._option_string_actions)}
    else:
        result = [attempt(root, arguments) for arguments in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
