"""Arguments written for the shell, in the style of what they replace."""

from __future__ import annotations

import json
import re

from qvl_doctor.core.lazy_regex import lazy_regex

_BARE = lazy_regex(r"[A-Za-z0-9_@%+=:,./~-]+")
_IN_DOUBLE = lazy_regex(r'(["\\$`])')


def quoted(value: str, like: str = "") -> str:
    """`value` as one shell argument; `like` is the text whose quoting style is kept where it can be."""
    style = like[:1]
    if style == '"' and not re.search(r'["\\$`!]', value):
        return f'"{value}"'
    if style == '"' and '\\"' in like and "!" not in value:
        return '"' + _IN_DOUBLE.sub(r"\\\1", value) + '"'
    if style not in ("'", '"') and _BARE.fullmatch(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    if "!" not in value:
        return '"' + _IN_DOUBLE.sub(r"\\\1", value) + '"'
    return "'" + value.replace("'", "'\\''") + "'"


def compact_json(value: str) -> str:
    """JSON without blanks, so that it passes through YAML's plain scalars; any other text as it is."""
    if value[:1] not in ("{", "["):
        return value
    try:
        return json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return value
