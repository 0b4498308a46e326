"""Edits to splices to text. What the user wrote elsewhere stays, byte for byte; applied twice equals once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from qvl_doctor.core.findings import Edit
from qvl_doctor.core.launch.argv import FlagName, canonical
from qvl_doctor.core.launch.command import Document, LaunchCommand
from qvl_doctor.core.launch.grammar import arity_of, negation_of
from qvl_doctor.core.launch.values import Flag, Splice

CONTINUATION = "line-continuation"  # `set` of it puts the lines back that a missing backslash cut off
_TEXT_OPS = ("set", "unset", "rename", "env", "unset-env", "docker")


def edited_document(document: Document, command_index: int, edits: Sequence[Edit]) -> str:
    """The whole text after the edits of one command."""
    from qvl_doctor.core.launch.parse import parse_text  # noqa: PLC0415 - parsing needs the commands that hold this

    text = document.text
    for number, group in enumerate(_rounds(edits, document.commands[command_index])):
        if number:
            document = parse_text(text, name=document.name, grammar=document.grammar)
        if command_index >= len(document.commands):
            break
        text = spliced(text, command_splices(document.commands[command_index], group))
    return text


def edited_command(command: LaunchCommand, edits: Sequence[Edit]) -> str:
    """The command's own slice after the edits."""
    from qvl_doctor.core.launch.parse import parse_text  # noqa: PLC0415 - as above

    text, start, end = command.document, command.start, command.end
    for number, group in enumerate(_rounds(edits, command)):
        if number:
            found = parse_text(text, name=command.where.rpartition(":")[0] or "command", grammar=command.grammar)
            again = next((c for c in found.commands if c.start == start and c.server == command.server), None)
            if again is None:
                break
            command, end = again, again.end
        inside = [s for s in command_splices(command, group) if start <= s.start and s.end <= end]
        text = spliced(text, inside)
        end += sum(len(s.text) - (s.end - s.start) for s in inside)
    return text[start:end]


def spliced(text: str, splices: Sequence[Splice]) -> str:
    """`text` with all splices applied; of two that overlap, the later is dropped."""
    parts: list[str] = []
    position = 0
    for splice in sorted(splices, key=lambda s: (s.start, s.end)):
        if splice.start < position:
            if splice.end > position and not splice.text:  # neighbouring removals share the blanks between them
                position = splice.end
            continue
        parts.append(text[position : splice.start])
        parts.append(splice.text)
        position = splice.end
    parts.append(text[position:])
    return "".join(parts)


def _target(edit: Edit, command: LaunchCommand) -> tuple[str, str]:
    if edit.op in ("env", "unset-env"):
        return "env", edit.name
    if edit.op == "docker":
        return "docker", edit.name
    if edit.name == "model":  # may be given as --model: removing that and setting the model touch the same thing
        return "flag", "--model"
    name = canonical(edit.name, command.grammar).name
    lost = name == CONTINUATION or any(flag.name == name for flag in command.lost_flags)
    return ("lost", "") if lost else ("flag", name)


def _rounds(edits: Sequence[Edit], command: LaunchCommand) -> list[list[Edit]]:
    """Edits that do not touch the same thing go together; of two that say the same thing, the later holds."""
    rounds: list[list[Edit]] = [[]]
    touched: set[tuple[str, str]] = set()
    for edit in edits:
        if edit.op not in _TEXT_OPS:
            continue
        targets = {_target(edit, command)}
        if edit.op == "rename" and edit.value:
            targets.add(("flag", canonical(edit.value, command.grammar).name))
        if targets & touched:
            rounds.append([])
            touched = set()
        rounds[-1].append(edit)
        touched |= targets
    return [group for group in rounds if group]


def command_splices(command: LaunchCommand, edits: Sequence[Edit]) -> list[Splice]:
    """The changes of text that edits of different things make."""
    if not command.editable:
        return []
    found: list[Splice] = []
    for edit in edits:
        made = _one(command, edit)
        if made:
            found.extend(made)
    return _without_swallowed(found)


