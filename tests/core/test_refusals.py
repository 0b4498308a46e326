"""Argument errors of the server, read back from its log and judged by the release's own options."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.facts import View
from qvl_doctor.core.logs import LogReader
from qvl_doctor.core.refusals import refused_flags
from qvl_doctor.core.vllm.flag_problems import FlagProblem
from qvl_doctor.sources.vllm_facts import knowledge


def _refused(line: str, version: str | None = None, language: str = "en") -> tuple[FlagProblem, ...]:
    reader = LogReader(source="server.log")
    reader.feed(f"usage: vllm serve [model_tag] [options]\n{line}\n".encode())
    return refused_flags(reader.finish(), knowledge(version), View({}), language)


_JSON = "cannot be converted to <function loads at 0x7f>."


@pytest.mark.parametrize(
    ("error", "version", "kind"),
    [
        ("unrecognized arguments: --task=embed", "0.13.0", "flag-removed-or-renamed"),
        ("unrecognized arguments: --swap-space 16", None, "flag-removed-or-renamed"),
        ("unrecognized arguments: --mm-encoder-tp-mode data", None, "flag-not-yet"),
        ("unrecognized arguments: -enforce-eager", None, "flag-typo"),
        ("unrecognized arguments: --vision-encoder-device cpu", None, "flag-never-existed"),
        (f"argument --limit-mm-per-prompt: Value image=4 {_JSON}", None, "flag-syntax-limit-mm-json"),
        (
            "argument --limit-mm-per-prompt: Each item should be in the form KEY=VALUE",
            "0.8.1",
            "flag-syntax-limit-mm-json",
        ),
        (f"argument --mm-processor-kwargs: Value {{max_pixels: {_JSON}", "0.11.0", "flag-syntax-json-quoting"),
        ("argument --max-model-len: invalid int value: 'long'", "0.8.5", "flag-value-invalid"),
        ("argument --tensor-parallel-size/-tp: expected one argument", "0.11.0", "flag-value-invalid"),
        ("argument --dtype: invalid choice: 'fp16' (choose from 'auto', 'half')", None, "flag-value-invalid"),
    ],
)
@pytest.mark.parametrize("program", ["vllm", "vllm serve", "api_server.py"])
def test_kind_of_a_refusal(program: str, error: str, version: str | None, kind: str) -> None:
    (problem,) = _refused(f"{program}: error: {error}", version)
    assert problem.kind == kind
    assert problem.flag in error
    assert problem.where == "server.log:2"
    assert problem.text.endswith(error)
    assert problem.detail["why"]


def test_edits_come_along() -> None:
    (problem,) = _refused("vllm: error: unrecognized arguments: --task=embed", "0.13.0")
    assert [(edit.op, edit.name, edit.value) for edit in problem.edits] == [
        ("unset", "--task", None),
        ("set", "--runner", "pooling"),
    ]


def test_every_refused_flag_is_named_once() -> None:
    line = "vllm: error: unrecognized arguments: 8 --swap-space 4 --vision-encoder-device cpu --swap-space 8"
    assert [problem.name for problem in _refused(line)] == ["--swap-space", "--vision-encoder-device"]


def test_a_refusal_stands_even_where_the_release_at_hand_takes_the_flag() -> None:
    (problem,) = _refused("vllm: error: unrecognized arguments: --api-server-count 4", "0.33.0")
    assert problem.kind == "flag-not-yet"
    assert problem.since == "0.9.1"


def test_a_keyword_that_engine_arguments_lack_is_judged_like_a_flag() -> None:
    (problem,) = _refused("TypeError: EngineArgs.__init__() got an unexpected keyword argument 'swap_space'", "0.33.0")
    assert (problem.kind, problem.name) == ("flag-removed-or-renamed", "--swap-space")
    assert _refused("TypeError: Worker.__init__() got an unexpected keyword argument 'swap_space'", "0.33.0") == ()


def test_reasons_speak_the_readers_language() -> None:
    (problem,) = _refused("vllm: error: unrecognized arguments: --api-server-count 4", "0.33.0", "zh")
    assert "版本" in problem.detail["why"]


def test_secrets_in_a_refusal_are_masked() -> None:
    line = "vllm serve: error: argument --api-key: expected one argument, not sk-live-1234567890abcdef"
    assert all("1234567890abcdef" not in problem.detail["why"] + problem.text for problem in _refused(line, "0.13.0"))


@pytest.mark.parametrize(
    "line",
    [
        "vllm: error: unrecognized arguments: 8 image",
        "vllm: error: the following arguments are required: model_tag",
        "INFO ready",
    ],
)
def test_lines_without_a_flag_give_nothing(line: str) -> None:
    assert _refused(line) == ()


@settings(max_examples=60)
@given(st.text(max_size=120), st.sampled_from(["unrecognized arguments: ", "argument --x: ", "ambiguous option: --"]))
def test_no_refusal_raises(text: str, head: str) -> None:
    _refused(f"vllm: error: {head}{text}")
