"""What stands in a command and never reaches the server as it was meant: a line end or a quote cuts it off."""

from __future__ import annotations

from qvl_doctor.core.facts import View, derived

_SHOWN = 8  # flags that are named


@derived("derived.lost_flags", "str", "", "flags on lines that the shell does not join to the command")
def _lost_flags(view: View) -> str | None:
    launch = view.objects.launch
    names = [flag.spelled for flag in launch.lost_flags] if launch is not None else []
    return ", ".join(names[:_SHOWN]) or None


@derived("derived.lost_line", "int", "", "the first line of the document that the shell takes for a command of its own")
def _lost_line(view: View) -> int | None:
    launch = view.objects.launch
    return launch.lost_lines[0].line if launch is not None and launch.lost_lines else None


@derived("derived.wrong_quotes", "str", "", "typographic or unclosed quotes in the command, as they stand there")
def _wrong_quotes(view: View) -> str | None:
    launch = view.objects.launch
    problems = launch.problems if launch is not None else ()
    return next((one.text for one in problems if one.kind in ("smart-quote", "unclosed-quote")), None)