def _without_swallowed(splices: list[Splice]) -> list[Splice]:
    """Text appended where a removal ends would be torn from it: it moves to the removal's start."""
    removals = [s for s in splices if not s.text and s.end > s.start]
    moved: list[Splice] = []
    for splice in splices:
        at = splice.start
        if splice.start == splice.end:
            for _ in range(len(removals)):
                covering = next((r for r in removals if r.start < at <= r.end), None)
                if covering is None:
                    break
                at = covering.start
        moved.append(Splice(at, at, splice.text) if at != splice.start else splice)
    return moved


def _one(command: LaunchCommand, edit: Edit) -> list[Splice] | None:
    if edit.op in ("env", "unset-env"):
        return _env(command, edit)
    if edit.op == "docker":
        return _docker(command, edit)
    if edit.op == "set" and edit.name == CONTINUATION:
        return list(command.joints)
    if edit.name == "model":
        return _model(command, edit)
    if command.place is None:
        return None
    wanted = canonical(edit.name, command.grammar)
    if edit.op == "set":
        return _set(command, edit, wanted)
    if edit.op == "unset":
        return _remove_all(command, [*_matching(command, wanted), *_lost(command, wanted)])
    return _rename(command, edit, wanted)


def _matching(command: LaunchCommand, wanted: FlagName) -> list[Flag]:
    return [
        flag for flag in command.flags if flag.name == wanted.name and (not wanted.path or flag.path == wanted.path)
    ]


def _lost(command: LaunchCommand, wanted: FlagName) -> list[Flag]:
    """Flags of that name and path on lines that are cut off."""
    return [flag for flag in command.lost_flags if flag.name == wanted.name and flag.path == wanted.path]


def _remove_all(command: LaunchCommand, flags: Sequence[Flag]) -> list[Splice]:
    found: list[Splice] = []
    for flag in flags:
        found.extend((command.place.remove(flag) if command.place else None) or [])
    return found


def _set(command: LaunchCommand, edit: Edit, wanted: FlagName) -> list[Splice] | None:
    assert command.place is not None  # the caller looked
    matching = _matching(command, wanted)
    lost = _lost(command, wanted)
    if lost and not matching and edit.value is not None:  # it is there, but cut off: the line is put back with it
        changed = command.place.rewrite_value(lost[-1], edit.value)
        return None if changed is None else [*command.joints, *changed]
    if wanted.path and not matching:
        return _set_key(command, edit, wanted)
    plain = [flag for flag in matching if flag.path == wanted.path]
    spelled, value = _spelling(command, edit, wanted, plain)
    if spelled is None:
        return _remove_all(command, matching)
    if plain:
        target = plain[-1]
        extra = [flag for flag in matching if flag.path != wanted.path]
        if command.get(wanted.name) == edit.value and not extra and _well_written(target):
            return []
        if value is not None and _well_written(target) and not target.negated and target.value is not None:
            changed = command.place.rewrite_value(target, value)
        elif value is None and target.value is None and target.negated == wanted.negated and _well_written(target):
            changed = (
                [] if spelled.startswith("--no-") == target.negated else command.place.write(target, spelled, None)
            )
        else:
            changed = command.place.write(target, spelled, value)
        return None if changed is None else [*changed, *_remove_all(command, extra)]
    if matching:  # dotted keys alone: one of them becomes the whole
        changed = command.place.write(matching[0], spelled, value)
        return None if changed is None else [*changed, *_remove_all(command, matching[1:])]
    return command.place.write(None, spelled, value)


