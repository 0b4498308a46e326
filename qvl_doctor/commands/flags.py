"""`qvl-doctor flags`: what a release or installation accepts, and one flag's history."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from qvl_doctor.commands.inputs import style_of
from qvl_doctor.commands.result import Result
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.safe_text import printable
from qvl_doctor.core.vllm.knowledge import Knowledge
from qvl_doctor.core.vllm.report import flag_history_document, flags_document, never_existed_document
from qvl_doctor.errors import DoctorError
from qvl_doctor.render import Style
from qvl_doctor.sources import processes, vllm_facts
from qvl_doctor.text import words

_VALUE_CHARACTERS = 60  # of a default or a list of choices


def run(arguments: argparse.Namespace) -> Result:
    """The flags of a release or installation, or one flag's history."""
    style = style_of(arguments)
    known = _knowledge(arguments)
    if arguments.flag is not None:
        return _history(known, arguments.flag, style)
    remarks: tuple[Phrase, ...] = ()
    if known.basis == "nearest" and arguments.vllm_version:
        remarks = (Phrase("version_nearest", {"version": arguments.vllm_version, "release": known.release}),)
    return Result(lambda: flags_document(known), lambda: _flags_text(flags_document(known), style), remarks=remarks)


def _knowledge(arguments: argparse.Namespace) -> Knowledge:
    path = arguments.vllm_path
    if arguments.pid is not None:
        path = processes.running(arguments.pid).interpreter
    if path is None:
        return vllm_facts.knowledge(arguments.vllm_version)
    known = vllm_facts.knowledge_from_path(Path(path))
    if known is None:
        raise DoctorError("error_no_installation", hint="hint_installation", path=printable(str(path)))
    return known


def _history(known: Knowledge, flag: str, style: Style) -> Result:
    name = flag if flag.startswith("-") else f"--{flag}"
    name = name.partition("=")[0].replace("_", "-")
    document = flag_history_document(known, name) or never_existed_document(known, name, style.language)
    if document["since"] is None and document["why"] is None:  # not even one of those that advice is full of
        raise DoctorError("error_no_flag", name=printable(flag))
    return Result(lambda: document, lambda: _history_text(document, style))


def _flags_text(document: dict[str, Any], style: Style) -> str:
    flags = document["flags"]
    names = [" ".join((flag["name"], *flag["aliases"])) for flag in flags]
    width = min(max((len(name) for name in names), default=0), 44)
    lines = [style.paint(f"vLLM {printable(document['vllm_version'])} ({document['knowledge']})", "bold")]
    for name, flag in zip(names, flags, strict=True):
        facts = [_kind(flag), *([_default(flag)] if flag["default"] is not None else [])]
        if flag["deprecated"]:
            facts.append(words(style.language, "flag_deprecated"))
        lines.append(printable(f"{name:<{width}}  {'; '.join(facts)}", keep_newlines=False))
    return "\n".join(lines)


def _kind(flag: dict[str, Any]) -> str:
    if flag["choices"]:
        return _short("{" + ",".join(map(str, flag["choices"])) + "}")
    return "switch" if flag["value"] == "bool" else str(flag["form"])


def _default(flag: dict[str, Any]) -> str:
    return _short(f"= {json.dumps(flag['default'], ensure_ascii=False)}")


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


def _history_text(document: dict[str, Any], style: Style) -> str:
    language = style.language
    lines = [style.paint(printable(document["name"], keep_newlines=False), "bold")]
    if document["since"] is None:
        lines.append(f"  {words(language, 'flag_never')}")
        lines += [f"  {printable(document['why'])}"] if document["why"] else []
        lines += [f"  → {printable(str(document['replaced_by']))}"] if document["replaced_by"] else []
        return "\n".join(lines)
    until = document["until"] or words(language, "flag_newest")
    since = f"≤ {document['since']}" if document["since_or_earlier"] else document["since"]
    lines.append(f"  {since} – {until}")
    if document["deprecated_since"]:
        lines.append(f"  {words(language, 'flag_deprecated')}: {document['deprecated_since']}")
    if document["replaced_by"]:
        lines.append(f"  → {printable(str(document['replaced_by']))}")
    for span in document["spans"]:
        facts = [_kind(span), *([_default(span)] if span["default"] is not None else [])]
        if span["aliases"]:
            facts.append(" ".join(span["aliases"]))
        lines.append(printable(f"  {span['first']} – {span['last']}: {'; '.join(facts)}", keep_newlines=False))
    return "\n".join(lines)
