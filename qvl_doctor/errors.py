"""Errors that are the user's to mend, and the exit statuses of every command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses; part of the public interface."""

    OK = 0  # nothing at `error` or above
    FINDINGS = 1  # at least one finding at `error` or above
    USAGE = 2  # wrong usage, or an input that cannot be read
    UNOBSERVABLE = 3  # what was asked about cannot be observed
    ROLLED_BACK = 4  # applied, failed, rolled back
    INTERRUPTED = 130


class DoctorError(Exception):
    """One line for the user: what is wrong and where; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
