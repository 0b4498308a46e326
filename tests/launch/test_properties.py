"""What holds for any text: it never raises, it renders to itself, edits hold and are idempotent."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qvl_doctor.core.findings import Edit, Op
from qvl_doctor.core.launch import edited_command, parse_text
from qvl_doctor.core.launch.expand import literal_word
from qvl_doctor.core.launch.shell import Dialect, Lexer
from qvl_doctor.core.launch.values import Layer
from qvl_doctor.core.masking import masked

FRAGMENTS = [
    *(
        "vllm serve ",
        "python -m vllm.entrypoints.openai.api_server ",
        "docker run ",
        "vllm/vllm-openai:v0.8.5 ",
        "LLM(",
    ),
    *(
        "Qwen/A ",
        "--max-model-len ",
        "--a=1 ",
        "--limit-mm-per-prompt ",
        "'{\"image\": 2}' ",
        "4096 ",
        "-tp 2 ",
        "-O3 ",
    ),
    *(
        "\\\n",
        "\n",
        "\r\n",
        " ",
        "\t",
        "'",
        '"',
        "`",
        "$(",
        ")",
        "(",
        "$X",
        "${X:-1}",
        "\\",
        "#",
        " # c\n",
        "&",
        ";",
        "|",
    ),
    *("<<EOF\n", "EOF\n", "<", ">", "{{ x }}", "“", "”", "—", "\u3000", "```", "```bash\n", "```python\n", "```yaml\n"),
    *(
        "services:\n",
        "  a:\n",
        "    image: ",
        "    command: ",
        "      - ",
        "apiVersion: v1\n",
        "kind: Pod\n",
        "spec:\n",
    ),
    *(
        "containers:\n",
        "[Service]\n",
        "ExecStart=",
        "Environment=A=1\n",
        "FROM x\n",
        "CMD [",
        "]",
        '"--a", ',
        ": ",
        "? ",
    ),
    *(
        "model: x\n",
        "port: 1\n",
        "*a",
        "&a ",
        "!!x ",
        "<pre>",
        "</pre>",
        "&quot;",
        "model='x', ",
        "bash -c ",
        "export A=1\n",
    ),
    *(
        "ARGS=(",
        '"${ARGS[@]}" ',
        "A=1 ",
        "$ ",
        "> ",
        "é",
        "图",
        "\0",
        "\ud800",
        "{",
        "}",
        "eval ",
        "sudo ",
        "|\n",
        ">-\n",
    ),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join) | st.text(max_size=80)
NAMES = st.sampled_from(["command", "a.yaml", "a.py", "a.md", "a.service", "Dockerfile", "a.sh"])
OPERATIONS: tuple[tuple[Op, str, str | None], ...] = (
    ("set", "--max-model-len", "1024"),
    ("set", "--limit-mm-per-prompt", '{"image": 1}'),
    ("set", "--a", "x y"),
    ("unset", "--max-model-len", None),
    ("unset", "--a", None),
    ("rename", "--a", "--max-num-seqs"),
    ("set", "model", "Qwen/B"),
    ("env", "A", "2"),
    ("unset-env", "A", None),
    ("docker", "--shm-size", "8g"),
)


@settings(max_examples=120, deadline=None)
@given(TEXTS, NAMES)
def test_any_text_parses_and_renders_to_itself(text: str, name: str) -> None:
    found = parse_text(text, name=name)
    assert found.render() == text
    for command in found.commands:
        assert text[command.start : command.end] == command.text
        for flag in (*command.flags, *command.lost_flags):
            assert 0 <= flag.start <= flag.end <= len(text)
            command.get(flag.name)
            command.json_value(flag.name)


@settings(max_examples=120, deadline=None)
@given(TEXTS, NAMES, st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=4))
def test_editing_any_text_never_raises(text: str, name: str, rows: list[tuple[Op, str, str | None]]) -> None:
    edits = [Edit(op, target, value) for op, target, value in rows]
    found = parse_text(text, name=name)
    for index, command in enumerate(found.commands[:3]):
        found.edited(index, edits)
        edited_command(command, edits)


VALUES = st.text(alphabet="aZ0 {}[]\":',.$`\\!*?=/#;&|<>()-图“", min_size=1, max_size=12).filter(
    lambda value: value.strip() == value and not value.startswith("-") and value.lower() not in ("true", "false")
)
SERVICE = "services:\n  a:\n    image: vllm/vllm-openai:v0.9.0\n"
STYLES = st.sampled_from(
    [
        "vllm serve Qwen/A --x 1 --port 8000",
        "vllm serve Qwen/A --x=1 --port 8000",
        "vllm serve Qwen/A \\\n  --x '1' \\\n  --port 8000 > log 2>&1 &\n",
        'vllm serve Qwen/A --x "1" --port 8000 # why',
        "vllm serve Qwen/A '--x=1' --port 8000",
        "vllm serve Qwen/A --port 8000",
        "A=1 nohup vllm serve Qwen/A --port 8000 &",
        "docker run --gpus all vllm/vllm-openai:v0.9.0 --model Qwen/A --x 1 --port 8000",
        "bash -c 'vllm serve Qwen/A --x 1 --port 8000'",
        'bash -c "vllm serve Qwen/A --x 1 --port 8000"',
        'ARGS=(--x 1 --port 8000)\nvllm serve Qwen/A "${ARGS[@]}"\n',
        SERVICE + "    command: --model Qwen/A --x 1 --port 8000\n",
        SERVICE + "    command: >\n      --model Qwen/A\n      --x 1\n      --port 8000\n",
        SERVICE + """    command: ["--model", "Qwen/A", '--x', "1", "--port=8000"]\n""",
        SERVICE + "    command:\n    - --model\n    - Qwen/A\n    - --port\n    - '8000'\n",
        "from vllm import LLM\nllm = LLM(model='Qwen/A', x='1', port=8000)\n",
        "model: Qwen/A\nx: 1\nport: 8000\n",
    ]
)


@settings(max_examples=150, deadline=None)
@given(STYLES, VALUES)
def test_an_edited_command_parses_to_the_value_set(text: str, value: str) -> None:
    found = parse_text(text)
    edits = [Edit("set", "--x", value)]
    once = found.edited(0, edits)
    again = parse_text(once)
    command = again.commands[0]
    assert command.get("--port") == "8000"
    assert command.model == "Qwen/A"
    if once == text:  # it can't be written there safely: nothing is
        assert "command: " in text or command.get("--x") == value
    elif found.commands[0].server == "llm" and value[0] in "{[":
        assert command.has("--x")  # JSON has become a dict or list
    else:
        assert command.get("--x") == value
    assert again.edited(0, edits) == once
    assert parse_text(found.edited(0, [Edit("unset", "--x")])).commands[0].get("--x") is None


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab \t\n'\"\\#=-", max_size=30))
def test_words_are_those_of_shlex(text: str) -> None:
    try:
        expected = shlex.split(text, comments=True)
    except ValueError:
        return
    layer = Layer.of(text)
    tokens = Lexer(layer, Dialect(operators=False, newline_ends=False)).tokens()
    words = [literal_word(token, layer) for token in tokens if token.kind == "word"]
    if "\\\n" in text or ("#" in text and not _comments_agree(text)):
        return
    assert [word.value for word in words] == expected


def _comments_agree(text: str) -> bool:
    """shlex takes a # within a word for a comment; no shell does."""
    starts = [at for at, character in enumerate(text) if character == "#"]
    return all(at == 0 or (text[at - 1] in " \t\n" and text[at - 2 : at - 1] != "\\") for at in starts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(alphabet="aB1 '\"{}:$\\#&;|()<>“", min_size=1, max_size=10), min_size=1, max_size=6))
