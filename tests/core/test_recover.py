"""A launch command put together from what vLLM prints of its arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qvl_doctor.core.launch import parse_text
from qvl_doctor.core.recover import command_from_args


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"model_tag": "Qwen/X", "model": "Qwen/X", "max_model_len": 4096}, "vllm serve Qwen/X --max-model-len 4096"),
        ({"model": "/models/a b"}, "vllm serve '/models/a b'"),
        ({"model": "m", "enforce_eager": True, "enable_prefix_caching": False},
         "vllm serve m --enforce-eager --no-enable-prefix-caching"),
        ({"model": "m", "limit_mm_per_prompt": {"image": 2, "video": 0}},
         "vllm serve m --limit-mm-per-prompt '{\"image\":2,\"video\":0}'"),
        ({"model": "m", "served_model_name": ["a", "b"]}, "vllm serve m --served-model-name a b"),
        ({"model": "m", "api_key": None}, "vllm serve m"),
    ],
)  # fmt: skip
def test_arguments_become_flags(args: dict[str, object], expected: str) -> None:
    assert command_from_args(args) == expected


def test_defaults_that_old_releases_print_are_left_out() -> None:
    args = {"model": "m", "port": 8000, "max_num_seqs": 64}
    assert command_from_args(args, {"port": 8000, "max_num_seqs": 256}) == "vllm serve m --max-num-seqs 64"


def test_without_a_model_there_is_no_command() -> None:
    assert command_from_args({"port": 8000}) is None


@given(st.dictionaries(st.from_regex(r"[a-z]{2,8}(_[a-z]{2,8}){0,2}", fullmatch=True), st.integers(), max_size=5))
def test_what_is_put_together_reads_back(args: dict[str, int]) -> None:
    command = command_from_args({"model": "m", **args})
    assert command is not None
    (parsed,) = parse_text(command).commands
    assert parsed.model == "m"
    assert {flag.name for flag in parsed.flags} >= {f"--{key.replace('_', '-')}" for key in args if key != "model"} - {
        "--config", "--func", "--model", "--subparser"
    }  # fmt: skip
