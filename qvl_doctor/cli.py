"""The command line: arguments in, one command run, its result printed. The only module that prints."""

from __future__ import annotations

import argparse
import os
import sys

from qvl_doctor import __version__
from qvl_doctor.errors import DoctorError, Exit

TYPE_CHECKING = False  # as typing's own, without the milliseconds that importing it costs
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO

    from qvl_doctor.commands.result import Result

_BROKEN_PIPE_STATUS = 128 + 13  # as a shell reports a program that SIGPIPE ended


def run(argv: Sequence[str]) -> int:
    """Parse, run, print; returns the exit status. A user's mistake is one line, never a traceback."""
    try:
        arguments = _parsed(argv)
    except DoctorError as error:
        return _failed(error, as_json="--json" in argv)
    try:
        result = _command(arguments)(arguments)
        _print_result(result, as_json=arguments.json)
    except DoctorError as error:
        return _failed(error, as_json=arguments.json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader went away (`| head`)
        _drop_stdout()
        return _BROKEN_PIPE_STATUS
    except OSError as error:  # files are read behind a DoctorError: this is stdout itself
        _drop_stdout()
        return _failed(DoctorError(f"the result cannot be written: {error.strerror}"), as_json=False)
    return result.status


def _drop_stdout() -> None:
    """Points stdout at nothing, or the interpreter would try and complain once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    arguments, rest = parser().parse_known_args(argv)
    if rest and arguments.command_name == "flags" and arguments.flag is None and rest[0].startswith("-"):
        arguments.flag = rest.pop(0)  # `flags --max-model-len`: vLLM's flag, not ours
    if rest:
        raise DoctorError(f"unrecognized arguments: {' '.join(rest)}", hint="see qvl-doctor --help")
    return arguments


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = _Parser(
        prog="qvl-doctor",
        description="Finds out why Qwen-VL on vLLM does not start, dies, hangs or is slow.",
        epilog=(
            "examples:\n"
            "  qvl-doctor diagnose --log server.log --command-file start.sh\n"
            "  qvl-doctor diagnose --command 'vllm serve Qwen/Qwen2.5-VL-7B-Instruct' --gpu 'RTX 3090'\n"
            "  qvl-doctor fix --log server.log --command-file start.sh\n"
            "  qvl-doctor flags --vllm-version 0.11.2\n"
            "  qvl-doctor rules show max-len-exceeds-kv\n"
        ),
    )
    top.add_argument("--version", action="version", version=f"qvl-doctor {__version__}")
    commands = top.add_subparsers(dest="command_name", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_diagnose(commands)
    _add_fix(commands)
    _add_rules(commands)
    _add_flags(commands)
    return top


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as the program reports everything else: one line and what to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> Any:
        raise DoctorError(message, hint=f"see {self.prog} --help")


def _add_diagnose(commands: Any) -> None:
    command = commands.add_parser(
        "diagnose",
        help="what is wrong, the line that proves it, and the corrected command",
        description="Diagnoses a vLLM server from whatever is at hand: a log, a launch command, a word about the GPUs.",
        epilog=(
            "examples:\n"
            "  qvl-doctor diagnose --log server.log\n"
            "  docker logs vllm 2>&1 | qvl-doctor diagnose --log -\n"
            "  qvl-doctor diagnose --command-file docker-compose.yml --gpu '2x RTX 4090' --vllm-version 0.10.2\n"
            "  qvl-doctor diagnose --command-file article.md --json\n"
            "  qvl-doctor diagnose --command-file start.sh --explain-upgrade 0.8.5 0.33.0\n"
        ),
    )
    _add_inputs(command)
    command.add_argument(
        "--explain-upgrade", nargs=2, metavar=("OLD", "NEW"), help="what another vLLM release means for this command"
    )
    _add_output(command)


def _add_fix(commands: Any) -> None:
    command = commands.add_parser(
        "fix",
        help="the corrected launch command and the differences",
        description="Prints the corrected launch command with the differences. Nothing is changed.",
        epilog="examples:\n  qvl-doctor fix --log server.log --command-file start.sh\n",
    )
    _add_inputs(command)
    _add_output(command)


def _add_inputs(command: argparse.ArgumentParser) -> None:
    inputs = command.add_argument_group("what is at hand")
    launch = inputs.add_mutually_exclusive_group()
    launch.add_argument("--command", metavar="TEXT", help="the launch command")
    launch.add_argument(
        "--command-file",
        metavar="FILE",
        help="a script, compose file, manifest, systemd unit, vLLM YAML, Python or article (-: standard input)",
    )
    inputs.add_argument("--log", metavar="FILE", help="a vLLM log of any version and size (-: standard input)")
    inputs.add_argument("--pid", type=_pid, metavar="PID", help="a running server on this host")
    inputs.add_argument("--gpu", metavar="TEXT", help="the GPUs, as people write them: 'RTX 3090', '4x A100 80GB'")
    inputs.add_argument("--facts", metavar="FILE", help="facts about the host as JSON")
    inputs.add_argument("--vllm-version", metavar="V", help="vLLM's version, where neither log nor command tells")
    inputs.add_argument("--vllm-path", metavar="DIR", help="a vLLM installation to read flags and defaults from")
    inputs.add_argument("--model", metavar="ID", help="the model, where the command does not name it")
    rules = command.add_argument_group("rules")
    rules.add_argument("--rules", metavar="DIR", action="append", default=[], help="a folder with rules of your own")
    rules.add_argument("--ignore", metavar="ID", action="append", default=[], help="leave this rule out")


def _add_rules(commands: Any) -> None:
    command = commands.add_parser(
        "rules",
        help="list, show and test the rules",
        description="The rules, built in and your own.",
        epilog=(
            "examples:\n"
            "  qvl-doctor rules list\n"
            "  qvl-doctor rules show no-kv-memory --lang zh\n"
            "  qvl-doctor rules test ./my-rules\n"
        ),
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    listing = actions.add_parser("list", help="every rule with its title")
    showing = actions.add_parser("show", help="one rule: what it means, how it is seen, what mends it")
    showing.add_argument("id", metavar="ID")
    testing = actions.add_parser("test", help="check rule files and run their samples")
    testing.add_argument("path", metavar="PATH", nargs="?", help="a rule file or folder (default: the built-in rules)")
    for action in (listing, showing, testing):
        action.add_argument(
            "--rules", metavar="DIR", action="append", default=[], help="a folder with rules of your own"
        )
        _add_output(action)


def _add_flags(commands: Any) -> None:
    command = commands.add_parser(
        "flags",
        help="what a vLLM version accepts, and one flag's history",
        description="The flags of a vLLM release or installation; with a flag's name, its history over all releases.",
        epilog=(
            "examples:\n"
            "  qvl-doctor flags --vllm-version 0.11.2\n"
            "  qvl-doctor flags --vllm-path /opt/venv/lib/python3.12/site-packages/vllm\n"
            "  qvl-doctor flags --limit-mm-per-prompt\n"
        ),
    )
    command.add_argument("--vllm-version", metavar="V", help="the release (default: the newest known)")
    command.add_argument(
        "--vllm-path", metavar="DIR", help="an installation: site-packages/vllm, a virtual environment"
    )
    command.add_argument("--pid", type=_pid, metavar="PID", help="a running server: the installation that runs it")
    command.add_argument("flag", nargs="?", metavar="--FLAG", help="show this flag's history")
    _add_output(command)


def _add_output(command: argparse.ArgumentParser) -> None:
    output = command.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON document on stdout")
    output.add_argument("--lang", choices=("en", "zh"), help="language (default: from the locale)")
    output.add_argument("--verbose", action="store_true", help="also name the rules that lack a fact")


def _pid(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def _command(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], Result]:
    # Each command's own imports are loaded when it runs: --help and wrong usage stay instant.
    name = arguments.command_name
    if name == "diagnose" and arguments.explain_upgrade:
        from qvl_doctor.commands import upgrade  # noqa: PLC0415

        return upgrade.run
    if name in ("diagnose", "fix"):
        from qvl_doctor.commands import diagnose  # noqa: PLC0415

        return diagnose.run
    if name == "rules":
        from qvl_doctor.commands import rules  # noqa: PLC0415

        return rules.run
    from qvl_doctor.commands import flags  # noqa: PLC0415

    return flags.run


def _print_result(result: Result, *, as_json: bool) -> None:
    for remark in result.remarks:
        _say(f"qvl-doctor: {remark}", sys.stderr)
    if as_json:
        _print_document(result.document())
    else:
        _say(result.text(), sys.stdout)
    sys.stdout.flush()


def _print_document(document: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 - not needed for text

    # ASCII escapes: safe for any terminal and encoding, and for text that was not valid UTF-8
    _say(json.dumps(document, indent=1), sys.stdout)


def _failed(error: DoctorError, *, as_json: bool) -> int:
    from qvl_doctor.core.masking import masked  # noqa: PLC0415
    from qvl_doctor.core.safe_text import printable  # noqa: PLC0415

    line = printable(masked(f"qvl-doctor: {error.message}" + (f" ({error.hint})" if error.hint else "")))
    _say(line.replace("\n", " "), sys.stderr)
    if as_json:
        _print_document({"schema": "qvl-doctor/error/1", "error": error.message, "hint": error.hint, "findings": []})
    return error.exit_code


def _say(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, errors="replace").decode(encoding) + "\n")
