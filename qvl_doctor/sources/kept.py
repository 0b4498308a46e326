"""What takes long to work out and is kept in the user's own cache folder, to be read in milliseconds next time.

A kept file begins with what it was worked out from, so that none is taken for another's. It is data (nothing in
it is executed), may be deleted at any time, and that it cannot be read or written costs time only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from qvl_doctor import __version__
from qvl_doctor.core.records import record

_FORM = "2"  # of the kept files; raised when what is worked out changes
_FILES_KEPT = 8  # of one kind; older ones are removed


@record
class Kept:
    """One outcome: where it is kept (None: there is no cache folder), and what it is worked out from."""

    path: Path | None
    ingredients: str

    def read(self, *, lines: int | None = None) -> list[str] | None:
        """The lines of the outcome, or its first few; None where it is not kept."""
        if self.path is None:
            return None
        try:
            with self.path.open(encoding="utf-8") as stream:
                if stream.readline() != self.ingredients:
                    return None
                return list(stream) if lines is None else [stream.readline() for _ in range(lines)]
        except (OSError, ValueError):
            return None

    def write(self, lines: Iterable[str]) -> None:
        """Keeps an outcome; a reader sees all of it or nothing."""
        if self.path is None:
            return
        import tempfile  # noqa: PLC0415 - not needed where all is kept already

        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False, encoding="utf-8") as stream:
                stream.write(self.ingredients)
                stream.writelines(f"{line}\n" for line in lines)
            Path(stream.name).replace(self.path)
            kind = self.path.name.partition("-")[0]
            others = sorted(folder.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime)
            for other in others[:-_FILES_KEPT]:
                other.unlink(missing_ok=True)
        except OSError:
            return


def kept(kind: str, ingredients: Iterable[str]) -> Kept:
    """What was worked out from these ingredients; `kind` is a word of letters."""
    whole = json.dumps([__version__, _FORM, *ingredients]) + "\n"
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and str(Path(os.environ["HOME"]) / ".cache"))
    if not base or not Path(base).is_absolute():
        return Kept(None, whole)
    return Kept(Path(base) / "qvl-doctor" / f"{kind}-{crc32(whole.encode()):08x}.json", whole)
