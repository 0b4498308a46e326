"""Languages: which one to speak, and the program's own words in it (rules bring theirs along).

Imports little: `--help` has to know the language too.
"""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False  # as typing's own, without the milliseconds that importing it costs
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qvl_doctor.core.phrase import Phrase

LANGUAGES = ("en", "zh")
_BETWEEN = {"en": "; ", "zh": "；"}  # the parts of a list


def language_of(environment: Mapping[str, str] | None = None) -> str:
    """ "zh" where the locale is Chinese, else "en". As in POSIX, LC_ALL goes before LC_MESSAGES before LANG."""
    variables = os.environ if environment is None else environment
    locale = next((variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def language_asked(argv: Sequence[str]) -> str:
    """The language for help and wrong usage, when the arguments are not understood yet: `--lang`, else the locale."""
    asked = language_of()
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        value = following if word == "--lang" else word.removeprefix("--lang=")
        if value in LANGUAGES and word.startswith("--lang"):
            asked = value
    return asked


@cache
def table(language: str) -> Mapping[str, str]:
    """All texts of a language by their keys."""
    from qvl_doctor.sources.tables import data_table  # noqa: PLC0415 - most runs of --help need no text of the tables

    return data_table(f"text.{language}.toml")


def words(language: str, key: str, /, **values: object) -> str:
    """The text of `key` in that language with its values. Raises KeyError for an unknown key."""
    return table(language)[key].format(**{name: _spoken(language, value) for name, value in values.items()})


def said(language: str, phrase: Phrase) -> str:
    """The phrase in that language."""
    return words(language, phrase.key, **phrase.values)


def _spoken(language: str, value: object) -> object:
    from qvl_doctor.core.phrase import Phrase  # noqa: PLC0415

    if isinstance(value, Phrase):
        return said(language, value)
    if isinstance(value, tuple):
        return _BETWEEN[language].join(str(_spoken(language, part)) for part in value)
    return value
