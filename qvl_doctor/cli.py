"""The command line: arguments in, one command run, its result printed. The only module that prints."""

from __future__ import annotations

import argparse
import os
import sys

from qvl_doctor import __version__
from qvl_doctor.errors import DoctorError, Exit
from qvl_doctor.text import language_asked, language_of, words

TYPE_CHECKING = False  # as typing's own, without the milliseconds that importing it costs
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO

    from qvl_doctor.commands.result import Result

_BROKEN_PIPE_STATUS = 128 + 13  # as a shell reports a program that SIGPIPE ended


def run(argv: Sequence[str]) -> int:
    """Parse, run, print; returns the exit status. A user's mistake is one line, never a traceback."""
    language, as_json = language_asked(argv), "--json" in argv  # as far as can be told before parsing
    try:
        arguments = _parsed(argv, language)
        language, as_json = arguments.lang or language_of(), arguments.json
        result = _command(arguments)(arguments)
        _print_result(result, language, as_json=as_json)
    except DoctorError as error:
        return _failed(error, language, as_json=as_json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader went away (`| head`)
        _drop_stdout()
        return _BROKEN_PIPE_STATUS
    except OSError as error:  # files are read behind a DoctorError: this is stdout itself
        _drop_stdout()
        from qvl_doctor.core.phrase import reason_of  # noqa: PLC0415

        return _failed(DoctorError("error_output", reason=reason_of(error)), language, as_json=False)
    return result.status


def _drop_stdout() -> None:
    """Points stdout at nothing, or the interpreter would try and complain once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(argv: Sequence[str], language: str) -> argparse.Namespace:
    arguments, rest = parser(language, argv[0] if argv else "").parse_known_args(argv)
    if rest and arguments.command_name == "flags" and arguments.flag is None and rest[0].startswith("-"):
        arguments.flag = rest.pop(0)  # `flags --max-model-len`: vLLM's flag, not ours
    if rest:
        raise DoctorError("usage_unrecognized", hint="hint_help", words=" ".join(rest), program="qvl-doctor")
    return arguments


def parser(language: str = "en", command: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of that one alone where it is named: making the others takes time.

    The help is written in English here; `help_zh` has it in Chinese.
    """
    top = (_ChineseParser if language == "zh" else _Parser)(
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
    commands = top.add_subparsers(dest="command_name", metavar="COMMAND", required=True)
    each = {"diagnose": _add_diagnose, "fix": _add_fix, "rules": _add_rules, "flags": _add_flags}
    for add in (each[command],) if command in each else each.values():
        add(commands)
    return top


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage as the program reports everything else: one line and what to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> Any:
        from qvl_doctor.usage import usage_error  # noqa: PLC0415

        raise usage_error(message, self.prog)

    def _print_message(self, message: str, file: Any = None) -> None:
        _say(message.removesuffix("\n"), file or sys.stderr)


class _ChineseParser(_Parser):
    """The same with Chinese help; so are the parsers of its commands."""

    def __init__(self, **options: Any) -> None:
        from qvl_doctor.help_zh import ChineseHelpFormatter  # noqa: PLC0415

        super().__init__(**options)
        self.formatter_class = ChineseHelpFormatter


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
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
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


def _print_result(result: Result, language: str, *, as_json: bool) -> None:
    for remark in result.remarks:
        _say(_shown(words(language, "remark_line", remark=remark)), sys.stderr)
    if as_json:
        _print_document(result.document())
    else:
        _say(result.text(), sys.stdout)
    sys.stdout.flush()


def _print_document(document: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 - not needed for text

    # ASCII escapes: safe for any terminal and encoding, and for text that was not valid UTF-8
    _say(json.dumps(document, indent=1), sys.stdout)


def _failed(error: DoctorError, language: str, *, as_json: bool) -> int:
    text, hint = _shown(error.text(language)), error.hint_text(language)
    key = "error_line" if hint is None else "error_line_with_hint"
    _say(_shown(words(language, key, error=text, hint=hint)), sys.stderr)
    if as_json:
        described = {"key": error.key, "error": text, "hint": hint and _shown(hint)}
        _print_document({"schema": "qvl-doctor/error/1", **described, "findings": []})
    return error.exit_code


def _shown(line: str) -> str:
    """One line without secrets and control characters."""
    from qvl_doctor.core.masking import masked  # noqa: PLC0415
    from qvl_doctor.core.safe_text import printable  # noqa: PLC0415

    return printable(masked(line), keep_newlines=False)


def _say(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, errors="replace").decode(encoding) + "\n")
