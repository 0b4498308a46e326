"""Words for the user before a language is chosen: the key of a text and what stands in it (see `qvl_doctor.text`)."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from qvl_doctor.core.records import field, record

_FREQUENT = {errno.ENOENT: "os_missing", errno.EACCES: "os_forbidden", errno.ENOSPC: "os_full"}


@record
class Phrase:
    """A text of the tables; a value may be a phrase itself, or a tuple of phrases, which becomes a list."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)


def reason_of(error: OSError) -> Phrase | str:
    """Why the system refused: a phrase for what is frequent, else the system's own words."""
    key = None if error.errno is None else _FREQUENT.get(error.errno)
    return Phrase(key) if key is not None else error.strerror or type(error).__name__
