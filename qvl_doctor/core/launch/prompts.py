"""Prompts and quote marks before the commands that people copy from a terminal or a mail."""

from __future__ import annotations

from qvl_doctor.core.launch.values import Layer
from qvl_doctor.core.lazy_regex import lazy_regex

_PROMPT = lazy_regex(
    r"[ \t]{0,40}(?:>[ \t]?){0,8}(?:\([\w.@/-]{1,60}\)[ \t]{0,4}){0,2}"
    r"(?:[\w.-]{1,40}@[\w.-]{1,60}[: ][^\n$#%]{0,120}[$#%]|\$|>>>|\.\.\.)[ \t]+(?=\S)"
)
_QUOTED = lazy_regex(r"[ \t]{0,8}(?:>[ \t]?){1,8}")


def without_prompts(layer: Layer) -> Layer:
    """The layer without shell and Python prompts and quote marks at the starts of lines; itself if there are none."""
    text = layer.text
    cuts: list[tuple[int, int]] = []
    position = 0
    quoted = all(line.lstrip().startswith(">") for line in text.split("\n") if line.strip()) and ">" in text
    while position < len(text):
        newline = text.find("\n", position)
        prompt = _PROMPT.match(text, position) or (_QUOTED.match(text, position) if quoted else None)
        if prompt:
            cuts.append((position, prompt.end()))
        position = len(text) if newline < 0 else newline + 1
    if not cuts:
        return layer
    kept: list[tuple[int, int]] = []
    position = 0
    for start, end in cuts:
        kept.append((position, start))
        position = end
    kept.append((position, len(text)))
    starts = [layer.starts[at] for start, end in kept for at in range(start, end)]
    ends = [layer.ends[at] for start, end in kept for at in range(start, end)]
    return Layer("".join(text[start:end] for start, end in kept), starts, ends, layer.escape, layer.origin)
