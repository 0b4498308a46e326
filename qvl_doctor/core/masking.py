"""Secrets out of text: what is shown, recorded or logged passes through `masked` first.

Pure and line-agnostic: works on a command, a log line, a YAML file or a URL. Linear time; a cheap look for a
trigger word comes before the regexes, so clean lines cost next to nothing.
"""

from __future__ import annotations

import re

from qvl_doctor.core.lazy_regex import lazy_regex

MASK = "****"

# Any text that holds a secret in a form known below holds one of these (case-insensitively).
_TRIGGER = lazy_regex(
    r"key|token|secret|passw|authorization|bearer|sk-|hf_|gh[pousr]_|credential|://[^\s/@]{1,200}@", re.IGNORECASE
)

_VALUE = r"""(?:"[^"\n]{0,4096}"|'[^'\n]{0,4096}'|[^\s"'`,;)\]}<>|&]{1,4096})"""

# Between a flag and its value: "=", blanks, a comma (`["--api-key", "x"]`), a line end (`\` or the next list item).
_BREAK = r"""[ \t]{0,20}(?:\\?\r?\n[ \t]{0,80}(?:-[ \t]{1,20})?)"""
# Further values of a flag that takes several; a word with a slash is rather the model that follows.
_FURTHER = r"""(?:(?:[ \t]{1,20}|,\s{0,80}|[ \t]{0,20}\\\r?\n[ \t]{0,80}|\r?\n[ \t]{0,80}-[ \t]{1,20})
    (?:"(?!-)[^"\n/]{1,4096}"|'(?!-)[^'\n/]{1,4096}'|(?![-\\])[^\s"'`,;:=()[\]{}<>|&/]{1,4096}(?=[\s"'`,;)\]}<>|&]|\Z)))"""
_FLAG = lazy_regex(
    r"""(?P<name>(?<![A-Za-z0-9_.-])--?(?:[A-Za-z0-9_.]+[-_.]){0,4}
            (?:(?P<several>api[-_]?key)|token|secret|password|passwd)(?![A-Za-z0-9_.-]))
        (?P<gap>["']?(?:\s{0,3}=\s{0,3}|,\s{0,80}|"""
    + _BREAK
    + r"""|[ \t]{1,20}))
        (?P<value>(?!(?:-[ \t]{1,20})?--)"""
    + _VALUE
    + r""")(?P<further>(?(several)"""
    + _FURTHER
    + r"""{0,16}|))""",
    re.IGNORECASE | re.VERBOSE,
)
# A variable or key whose value is secret. The name is bounded, so that a long run of word characters cannot make the
# match quadratic.
_NAMED = lazy_regex(
    r"""(?P<name>(?<![A-Za-z0-9_.-])
            (?:[A-Za-z0-9]{1,40}[_-]){0,6}(?:TOKEN|SECRET|PASSWORD|PASSWD|API[_-]?KEY|ACCESS[_-]?KEY|SECRET[_-]?KEY)
            (?![A-Za-z0-9_.-]))
        (?P<gap>["']?\]?\s{0,3}(?:=|:)\s{0,3}(?P<list>\[\s{0,3})?|["']?\s{1,3})
        (?P<value>"""
    + _VALUE
    + r""")(?P<further>(?(list)(?:\s{0,3},\s{0,80}"""
    + _VALUE
    + r"""){0,64}|))""",
    re.IGNORECASE | re.VERBOSE,
)
_SPACED_ENV = lazy_regex(
    r"""(?P<head>\b(?:ENV|setenv|set[ ]-g?x)\s{1,3}[A-Za-z0-9_]{0,80}(?:TOKEN|SECRET|PASSWORD|API_?KEY|ACCESS_?KEY)
        [ \t]{1,3})(?P<value>"""
    + _VALUE
    + r")",
    re.IGNORECASE | re.VERBOSE,
)
_YAML_ENV = lazy_regex(
    r"""(?P<head>name:\s{0,3}["']?[A-Za-z0-9_]{0,80}(?:TOKEN|SECRET|PASSWORD|API_?KEY|ACCESS_?KEY)["']?\s{1,80}value:\s{0,3})
        (?P<value>"""
    + _VALUE
    + r")",
    re.IGNORECASE | re.VERBOSE,
)
_BEARER = lazy_regex(r"(?P<head>\b(?:Bearer|Basic)\s{1,3})(?P<value>[A-Za-z0-9._~+/=-]{4,4096})", re.IGNORECASE)
_TOKENS = lazy_regex(r"(?<![A-Za-z0-9_])(?:sk-|hf_|gh[pousr]_)[A-Za-z0-9_-]{8,512}")
_USERINFO = lazy_regex(r"(?P<head>://[^\s/:@]{1,100}:)(?P<value>[^\s/@]{1,200})(?=@)")

# What follows such a name without being a secret: a bare word after blanks must look like one.
_HARMLESS = lazy_regex(
    r"(?i:none|null|true|false|empty|\*+|\$\{?\w+\}?|<[^<>]*>|is|was|are|for|the|to|and|or|of|in|not)"
)


_EACH_VALUE = lazy_regex(_VALUE)


def _mask_named(match: re.Match[str]) -> str:
    name, gap, value = match["name"], match["gap"], match["value"]
    bare = value.strip("\"'")
    if not bare or _HARMLESS.fullmatch(bare) or (gap.isspace() and not name.startswith("-")):
        return match[0]
    if bare.startswith("--"):  # the next flag: this one has no value
        return match[0]
    if bare.lower() in ("bearer", "basic"):  # "token: Bearer abc": the scheme is kept, what follows is masked
        return match[0]
    return f"{name}{gap}{_mask_quoted(value)}{_EACH_VALUE.sub(lambda one: _mask_quoted(one[0]), match['further'])}"


def _mask_quoted(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{MASK}{quote}"


def _mask_value(match: re.Match[str]) -> str:
    return f"{match['head']}{_mask_quoted(match['value'])}"


def masked(text: str) -> str:
    """`text` with the values of secrets replaced by "****"; the same text if there is none."""
    if _TRIGGER.search(text) is None:
        return text
    text = _BEARER.sub(_mask_value, text)
    text = _YAML_ENV.sub(_mask_value, text)
    text = _SPACED_ENV.sub(_mask_value, text)
    text = _FLAG.sub(_mask_named, text)
    text = _NAMED.sub(_mask_named, text)
    text = _USERINFO.sub(_mask_value, text)
    return _TOKENS.sub(MASK, text)
