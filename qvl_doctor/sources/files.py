"""Files as inputs: text with a bound, logs as a stream, facts as JSON. Errors are one line for the user."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from qvl_doctor.core.host import HostFacts, host_facts
from qvl_doctor.core.safe_text import printable
from qvl_doctor.errors import DoctorError

if TYPE_CHECKING:
    from qvl_doctor.core.logs import LogSummary
    from qvl_doctor.core.logs.rows import Rows

_TEXT_LIMIT_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20


def read_text(path: str, what: str) -> str:
    """A text file of at most 4 MiB ("-": standard input). Raises DoctorError."""
    with _opened(path, what) as stream:
        data = _read(stream, _TEXT_LIMIT_BYTES + 1, path, what)
    if len(data) > _TEXT_LIMIT_BYTES:
        raise DoctorError(
            f"{what} {printable(path)} is larger than 4 MiB", hint="give the file with the command itself"
        )
    if not data.strip():
        raise DoctorError(f"{what} {printable(path)} is empty")
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DoctorError(f"{what} {printable(path)} is a binary file", hint="give a text file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    # newline handling stays the caller's: the text is edited by span and must survive byte for byte
    return data.decode("utf-8-sig", errors="surrogateescape")


def read_log(path: str, rows: Rows) -> LogSummary:
    """Stream a log of any size through the reader. Raises DoctorError where it cannot be read or holds no text."""
    from qvl_doctor.core.logs import LogReader  # noqa: PLC0415 - many runs have no log

    name = "stdin" if path == "-" else Path(path).name
    reader = LogReader(rows, source=printable(name))
    with _opened(path, "log") as stream:
        while chunk := _read(stream, _CHUNK_BYTES, path, "log"):
            reader.feed(chunk)
            if reader.binary:
                break  # a device can go on for ever
    summary = reader.finish()
    if summary.lines <= len(summary.tail) and not any(line.strip() for line in summary.tail):
        raise DoctorError(
            f"log {printable(path)} is empty", hint="give the file that holds the server's output (stderr too)"
        )
    if reader.binary:
        raise DoctorError(f"log {printable(path)} is a binary file", hint="give the server's output as text")
    return summary


def read_facts(path: str) -> tuple[HostFacts, tuple[str, ...]]:
    """Host facts out of a JSON file and remarks on unknown keys. Raises DoctorError where it is not of that form."""
    text = read_text(path, "facts file")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError alone: a number of thousands of digits
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply or too large a number"
        raise DoctorError(f"facts file {printable(path)}{where} is not valid JSON: {reason}") from None
    facts, problems = host_facts(document)
    wrong = [problem for problem in problems if not problem.startswith("unknown key")]
    if wrong:
        raise DoctorError(f"facts file {printable(path)}: {'; '.join(wrong)}")
    return facts, problems


def _read(stream: BinaryIO, count: int, path: str, what: str) -> bytes:
    try:
        return stream.read(count)
    except OSError as error:
        raise _unreadable(path, what, error) from None


def _opened(path: str, what: str) -> BinaryIO:
    if path == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise DoctorError(f"{what}: standard input is closed or already read", hint="name a file")
        return sys.stdin.buffer
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise DoctorError(f"{what} {printable(path)} is a folder", hint="name a file in it")
        return Path(path).open("rb")
    except OSError as error:
        raise _unreadable(path, what, error) from None
    except ValueError:
        raise DoctorError(f"{what} {printable(path)} is no valid file name") from None


def _unreadable(path: str, what: str, error: OSError) -> DoctorError:
    return DoctorError(f"{what} {printable(path)} cannot be read: {error.strerror or type(error).__name__}")
