"""Languages: which one to speak, and the program's own words in it (rules bring theirs along)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache

from qvl_doctor.resources import data_text

LANGUAGES = ("en", "zh")


def language_of(environment: Mapping[str, str] | None = None) -> str:
    """ "zh" where the locale is Chinese, else "en". As in POSIX, LC_ALL goes before LC_MESSAGES before LANG."""
    variables = os.environ if environment is None else environment
    locale = next((variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


@cache
def _table(language: str) -> Mapping[str, str]:
    return tomllib.loads(data_text(f"text.{language}.toml"))


def words(language: str, key: str, **values: object) -> str:
    """The text of `key` in that language with its values. Raises KeyError for an unknown key."""
    return _table(language)[key].format(**values)
