"""What takes long to work out and is kept in the user's own cache folder, to be read in milliseconds next time.

Each kept file's name holds a digest of all that it was worked out from. It is data (nothing in it is executed), may be
deleted at any time, and that it cannot be read or written costs time only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from qvl_doctor import __version__

_FORM = "2"  # of the kept files; raised when what is worked out changes
_FILES_KEPT = 8  # of one kind; older ones are removed


def kept_file(kind: str, ingredients: Iterable[str]) -> Path | None:
    """Where the outcome of these ingredients is kept; None where there is no cache folder."""
    from hashlib import sha256  # noqa: PLC0415

    base = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and str(Path(os.environ["HOME"]) / ".cache"))
    if not base or not Path(base).is_absolute():
        return None
    whole = "\0".join((__version__, _FORM, *ingredients))
    digest = sha256(whole.encode(errors="surrogateescape")).hexdigest()
    return Path(base) / "qvl-doctor" / f"{kind}-{digest[:24]}.json"


def read_kept(path: Path | None, *, lines: int | None = None) -> list[str] | None:
    """The lines of a kept file, or its first few; None where there is none."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as stream:
            return list(stream) if lines is None else [stream.readline() for _ in range(lines)]
    except (OSError, ValueError):
        return None


def keep(path: Path | None, lines: Iterable[str]) -> None:
    """Writes a kept file; a reader sees all of it or nothing."""
    if path is None:
        return
    import tempfile  # noqa: PLC0415 - not needed where all is kept already

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
        Path(stream.name).replace(path)
        others = sorted(path.parent.glob(f"{path.name.partition('-')[0]}-*.json"), key=lambda one: one.stat().st_mtime)
        for other in others[:-_FILES_KEPT]:
            other.unlink(missing_ok=True)
    except OSError:
        return
