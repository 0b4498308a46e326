"""What is kept of a line's text, and what of it rules may look at."""

from __future__ import annotations

from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.logs.model import TEXT_LIMIT
from qvl_doctor.core.masking import masked

# Texts of a request inside an error's message: {'text': '...'}, prompt: '...'
_USER_TEXT = lazy_regex(
    r"""(?P<head>'(?:text|prompt|content)': ?|\bprompt[:=] ?)"""
    r"""(?:'(?:[^'\\]|\\.){0,4000}'?|"(?:[^"\\]|\\.){0,4000}"?)"""
)


def kept(text: str, around: str = "") -> str:
    """A bounded text with its secrets masked; of a long one the part where `around` stands."""
    if len(text) <= TEXT_LIMIT:
        return masked(text)
    start = text.find(around[:200]) if around else 0
    start = max(0, start - 200) if start > TEXT_LIMIT // 2 else 0
    # masked before it is cut, with room, so that no cut parts a secret's name from its value
    lead = min(start, 200)
    return masked(text[start - lead : start + TEXT_LIMIT + 200])[lead:][:TEXT_LIMIT]


def without_requests(message: str) -> str:
    """A message without the texts of requests that it quotes."""
    marks = "prompt:" in message or "prompt=" in message or "'prompt'" in message  # rarer than "prompt"
    if marks or "'text'" in message or "'content'" in message:
        return _USER_TEXT.sub(r"\g<head>'...'", message)
    return message


def bounded(message: str, limit: int) -> str:
    """Head and tail of a message, `limit` characters each."""
    return message if len(message) <= 2 * limit else f"{message[:limit]} {message[-limit:]}"
