"""What a text is: by its file's name where that tells, else by what is in it."""

from __future__ import annotations

import re

from qvl_doctor.core.launch.command import Kind
from qvl_doctor.core.lazy_regex import lazy_regex

HINT = lazy_regex(
    r"\bvllm[ \t]{1,4}serve\b|\bvllm\.entrypoints\.|\b(?:docker|podman|nerdctl)[ \t]{1,4}run\b"
    r"|\b(?:LLM|EngineArgs|AsyncEngineArgs|AsyncLLM)\s{0,2}\(",
)
_HTML = lazy_regex(r"<(?:pre|code|p|div|html|body|br|span)\b[^<>]{0,1000}>", re.IGNORECASE)
CALL = lazy_regex(r"\b(?:LLM|EngineArgs|AsyncEngineArgs|AsyncLLM)\s{0,4}\(")
KNOWN_KEYS = frozenset(
    (
        "model",
        "host",
        "port",
        "served-model-name",
        "tensor-parallel-size",
        "max-model-len",
        "gpu-memory-utilization",
        "limit-mm-per-prompt",
        "mm-processor-kwargs",
        "max-num-seqs",
        "max-num-batched-tokens",
        "dtype",
        "quantization",
        "trust-remote-code",
        "enforce-eager",
        "uvicorn-log-level",
    )
)
_KUBERNETES = lazy_regex(r"^[ \t]{0,20}apiVersion:", re.MULTILINE)
_KIND = lazy_regex(r"^[ \t]{0,20}kind:", re.MULTILINE)
_COMPOSE = lazy_regex(r"^services:[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_SYSTEMD = lazy_regex(r"^\[(?:Unit|Service|Install)\][ \t]*\r?$", re.MULTILINE)
_DOCKERFILE = lazy_regex(r"^FROM[ \t]+\S+[^\n]*$", re.MULTILINE)
_DOCKERFILE_START = lazy_regex(r"^(?:CMD|ENTRYPOINT)[ \t]", re.MULTILINE)
_FENCE = lazy_regex(r"^[ \t>]{0,20}(?:```|~~~)", re.MULTILINE)
_PYTHON = lazy_regex(r"^(?:from[ \t]+\S+[ \t]+import|import[ \t]+\w)", re.MULTILINE)
_KEY_LINE = lazy_regex(r"(?P<key>[A-Za-z][\w.-]*):(?:[ \t]|\r?$)")
_PROSE = lazy_regex(
    r"^(?:#{1,6} \S"
    r"|[ \t]{0,3}(?:[-*+]|\d{1,2}[.)、]) [^\n]*`"
    r"|[ \t]{0,8}(?:[-*+>]|\d{1,2}[.)、])?[ \t]{0,4}(?:[A-Za-z][\w.-]{0,30}[ \t]?)?[\u4e00-\u9fff\u201c\u300a\u3010]"
    r"|[A-Z][a-z']{0,15} [a-z']{1,15} [^\n=]{3,400}[.:?!][ \t]*\r?$)",
    re.MULTILINE,
)
_SUFFIXES: dict[str, Kind] = {
    "py": "python",
    "service": "systemd",
    "md": "article",
    "markdown": "article",
    "html": "article",
    "htm": "article",
    "rst": "article",
    "sh": "shell",
    "bash": "shell",
    "yaml": "yaml",
    "yml": "yaml",
}


def kind_of(text: str, name: str) -> Kind:
    """The kind of a document; "yaml" is settled by the nodes."""
    base = name.rsplit("/", 1)[-1]
    suffix = base.rsplit(".", 1)[-1].lower() if "." in base else ""
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if base.lower().startswith(("dockerfile", "containerfile")) or suffix == "dockerfile":
        return "dockerfile"
    return kind_by_content(text)


def kind_by_content(text: str) -> Kind:
    """The kind of a text that has no telling name."""
    if _FENCE.search(text) or (looks_like_html(text) and HINT.search(text)):
        return "article"
    if _KUBERNETES.search(text) and _KIND.search(text):
        return "kubernetes"
    if _COMPOSE.search(text):
        return "compose"
    if _SYSTEMD.search(text):
        return "systemd"
    if _DOCKERFILE.search(text) and _DOCKERFILE_START.search(text):
        return "dockerfile"
    if _is_python(text):
        return "python"
    if _is_config(text):
        return "config"
    return "article" if _is_article(text) else "shell"


def looks_like_html(text: str) -> bool:
    return _HTML.search(text) is not None


def _is_python(text: str) -> bool:
    calls = CALL.search(text) is not None
    if calls and _PYTHON.search(text):
        return True
    if not calls and not (re.search(r"\bvllm\b", text) and re.search(r"[(\[]", text)):
        return False
    from qvl_doctor.core.launch.python_source import parse_python  # noqa: PLC0415 - few texts come this far

    return parse_python(text) is not None


def _is_config(text: str) -> bool:
    """Top-level lines are `flag: value`, and one of them is a flag that everybody knows."""
    known = False
    for line in text.split("\n")[:2000]:
        if not line.strip() or line[0] in " \t#-\r":
            continue
        match = _KEY_LINE.match(line)
        if match is None:
            return False
        known = known or match["key"].replace("_", "-") in KNOWN_KEYS
    return known


_HEADING = lazy_regex(r"#{2,6} \S")  # a single # may be a comment
_SCRIPT = lazy_regex(r"^[ \t]{0,8}(?:export[ \t]+)?[A-Za-z_]\w{0,60}=", re.MULTILINE)


def _is_article(text: str) -> bool:
    """Lines of talk around the commands. A shebang, or comments alone, make a script."""
    if text.startswith("#!"):
        return False
    headings = _SCRIPT.search(text) is None  # scripts that assign variables set their sections apart with ## too
    without_comments = "\n".join(
        line
        for line in text.split("\n")[:5000]
        if not line.lstrip().startswith("#") or (headings and _HEADING.match(line))
    )
    match = _PROSE.search(without_comments)
    return match is not None and HINT.search(text) is not None