def test_joined_arguments_come_apart_again(arguments: list[str]) -> None:
    text = "vllm serve m " + shlex.join(arguments)
    layer = Layer.of(text)
    words = [literal_word(token, layer).value for token in Lexer(layer).tokens() if token.kind == "word"]
    assert words[3:] == arguments


@settings(max_examples=100, deadline=None)
@given(
    st.text(max_size=60) | st.lists(st.sampled_from(["--api-key ", "x", "=", "'", ":", "HF_TOKEN", " "])).map("".join)
)
def test_masking_never_raises_and_is_idempotent(text: str) -> None:
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "unit",
    [
        *("vllm serve ", "'", '"', "`", "$(", "“", "{{", "<<A ", "\\\n", "(", "--a {", "A=1 ", "docker run ", "LLM("),
        *("```\n", "<pre>", "&amp;", "- a: ", "[", "{", "> ", "bash -c '", "api_key=", "TOKEN_", "key: ", "://a:"),
        *("ExecStart=vllm serve \\\n", "#", "$ ", "vllm serve x \\\n--a 1\n", "ARGS+=(--a 1)\n", 'A="$A$A"\n', "a@"),
    ],
)
def test_hostile_repetition_is_read(unit: str) -> None:
    """Text of one thing over and over: no recursion limit, nothing unbounded; readers in quadratic time show here."""
    text = unit * (20_000 // len(unit))
    assert parse_text(text).text == text
    masked(text)
