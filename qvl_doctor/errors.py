"""Errors that are the user's to mend, and the exit statuses of every command."""

from __future__ import annotations

from enum import IntEnum

from qvl_doctor.text import words


class Exit(IntEnum):
    """Exit statuses; part of the public interface."""

    OK = 0  # nothing at `error` or above
    FINDINGS = 1  # at least one finding at `error` or above
    USAGE = 2  # wrong usage, or an input that cannot be read
    UNOBSERVABLE = 3  # what was asked about cannot be observed
    ROLLED_BACK = 4  # applied, failed, rolled back
    INTERRUPTED = 130


class DoctorError(Exception):
    """One line for the user: what is wrong and where; the hint says what to do about it.

    `key` and `hint` are keys of the text tables (`qvl_doctor.text`), `values` what stands in both texts. The line is
    put into words where it is printed; `str()` is the English one, without the hint.
    """

    def __init__(self, key: str, *, hint: str | None = None, exit_code: Exit = Exit.USAGE, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.hint = hint
        self.values = values
        self.exit_code = exit_code

    def text(self, language: str) -> str:
        """What is wrong, in that language."""
        return words(language, self.key, **self.values)

    def hint_text(self, language: str) -> str | None:
        """What to do about it."""
        return None if self.hint is None else words(language, self.hint, **self.values)

    def __str__(self) -> str:
        return self.text("en")
