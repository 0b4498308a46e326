"""Files as inputs: text with a bound, logs as a stream, facts as JSON. Errors are one line for the user."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from qvl_doctor.core.host import UNKNOWN_KEY, HostFacts, host_facts
from qvl_doctor.core.phrase import Phrase, reason_of
from qvl_doctor.core.safe_text import printable
from qvl_doctor.errors import DoctorError

if TYPE_CHECKING:
    from qvl_doctor.core.logs import LogSummary
    from qvl_doctor.core.logs.rows import Rows

COMMAND_FILE = Phrase("input_command_file")
_LOG = Phrase("input_log")
_FACTS_FILE = Phrase("input_facts_file")

_TEXT_LIMIT_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20


def read_text(path: str, what: Phrase) -> str:
    """A text file of at most 4 MiB ("-": standard input); `what` names its part in errors. Raises DoctorError."""
    with _opened(path, what) as stream:
        data = _read(stream, _TEXT_LIMIT_BYTES + 1, path, what)
    if len(data) > _TEXT_LIMIT_BYTES:
        raise DoctorError("error_too_large", hint="hint_command_itself", what=what, path=printable(path))
    if not data.strip():
        raise DoctorError("error_empty", what=what, path=printable(path))
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DoctorError("error_binary", hint="hint_text_file", what=what, path=printable(path))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    # newline handling stays the caller's: the text is edited by span and must survive byte for byte
    return data.decode("utf-8-sig", errors="surrogateescape")


def read_log(path: str, rows: Rows) -> LogSummary:
    """Stream a log of any size through the reader. Raises DoctorError where it cannot be read or holds no text."""
    from qvl_doctor.core.logs import LogReader  # noqa: PLC0415 - many runs have no log

    name = "stdin" if path == "-" else Path(path).name
    reader = LogReader(rows, source=printable(name))
    with _opened(path, _LOG) as stream:
        while chunk := _read(stream, _CHUNK_BYTES, path, _LOG):
            reader.feed(chunk)
            if reader.binary:
                break  # a device can go on for ever
    summary = reader.finish()
    if summary.lines <= len(summary.tail) and not any(line.strip() for line in summary.tail):
        raise DoctorError("error_empty", hint="hint_log_file", what=_LOG, path=printable(path))
    if reader.binary:
        raise DoctorError("error_binary", hint="hint_log_text", what=_LOG, path=printable(path))
    return summary


def read_facts(path: str) -> tuple[HostFacts, tuple[Phrase, ...]]:
    """Host facts out of a JSON file and remarks on unknown keys. Raises DoctorError where it is not of that form."""
    text = read_text(path, _FACTS_FILE)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError alone: a number of thousands of digits
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else Phrase("json_beyond_bounds")
        place = f"{printable(path)}{where}"
        raise DoctorError("error_no_json", what=_FACTS_FILE, path=place, reason=reason) from None
    facts, problems = host_facts(document)
    wrong = tuple(problem for problem in problems if problem.key != UNKNOWN_KEY)
    if wrong:
        raise DoctorError("error_facts", what=_FACTS_FILE, path=printable(path), problems=wrong)
    return facts, problems


def _read(stream: BinaryIO, count: int, path: str, what: Phrase) -> bytes:
    try:
        return stream.read(count)
    except OSError as error:
        raise _unreadable(path, what, error) from None


def _opened(path: str, what: Phrase) -> BinaryIO:
    if path == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise DoctorError("error_stdin", hint="hint_name_file", what=what)
        return sys.stdin.buffer
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise DoctorError("error_folder", hint="hint_file_in_folder", what=what, path=printable(path))
        return Path(path).open("rb")
    except OSError as error:
        raise _unreadable(path, what, error) from None
    except ValueError:
        raise DoctorError("error_file_name", what=what, path=printable(path)) from None


def _unreadable(path: str, what: Phrase, error: OSError) -> DoctorError:
    return DoctorError("error_unreadable", what=what, path=printable(path), reason=reason_of(error))