def _spelling(
    command: LaunchCommand, edit: Edit, wanted: FlagName, plain: Sequence[Flag]
) -> tuple[str | None, str | None]:
    """Flag and value to write; no flag at all where a switch goes off that has no negation."""
    name = wanted.name
    long = name + "".join(f".{key}" for key in wanted.path)
    arity = "one" if wanted.path else arity_of(name, command.grammar)
    value = edit.value
    if value is None:
        return ("--no-" + name[2:] if wanted.negated else long), None
    truth = value.lower() if value.lower() in ("true", "false") else None
    if truth is None or arity in ("one", "many"):
        return long, value
    if plain and plain[-1].value is not None and arity != "switch":
        return long, value
    if (truth == "true") != wanted.negated:
        return long, None
    if arity == "optional":
        return long, "False"
    if command.server in ("llm", "config"):  # written as False there: needs no flag of its own
        return "--no-" + name[2:], None
    return negation_of(name, command.grammar), None


def _well_written(flag: Flag) -> bool:
    return flag.spelled[:1].isascii() and flag.spelled[1:2].isascii()


def _set_key(command: LaunchCommand, edit: Edit, wanted: FlagName) -> list[Splice] | None:
    """One key of a JSON flag: within the JSON text where that is given, else as a dotted flag."""
    assert command.place is not None  # the caller looked
    whole = [flag for flag in command.flags if flag.name == wanted.name and not flag.path]
    if not whole:
        return command.place.write(None, wanted.name + "".join(f".{key}" for key in wanted.path), edit.value)
    value = command.json_value(wanted.name)
    if not isinstance(value, dict):
        if whole[-1].unresolved:
            return None
        value = {}  # what is there is no JSON object: vLLM refuses it as it is
    target = value
    for key in wanted.path[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            inner = target[key] = {}
        target = inner
    try:
        target[wanted.path[-1]] = json.loads(edit.value or "null")
    except (ValueError, RecursionError):
        target[wanted.path[-1]] = edit.value
    text = json.dumps(value, ensure_ascii=False)
    if ": " not in (whole[-1].value or ""):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return command.place.rewrite_value(whole[-1], text)


def _rename(command: LaunchCommand, edit: Edit, wanted: FlagName) -> list[Splice] | None:
    assert command.place is not None  # the caller looked
    old = _matching(command, wanted)
    if not edit.value or not old:
        return None
    new = canonical(edit.value, command.grammar)
    if new.name == wanted.name and new.path == wanted.path and not wanted.path:
        return None
    if any(flag.name == new.name for flag in command.flags):
        return _remove_all(command, old)
    found: list[Splice] = []
    for flag in old:
        spelled = edit.value + "".join(f".{key}" for key in flag.path if not new.path)
        if flag.negated and edit.value.startswith("--") and not new.negated:
            spelled = "--no-" + edit.value[2:]
        found.extend(command.place.respell(flag, spelled) or [])
    return found


def _model(command: LaunchCommand, edit: Edit) -> list[Splice] | None:
    if edit.op != "set" or edit.value is None or command.place is None or command.model == edit.value:
        return None
    flag = next((flag for flag in reversed(command.flags) if flag.name == "--model" and not flag.path), None)
    if command.model_word is None and flag is not None:
        return command.place.rewrite_value(flag, edit.value)
    return command.place.write_model(command.model_word, edit.value)


def _env(command: LaunchCommand, edit: Edit) -> list[Splice] | None:
    place = command.env_place
    if place is None:
        return None
    slots = [slot for slot in place.slots if slot.name == edit.name]
    if edit.op == "unset-env":
        return [made for slot in slots if (made := slot.remove())]
    value = edit.value or ""
    if slots:
        if slots[-1].value == value:
            return []
        made = slots[-1].write(value)
    else:
        made = place.add(edit.name, value)
    return None if made is None else [made]


def _docker(command: LaunchCommand, edit: Edit) -> list[Splice] | None:
    place = command.option_place
    if place is None:
        return None
    slot = next((slot for slot in place.slots if slot.name == edit.name), None)
    made = place.add(edit.name, edit.value) if slot is None else slot.write(edit.value)
    return None if made is None else [made]
