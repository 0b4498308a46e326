"""Wrong usage as argparse words it, recognised, so that it can be said in the user's language."""

from __future__ import annotations

import re

from qvl_doctor.errors import DoctorError, Exit

_FORMS = (
    ("usage_unrecognized", r"unrecognized arguments: (?P<words>.*)"),
    ("usage_required", r"the following arguments are required: (?P<names>.*)"),
    ("usage_choice", r"argument (?P<name>[^:]+): invalid choice: (?P<value>.*) \(choose from (?P<choices>.*)\)"),
    ("usage_one_value", r"argument (?P<name>[^:]+): expected one argument"),
    ("usage_values", r"argument (?P<name>[^:]+): expected (?P<count>\d+) arguments"),
    ("usage_exclusive", r"argument (?P<name>[^:]+): not allowed with argument (?P<other>.*)"),
    ("usage_no_value", r"argument (?P<name>[^:]+): ignored explicit argument (?P<value>.*)"),
    ("usage_pid", r"argument (?P<name>[^:]+): (?P<value>.*) is no process id"),
)


def usage_error(message: str, program: str) -> DoctorError:
    """The error for argparse's message about `program` ("qvl-doctor fix"); an unknown message stays as it is."""
    for key, form in _FORMS:
        if found := re.fullmatch(form, message, re.DOTALL):
            return DoctorError(key, hint="hint_help", exit_code=Exit.USAGE, program=program, **found.groupdict())
    return DoctorError("usage_other", hint="hint_help", program=program, message=message)
