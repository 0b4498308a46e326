"""The launch command put together again from the arguments that vLLM prints at start."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

_POSITIONAL = ("model_tag", "model")
# Internal attributes of the argument namespace that no command line sets.
_NOT_FLAGS = frozenset({"subparser", "dispatch_function", "config", "disable_frontend_multiprocessing_default", "func"})


def command_from_args(args: Mapping[str, object], defaults: Mapping[str, object] | None = None) -> str | None:
    """`vllm serve MODEL --flag value …` with the arguments of the log's line, or None where it names no model.

    `defaults` (argument -> default) leaves out what releases up to 0.8 print although it was not given.
    """
    model = next((args[key] for key in _POSITIONAL if isinstance(args.get(key), str) and args[key]), None)
    if model is None:
        return None
    words = ["vllm", "serve", shlex.quote(str(model))]
    for key, value in args.items():
        if key in _POSITIONAL or key in _NOT_FLAGS or value is None or (defaults and defaults.get(key, ...) == value):
            continue
        words += _flag(f"--{key.replace('_', '-')}", value)
    return " ".join(words)


def _flag(flag: str, value: object) -> list[str]:
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, Mapping):
        return [flag, shlex.quote(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))]
    if isinstance(value, list | tuple):
        return [flag, *(shlex.quote(str(item)) for item in value)] if value else []
    return [flag, shlex.quote(str(value))]
