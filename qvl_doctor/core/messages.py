"""Message templates: `{fact}` is filled in; `[[ … {fact} … ]]` is left out where one of its facts is unknown."""

from __future__ import annotations

import re

from qvl_doctor.core.facts import View
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.masking import masked

_PLACEHOLDER = lazy_regex(r"\{([a-z]+(?:\.[A-Za-z0-9_]+)+)\}")
_OPTIONAL = lazy_regex(r"\[\[(.*?)\]\]", re.DOTALL)
_SHOWN_CHARACTERS = 300  # of one filled-in value


def placeholders(template: str) -> frozenset[str]:
    """Names of all facts that the template mentions."""
    return frozenset(_PLACEHOLDER.findall(template))


def required_placeholders(template: str) -> frozenset[str]:
    """Names of the facts without which the template cannot be filled in (those outside optional segments)."""
    return placeholders(_OPTIONAL.sub("", template))


def filled(template: str, view: View) -> str:
    """The template with its facts, secrets in them masked; what is unknown outside an optional segment reads "?"."""

    def optional(segment: re.Match[str]) -> str:
        return "" if any(view.value(name) is None for name in placeholders(segment[1])) else segment[1]

    def value(mark: re.Match[str]) -> str:
        text = view.text(mark[1])
        return "?" if text is None else masked(text[:_SHOWN_CHARACTERS])

    return _PLACEHOLDER.sub(value, _OPTIONAL.sub(optional, template)).strip()


def value_of(template: str, view: View) -> str | None:
    """An edit's value: the template filled in whole, or None where a fact is unknown."""
    if any(view.value(name) is None for name in placeholders(template)):
        return None
    return _PLACEHOLDER.sub(lambda mark: view.text(mark[1]) or "", template)


def without_marks(template: str) -> str:
    """The template for reading without facts: optional segments in brackets, placeholders by their short names."""
    return _PLACEHOLDER.sub(lambda mark: f"<{mark[1].rpartition('.')[2]}>", _OPTIONAL.sub(r"(\1)", template))
