"""The flag check: each kind of problem, its edits, and silence where nothing is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.vllm.flag_problems import FlagProblem
from qvl_doctor.core.vllm.json_values import lenient, loads, pairs
from qvl_doctor.sources import vllm_facts
from tests.vllm.checks import kinds_of, mended, problems_of

VL = "vllm serve Qwen/Qwen2.5-VL-7B-Instruct"


def only(text: str, version: str | None = None) -> FlagProblem:
    found = [p for p in problems_of(text, version) if p.detail.get("harmless") != "yes"]
    assert len(found) == 1, found
    return found[0]


def edits(problem: FlagProblem) -> list[str]:
    return [f"{e.op} {e.name} {e.value or ''}".strip() for e in problem.edits]


# --- flags that other releases have -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("0.13.0", "--max-model-len 8192 --task=embed", "--max-model-len 8192 --runner pooling"),
        ("0.13.0", "--task generate", "--runner generate"),
        ("0.14.0", "--task classify", "--runner pooling --convert classify"),
        ("0.18.0", "--swap-space 16 -tp 2", "-tp 2"),
        ("0.13.0", "--disable-mm-preprocessor-cache", "--mm-processor-cache-gb 0"),
        ("0.9.2", "--mm-processor-cache-gb 0", "--disable-mm-preprocessor-cache"),
        ("0.9.2", "--mm-processor-cache-gb 8", ""),
        ("0.13.0", "--enable-multimodal-encoder-data-parallel", "--mm-encoder-tp-mode data"),
        ("0.9.2", "--mm-encoder-tp-mode data", "--enable-multimodal-encoder-data-parallel"),
        ("0.8.5", "--mm-encoder-tp-mode weights", ""),
        ("0.13.0", "--cuda-graph-sizes 1 2 4", "--cudagraph-capture-sizes 1 2 4"),
        ("0.12.0", "--guided-decoding-backend xgrammar", '--structured-outputs-config \'{"backend":"xgrammar"}\''),
        ("0.7.0", "--worker-use-ray", "--distributed-executor-backend ray"),
        ("0.10.0", "--runner pooling", "--task embed"),
        ("0.9.2", "--language-model-only", '--limit-mm-per-prompt \'{"image":0,"video":0}\''),
        ("0.6.6", "--language-model-only", "--limit-mm-per-prompt image=0,video=0"),
        ("0.6.4", "--no-enable-prefix-caching", ""),
    ],
)
def test_the_same_in_another_release(version: str, before: str, after: str) -> None:
    text = f"vllm serve m {before}"
    assert mended(text, version).replace("'image=0,video=0'", "image=0,video=0") == f"vllm serve m {after}".strip()
    assert kinds_of(text, version) in (["flag-removed-or-renamed"], ["flag-not-yet"])
    assert kinds_of(mended(text, version), version) == []


def test_removed_flag_says_since_and_until() -> None:
    problem = only("vllm serve m --task embed", "0.13.0")
    assert (problem.kind, problem.since, problem.until) == ("flag-removed-or-renamed", "0.6.4", "0.12.0")
    assert problem.detail["instead"] == "--runner pooling"
    assert "assumed" not in problem.detail
    assert problem.text == "--task embed"
    assert edits(problem) == ["unset --task", "set --runner pooling"]


def test_flags_that_became_keys_of_one_json_are_gathered_and_merged() -> None:
    text = (
        'vllm serve m --speculative-model small --num-speculative-tokens 5 --speculative-config \'{"method": "eagle"}\''
    )
    problems = problems_of(text, "0.11.2")
    assert {p.kind for p in problems} == {"flag-removed-or-renamed"}
    merged = {"method": "eagle", "model": "small", "num_speculative_tokens": 5}
    for problem in problems:
        values = [e.value for e in problem.edits if e.op == "set"]
        assert [json.loads(v or "") for v in values] == [merged]
    assert kinds_of(mended(text, "0.11.2"), "0.11.2") == []


def test_a_deprecated_flag_moves_with_its_value() -> None:
    problem = only("vllm serve m --guided-decoding-backend xgrammar", "0.11.0")
    assert problem.kind == "flag-deprecated"
    assert edits(problem)[-1] == 'set --structured-outputs-config {"backend":"xgrammar"}'


def test_rope_scaling_keeps_what_hf_overrides_has() -> None:
    text = 'vllm serve m --rope-scaling \'{"rope_type":"yarn"}\' --hf-overrides \'{"a": {"b": 1}}\''
    value = next(e.value for e in only(text, "0.11.2").edits if e.op == "set")
    assert json.loads(value or "") == {"a": {"b": 1}, "rope_scaling": {"rope_type": "yarn"}}


def test_not_yet_names_the_release_and_leaves_the_upgrade_to_a_person() -> None:
    problem = only("vllm serve m --kv-cache-memory-bytes 8G", "0.9.2")
    assert (problem.kind, problem.since) == ("flag-not-yet", "0.10.2")
    upgrade = problem.edits[-1]
    assert (upgrade.op, upgrade.name, upgrade.value, upgrade.safety) == ("package", "vllm", ">=0.10.2", "manual")


def test_attention_backend_becomes_an_environment_variable() -> None:
    problem = only("vllm serve m --attention-backend FLASHINFER", "0.11.0")
    assert "env VLLM_ATTENTION_BACKEND FLASHINFER" in edits(problem)


def test_deprecated_flag_with_its_successor() -> None:
    problem = only("vllm serve m --enable-multimodal-encoder-data-parallel", "0.11.0")
    assert (problem.kind, problem.since, problem.until) == ("flag-deprecated", "0.10.2", "0.12.0")
    assert edits(problem) == ["unset --enable-multimodal-encoder-data-parallel", "set --mm-encoder-tp-mode data"]


# --- flags that never were ----------------------------------------------------------------------------------


def test_folklore_becomes_a_pixel_cap_in_the_models_own_spelling() -> None:
    shape = only(f"{VL} --image-input-shape 1280,1280", "0.11.2")
    assert shape.kind == "flag-removed-or-renamed"
    assert edits(shape) == ["unset --image-input-shape", 'set --mm-processor-kwargs {"max_pixels":1638400}']
    tokens = only("vllm serve Qwen/Qwen3-VL-8B-Instruct --max-mm-tokens 2048", "0.12.0")
    assert tokens.kind == "flag-never-existed"
    value = next(e.value for e in tokens.edits if e.op == "set")
    assert json.loads(value or "")["size"]["longest_edge"] == 2048 * 32 * 32


def test_pixel_caps_of_several_flags_agree_and_keep_other_keys() -> None:
    text = f"{VL} --max-mm-tokens 1000 --enable-mm-token-trim --mm-processor-kwargs '{{\"fps\": 2}}'"
    values = {e.value for p in problems_of(text, "0.11.2") for e in p.edits if e.op == "set"}
    assert [json.loads(v or "") for v in values] == [{"fps": 2, "max_pixels": 784_000}]


def test_a_cap_that_is_there_stays() -> None:
    text = f"{VL} --enable-mm-token-trim --mm-processor-kwargs '{{\"max_pixels\": 500000}}'"
    assert edits(only(text, "0.11.2")) == ["unset --enable-mm-token-trim"]


@pytest.mark.parametrize("flag", ["--vision-encoder-device cpu", "--quantization-param-bits 4", "--nonsense 3"])
@pytest.mark.parametrize("version", ["0.6.3", "0.11.2", None])
def test_never_existed_is_certain_whatever_the_version(flag: str, version: str | None) -> None:
    problem = only(f"vllm serve m {flag}", version)
    assert problem.kind == "flag-never-existed"
    assert "assumed" not in problem.detail


def test_an_unknown_flag_in_a_release_newer_than_all_known_is_only_assumed() -> None:
    assert only("vllm serve m --nonsense 3", "99.0").detail["assumed"] == "yes"


def test_without_a_version_removal_is_only_assumed() -> None:
    assert only("vllm serve m --swap-space 4").detail["assumed"] == "yes"


# --- spelling -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wrong", "right"),
    [
        ("0.23.0", "-language-model-only", "--language-model-only"),
        ("0.11.0", "--tensor-paralel-size 2", "--tensor-parallel-size 2"),
        ("0.11.0", "--gpu-memory-utilisation 0.9", "--gpu-memory-utilization 0.9"),
        ("0.11.0", "--max-modle-len 4096", "--max-model-len 4096"),
        ("0.11.0", "--limit-mm-per-promt '{\"image\":1}'", "--limit-mm-per-prompt '{\"image\":1}'"),
        ("0.11.0", "--limit-mm-per-promt image=1", "--limit-mm-per-prompt '{\"image\":1}'"),
        ("0.11.0", "---enforce-eager", "--enforce-eager"),
        ("0.11.0", "—enforce-eager", "--enforce-eager"),
        ("0.4.2", "--max_model_len 4096", "--max-model-len 4096"),
    ],
)
def test_typos(version: str, wrong: str, right: str) -> None:
    text = f"python -m vllm.entrypoints.openai.api_server --model m {wrong}"
    problem = only(text, version)
    assert problem.kind == "flag-typo"
    assert problem.nearest == right.split(" ", 1)[0]
    assert mended(text, version) == f"python -m vllm.entrypoints.openai.api_server --model m {right}"


@pytest.mark.parametrize(
    "flags",
    [
        "--max_model_len 4096",
        "--gpu-memory-util 0.9",  # argparse takes a beginning that fits one option only
        "-tp 2 -pp=1",
        "-O3",
        "--limit_mm_per_prompt.image 2",
        "--no-enable-prefix-caching --no-enforce-eager",
        "--max-model-len 32k --max-num-batched-tokens 8K",
        '--compilation-config \'{"cudagraph_mode": "PIECEWISE"}\'',
        "--lora-modules a=/x b=/y --enable-lora",
        "--served-model-name a b c",
        "--middleware a --middleware b",
        '--kv-transfer-config \'{"kv_connector": "X", "kv_role": "kv_both"}\'',
        "--quantization awq_marlin --kv-cache-dtype fp8 --dtype half",
        "--hf-overrides some.module.function",
        "--omni --stage-configs-path x.yaml --whatever 3",
        "--additional-config '{\"a\": 1}'",
        "--api-key $KEY --port ${PORT:-8000} --max-model-len $LEN",
    ],
)
def test_silence_on_what_is_right(flags: str) -> None:
    assert kinds_of(f"vllm serve m {flags}", "0.11.2") == []


def test_another_front_end_is_not_judged() -> None:
    assert problems_of("xinference launch --model-engine vllm --n-gpu 4") == ()


def test_keywords_of_the_python_class() -> None:
    text = "from vllm import LLM\nllm = LLM('m', {})\n"
    assert kinds_of(text.format("some_field=3, dtype='half', limit_mm_per_prompt={'image': 2}"), "0.20.0") == []
    assert kinds_of(text.format("swap_space=8"), "0.20.0") == ["flag-no-effect"]
    assert kinds_of(text.format("swap_space=8"), "0.26.0") == ["flag-removed-or-renamed"]
    assert kinds_of(text.format("dtype='fp16', max_mm_tokens=4"), "0.20.0") == [
        "flag-value-invalid",
        "flag-never-existed",
    ]


def test_keys_of_a_configuration_file() -> None:
    text = "model: Qwen/Qwen2.5-VL-7B-Instruct\nmax_model_len: 4096\nenforce-eager: false\nlimit-mm-per-prompt: {}\n"
    assert kinds_of(text.format("{image: 4}"), "0.20.0") == []
    assert kinds_of(text.format("image=4"), "0.20.0") == ["flag-syntax-limit-mm-json"]


def test_a_flag_of_the_other_entry_point() -> None:
    text = "python -m vllm.entrypoints.openai.api_server --model m --api-server-count 2"
    assert only(text, "0.9.2").kind == "flag-value-invalid"
    assert kinds_of(text, "0.10.2") == []


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wrong", "right"),
    [
        ("0.8.3", "--dtype fp16", "--dtype float16"),
        ("0.11.0", "--dtype BF16", "--dtype bfloat16"),
        ("0.8.3", "--swap_space 8G", "--swap_space 8"),
        ("0.11.0", "--gpu-memory-utilization 90", "--gpu-memory-utilization 0.9"),
        ("0.11.0", "--gpu-memory-utilization 85%", "--gpu-memory-utilization 0.85"),
        ("0.7.3", "--max-model-len 32k", "--max-model-len 32768"),
        ("0.11.0", "--max-model-len 1.5K", "--max-model-len 1536"),
        ("0.11.0", "--tensor-parallel-size 0", "--tensor-parallel-size 1"),
        ("0.11.0", "--max-num-seqs 16.0", "--max-num-seqs 16"),
        ("0.11.0", "--kv-cache-dtype e4m3", "--kv-cache-dtype fp8_e4m3"),
        ("0.11.0", "--quantization compressed_tensors", "--quantization compressed-tensors"),
        ("0.11.0", "--mm-encoder-tp-mode dp", "--mm-encoder-tp-mode data"),
        ("0.11.0", "--enforce-eager True --port 8000", "--port 8000 --enforce-eager"),
        ("0.11.0", "--enable-prefix-caching=False", "--no-enable-prefix-caching"),
        ("0.11.0", "--limit-mm-per-prompt '{\"images\": 4}'", "--limit-mm-per-prompt '{\"image\":4}'"),
    ],
)
def test_values(version: str, wrong: str, right: str) -> None:
    text = f"vllm serve m {wrong}"
    assert only(text, version).kind == "flag-value-invalid"
    assert mended(text, version) == f"vllm serve m {right}"


@pytest.mark.parametrize("value", ["lots", "8192 tokens!", "[]"])
def test_a_flag_whose_value_nobody_can_guess_is_taken_out(value: str) -> None:
    problem = only(f"vllm serve m --max-model-len '{value}'", "0.11.0")
    assert edits(problem) == ["unset --max-model-len"]
    assert [edit.safety for edit in problem.edits] == ["unsafe"]  # its default may mean something else


def test_a_missing_value() -> None:
    assert only("vllm serve m --max-model-len --port 8000", "0.11.0").kind == "flag-value-invalid"


def test_unknown_key_of_a_configuration() -> None:
    problem = only('vllm serve m --compilation-config \'{"cudagraph_mod": "FULL"}\'', "0.32.0")
    assert (problem.kind, problem.nearest) == ("flag-value-invalid", "cudagraph_mode")
    assert edits(problem) == ['set --compilation-config {"cudagraph_mode":"FULL"}']


# --- JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wrong", "right"),
    [
        ("0.10.0", "--limit-mm-per-prompt image=4,audio=1", '--limit-mm-per-prompt \'{"image":4,"audio":1}\''),
        ("0.8.4", "--limit-mm-per-prompt '{\"image\": 4}'", "--limit-mm-per-prompt 'image=4'"),
        ("0.7.2", '--limit-mm-per-prompt={"image":4,"video":0}', "--limit-mm-per-prompt='image=4,video=0'"),
        ("0.8.4", "--limit-mm-per-prompt.image 4", "--limit-mm-per-prompt image=4"),
    ],
)
def test_limits_in_the_form_of_the_release(version: str, wrong: str, right: str) -> None:
    text = f"vllm serve m {wrong}"
    assert only(text, version).kind == "flag-syntax-limit-mm-json"
    assert mended(text, version).replace('"', "").replace("'", "") == f"vllm serve m {right}".replace('"', "").replace(
        "'", ""
    )
    assert kinds_of(mended(text, version), version) == []


def test_limits_whose_quotes_the_shell_took() -> None:
    problem = only("vllm serve m --limit-mm-per-prompt {image:4}", "0.11.0")
    assert problem.kind == "flag-syntax-limit-mm-json"
    assert edits(problem) == ['set --limit-mm-per-prompt {"image":4}']
    assert only("vllm serve m --limit-mm-per-prompt {image:4}", "0.8.4").kind == "flag-syntax-limit-mm-json"


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("--gpu-memroy", "--gpu-memory-utilization"),
        ("--pipeline-paralel", "--pipeline-parallel-size"),
        ("--max-numm", None),  # of several options
        ("--quantum", None),
    ],
)
def test_a_misspelt_abbreviation_means_the_one_option_that_it_begins(wrong: str, nearest: str | None) -> None:
    problem = only(f"vllm serve m {wrong} 1", "0.11.0")
    assert (problem.kind, problem.nearest) == ("flag-typo" if nearest else "flag-never-existed", nearest)


@pytest.mark.parametrize("version", ["0.8.5", "0.9.2"])
@pytest.mark.parametrize("value", ["image=4,video=0", "'{\"image\": 4}'"])
def test_both_forms_are_right_for_a_while(version: str, value: str) -> None:
    assert kinds_of(f"vllm serve m --limit-mm-per-prompt {value}", version) == []


@pytest.mark.parametrize(
    "broken",
    [
        '{"max_pixels": 1003520}',  # split at the blank, quotes eaten
        "\"{'max_pixels': 1003520}\"",
        "'{“max_pixels”: 1003520}'",
        "max_pixels=1003520",
        "'{\"max_pixels\": 1003520'",
        "'{max_pixels: 1003520,}'",
    ],
)
def test_broken_json_is_put_right(broken: str) -> None:
    text = f"{VL} --mm-processor-kwargs {broken} --port 8000"
    assert only(text, "0.11.0").kind == "flag-syntax-json-quoting"
    assert mended(text, "0.11.0") == f"{VL} --port 8000 --mm-processor-kwargs.max_pixels 1003520"
    assert kinds_of(mended(text, "0.8.3"), "0.8.3") == []
    assert "--mm-processor-kwargs '{\"max_pixels\":1003520}'" in mended(text, "0.8.3")


def test_a_variable_in_json() -> None:
    known = f"N=500000 {VL} --mm-processor-kwargs '{{\"max_pixels\": $N}}'"
    assert edits(only(known, "0.11.0"))[-1] == "set --mm-processor-kwargs.max_pixels 500000"
    unknown = f'{VL} --mm-processor-kwargs {{"max_pixels": $MAX_PIXELS}}'
    assert edits(only(unknown, "0.11.0"))[-1] == "set --mm-processor-kwargs.max_pixels 1003520"
    other = f'{VL} --mm-processor-kwargs {{"fps": $FPS}}'
    assert edits(only(other, "0.11.0")) == []


# --- no effect, conflicts -----------------------------------------------------------------------------------


def test_without_effect_on_v1() -> None:
    problem = only("vllm serve m --swap-space 16", "0.11.2")
    assert (problem.kind, edits(problem)) == ("flag-no-effect", ["unset --swap-space"])
    harmless = problems_of(f"{VL} --enable-prefix-caching --trust-remote-code", "0.11.2")
    assert [(p.kind, p.detail["harmless"], p.edits) for p in harmless] == [("flag-no-effect", "yes", ())] * 2
    assert problems_of("vllm serve some/other-model --trust-remote-code", "0.11.2") == ()
    assert problems_of("vllm serve m --enable-prefix-caching", "0.6.6") == ()


def test_model_option_of_serve() -> None:
    for version in ("0.6.3", "0.8.5", "0.11.0"):
        assert mended("vllm serve --model a/b --port 80", version) == "vllm serve a/b --port 80"
    assert kinds_of("vllm serve --model a/b --port 80", "0.11.1") == []
    assert kinds_of("python -m vllm.entrypoints.openai.api_server --model a/b", "0.8.5") == []


@pytest.mark.parametrize(
    ("version", "flags", "edit"),
    [
        ("0.11.0", "--max-num-batched-tokens 64 --max-num-seqs 128", "set --max-num-seqs 64"),
        (
            "0.11.0",
            "--max-num-batched-tokens 2048 --max-model-len 8192 --no-enable-chunked-prefill",
            "set --max-num-batched-tokens 8192",
        ),
        ("0.6.3", "--max-num-batched-tokens 2048 --max-model-len 8192", "set --max-num-batched-tokens 8192"),
        ("0.11.0", "--enable-auto-tool-choice", "set --tool-call-parser hermes"),
        ("0.11.0", "--enable-log-outputs", "set --enable-log-requests true"),
        ("0.11.0", "--enable-lora --max-loras 4 --max-cpu-loras 2", "set --max-cpu-loras 4"),
        ("0.10.2", "--enforce-eager --cuda-graph-sizes 1 2 4", "unset --cuda-graph-sizes"),
        ("0.11.0", "--max-model-len 4096 --max-model-len 8192", "set --max-model-len 8192"),
    ],
)
def test_conflicts(version: str, flags: str, edit: str) -> None:
    text = f"vllm serve m {flags}"
    conflicts = [p for p in problems_of(text, version) if p.kind == "flags-conflict"]
    assert len(conflicts) == 1
    assert edits(conflicts[0])[-1] == edit
    assert kinds_of(mended(text, version), version) == []


def test_chunked_prefill_makes_a_small_batch_fine() -> None:
    assert kinds_of("vllm serve m --max-num-batched-tokens 2048 --max-model-len 8192", "0.11.0") == []


# --- over everything ----------------------------------------------------------------------------------------


def test_secrets_are_masked() -> None:
    problem = only("vllm serve m --api-kee sk-abcdefghijklmnop1234 --api-key sk-abcdefghijklmnop1234", "0.11.0")
    assert "sk-abcdefghijklmnop1234" not in f"{problem.text} {problem.value} {problem.detail}"


def test_texts_in_chinese() -> None:
    problems = problems_of("vllm serve m --swap-space 4 --max-mm-tokens 4", "0.20.0", "zh")
    assert all(any("一" <= c <= "鿿" for c in p.detail["why"]) for p in problems)
    assert len(problems) == 2


FLAGS = sorted({*vllm_facts.knowledge("0.11.2").flags(), *vllm_facts.knowledge("0.6.3").flags(), "--max-mm-tokens"})
VALUES = ["1", "0", "-1", "8G", "32k", "auto", "True", "'{}'", "'{\"a\":1}'", "{a:1}", "a=1,b=2", "None", "$X", "fp16"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FLAGS), st.sampled_from(VALUES)), max_size=4),
    st.sampled_from([None, *vllm_facts.releases()[::5]]),
)
def test_mending_ends_and_makes_no_new_problems(flags: list[tuple[str, str]], version: str | None) -> None:
    text = "vllm serve m " + " ".join(f"{name} {value}" for name, value in flags)
    once = mended(text, version)
    twice = mended(once, version)  # a value that was put right may belong to a flag that is deprecated
    assert mended(twice, version) == twice
    before = {(p.kind, p.name) for p in problems_of(text, version)}
    after = {(p.kind, p.name) for p in problems_of(once, version)}
    unmendable = {(p.kind, p.name) for p in problems_of(text, version) if not p.edits}
    assert {k for k in after if k[0] in ("flag-never-existed", "flag-removed-or-renamed")} <= before & unmendable


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_reading_values_never_raises_but_value_error(text: str) -> None:
    for read in (loads, lenient):
        try:
            read(text)
        except ValueError:
            continue
    pairs(text)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.integers(0, 10**9) | st.booleans(), max_size=4)
)
def test_lenient_reads_bare_and_single_quoted_objects(value: dict[str, int]) -> None:
    bare = "{" + ", ".join(f"{k}: {json.dumps(v)}" for k, v in value.items()) + "}"
    assert lenient(bare) == value
    assert lenient(json.dumps(value).replace('"', "'")) == value
