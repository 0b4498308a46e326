"""Shell commands: what is understood, and that edits touch nothing else."""

from __future__ import annotations

import sys

import pytest

from qvl_doctor.core.findings import Edit, Op
from qvl_doctor.core.launch import LaunchCommand, YamlSupportMissing, edited_command, parse_text


def only(text: str) -> LaunchCommand:
    commands = parse_text(text).commands
    assert len(commands) == 1, [command.text for command in commands]
    return commands[0]


def edited(text: str, *edits: tuple[Op, str, str | None]) -> str:
    """The text after the edits; that applying them again changes nothing is checked on the way."""
    made = [Edit(op, name, value) for op, name, value in edits]
    once = parse_text(text).edited(0, made)
    assert parse_text(once).edited(0, made) == once
    return once


@pytest.mark.parametrize(
    ("text", "server", "model"),
    [
        ("vllm serve Qwen/Qwen2.5-VL-7B-Instruct", "serve", "Qwen/Qwen2.5-VL-7B-Instruct"),
        ("/opt/venv/bin/vllm serve /models/a", "serve", "/models/a"),
        ("vllm serve --max-model-len 4096 Qwen/A", "serve", "Qwen/A"),
        ("vllm serve --trust-remote-code Qwen/A", "serve", "Qwen/A"),
        ("vllm serve --model Qwen/A", "serve", "Qwen/A"),
        ("python -m vllm.entrypoints.openai.api_server --model Qwen/A", "api_server", "Qwen/A"),
        ("/usr/bin/python3.11 -u -m vllm.entrypoints.openai.api_server --model=Qwen/A", "api_server", "Qwen/A"),
        ("python3 -m vllm.entrypoints.api_server --model Qwen/A", "legacy", "Qwen/A"),
        ("python3 /app/vllm/entrypoints/openai/api_server.py --model Qwen/A", "api_server", "Qwen/A"),
        ("nohup vllm serve Qwen/A > log 2>&1 &", "serve", "Qwen/A"),
        ("sudo -E numactl -N 0 -m 0 vllm serve Qwen/A", "serve", "Qwen/A"),
        ("time env A=1 vllm serve Qwen/A", "serve", "Qwen/A"),
        ("exec uv run --with vllm vllm serve Qwen/A", "serve", "Qwen/A"),
        ('bash -lc "vllm serve Qwen/A"', "serve", "Qwen/A"),
        ("cd /srv && source .venv/bin/activate && vllm serve Qwen/A", "serve", "Qwen/A"),
        ("'LLM(offline)' --max-model-len=4096", "llm", None),
        ("LLM(offline) --max-model-len=4096", "llm", None),
        ("xinference launch --model-engine vllm --n-gpu 4", "other", None),
        ("python client.py", "other", None),
        ("helm install vllm", "other", None),
        ("docker run --gpus all vllm/vllm-openai:v0.8.5 --model Qwen/A", "api_server", "Qwen/A"),
        ("docker run --gpus all vllm/vllm-openai:latest Qwen/A --port 1", "serve", "Qwen/A"),
        ("docker run --rm -it qwenllm/qwenvl:2-cu121 vllm serve Qwen/A -tp 2", "serve", "Qwen/A"),
        ('docker run --entrypoint bash img -c "vllm serve Qwen/A"', "serve", "Qwen/A"),
        ("docker run --entrypoint vllm img serve Qwen/A", "serve", "Qwen/A"),
        ("M=Qwen/A; vllm serve $M", "serve", "Qwen/A"),
        ("vllm serve ${MODEL:-Qwen/A} --port 1", "serve", "Qwen/A"),
    ],
)
def test_forms(text: str, server: str, model: str | None) -> None:
    command = only(text)
    assert (command.server, command.model) == (server, model)
    assert command.editable


@pytest.mark.parametrize(
    ("spelled", "name", "value"),
    [
        ("--max-model-len 4096", "--max-model-len", "4096"),
        ("--max_model_len=4096", "--max-model-len", "4096"),
        ("-tp 2", "--tensor-parallel-size", "2"),
        ("-tp=2", "--tensor-parallel-size", "2"),
        ("-q awq", "--quantization", "awq"),
        ("-O3", "--optimization-level", "3"),
        ("-O.level=3", "--compilation-config", '{"level": 3}'),
        ("-cc.mode=3", "--compilation-config", '{"mode": 3}'),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", "false"),
        ("--enforce-eager", "--enforce-eager", "true"),
        (
            "--limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video=0",
            "--limit-mm-per-prompt",
            '{"image": 2, "video": 0}',
        ),
        ("--mm-processor-kwargs.max_pixels=1003520", "--mm-processor-kwargs", '{"max_pixels": 1003520}'),
        ("""--limit-mm-per-prompt '{"image": 2}'""", "--limit-mm-per-prompt", '{"image": 2}'),
        (r'''--limit-mm-per-prompt "{\"image\": 2}"''', "--limit-mm-per-prompt", '{"image": 2}'),
        ('--limit-mm-per-prompt {"image": 2, "video": 1}', "--limit-mm-per-prompt", "{image: 2, video: 1}"),
        ("""'--limit-mm-per-prompt={"image":10}'""", "--limit-mm-per-prompt", '{"image":10}'),
        ("--served-model-name a b", "--served-model-name", "a b"),
        ("—max-model-len 4096", "--max-model-len", "4096"),
        ("-language-model-only", "-language-model-only", "true"),
    ],
)
def test_spellings(spelled: str, name: str, value: str) -> None:
    command = only(f"vllm serve Qwen/A {spelled} --port 8000")
    assert command.get(name) == value
    assert command.get("--port") == "8000"
    assert command.model == "Qwen/A"


SCRIPT = """#!/bin/bash
export VLLM_USE_V1=0   # the old engine
MODEL=Qwen/Qwen2.5-VL-7B-Instruct
ARGS=(
  --max-model-len 8192   # context
  --enforce-eager
)
CUDA_VISIBLE_DEVICES=0,1 nohup vllm serve $MODEL "${ARGS[@]}" \\
    --tensor-parallel-size 2 \\
    --limit-mm-per-prompt '{"image": 4}' \\
    --gpu-memory-utilization=0.95 > server.log 2>&1 &
"""


def test_script_is_understood() -> None:
    command = only(SCRIPT)
    assert command.where == "command:8"
    assert command.model == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert command.env == {"VLLM_USE_V1": "0", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert [flag.name for flag in command.flags] == [
        "--max-model-len",
        "--enforce-eager",
        "--tensor-parallel-size",
        "--limit-mm-per-prompt",
        "--gpu-memory-utilization",
    ]
    assert [flag.line for flag in command.flags] == [5, 6, 9, 10, 11]
    assert command.wrappers == ("nohup",)


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (("set", "--max-model-len", "4096"), "--max-model-len 8192 ", "--max-model-len 4096 "),
        (("set", "--limit-mm-per-prompt", '{"image": 1}'), "'{\"image\": 4}'", "'{\"image\": 1}'"),
        (("set", "--gpu-memory-utilization", "0.9"), "=0.95", "=0.9"),
        (("set", "--max-num-seqs", "8"), "=0.95 >", "=0.95 \\\n    --max-num-seqs 8 >"),
        (("unset", "--tensor-parallel-size", None), " \\\n    --tensor-parallel-size 2", ""),
        (("unset", "--gpu-memory-utilization", None), " \\\n    --gpu-memory-utilization=0.95", ""),
        (("unset", "--enforce-eager", None), "  --enforce-eager\n", ""),
        (("rename", "--enforce-eager", "--eager"), "--enforce-eager", "--eager"),
        (("set", "model", "Qwen/B"), "serve $MODEL", "serve Qwen/B"),
        (("env", "VLLM_USE_V1", "1"), "VLLM_USE_V1=0", "VLLM_USE_V1=1"),
        (("env", "CUDA_VISIBLE_DEVICES", "0"), "DEVICES=0,1", "DEVICES=0"),
        (("env", "NEW", "a b"), "=0,1 nohup", "=0,1 NEW='a b' nohup"),
        (("unset-env", "CUDA_VISIBLE_DEVICES", None), "CUDA_VISIBLE_DEVICES=0,1 ", ""),
        (("host", "swap", "off"), "", ""),
    ],
)
def test_edits_of_a_script(edit: tuple[Op, str, str | None], before: str, after: str) -> None:
    assert SCRIPT.count(before) == 1 or not before
    assert edited(SCRIPT, edit) == SCRIPT.replace(before, after, 1)


def test_own_slice_holds_the_assignments_before_it() -> None:
    text = "echo start\nexport A=1\nvllm serve Qwen/A --port 1\necho done\n"
    command = only(text)
    assert command.text == "export A=1\nvllm serve Qwen/A --port 1"
    assert edited_command(command, [Edit("set", "--port", "2")]) == "export A=1\nvllm serve Qwen/A --port 2"


DOCKER = """docker run --gpus all --ipc=host \\
  -e HF_HOME=/hf -p 8000:8000 -v ~/models:/models \\
  vllm/vllm-openai:v0.8.5.post1 \\
  --model /models/a --max-model-len 8192
"""


def test_docker_facts() -> None:
    command = only(DOCKER.replace("--ipc=host", "--shm-size 2g"))
    assert command.version == "0.8.5.post1"
    assert command.env == {"HF_HOME": "/hf"}
    assert command.container is not None
    assert command.container.shm_size_bytes == 2 * 1024**3
    assert command.container.gpus == "all"
    assert command.container.mounts[0].target == "/models"


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        (("docker", "--shm-size", "16g"), ":/models \\", ":/models --shm-size 16g \\"),
        (("docker", "--ipc", "private"), "--ipc=host", "--ipc=private"),
        (("env", "HF_HOME", "/x"), "HF_HOME=/hf", "HF_HOME=/x"),
        (("unset-env", "HF_HOME", None), " \\\n  -e HF_HOME=/hf", ""),
        (("set", "model", "/models/b"), "/models/a", "/models/b"),
        (("set", "--max-model-len", "4096"), "8192", "4096"),
        (("set", "--max-num-seqs", "4"), "8192\n", "8192 --max-num-seqs 4\n"),
    ],
)
def test_edits_of_docker_run(edit: tuple[Op, str, str | None], before: str, after: str) -> None:
    assert edited(DOCKER, edit) == DOCKER.replace(before, after, 1)


@pytest.mark.parametrize(
    ("text", "edits", "expected"),
    [
        ("vllm serve A", [("set", "--enforce-eager", "true")], "vllm serve A --enforce-eager"),
        ("vllm serve A --enforce-eager", [("set", "--enforce-eager", "false")], "vllm serve A --no-enforce-eager"),
        ("vllm serve A --no-x-y", [("set", "--x-y", "true")], "vllm serve A --x-y"),
        ("vllm serve A -tp 4", [("set", "--tensor-parallel-size", "2")], "vllm serve A -tp 2"),
        ("vllm serve A --max_model_len=8", [("set", "--max-model-len", "4")], "vllm serve A --max_model_len=4"),
        ("vllm serve A —max-model-len 8", [("set", "--max-model-len", "4")], "vllm serve A --max-model-len 4"),
        ("vllm serve A --x=1", [("set", "--y", "2")], "vllm serve A --x=1 --y=2"),
        (
            "vllm serve A --limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video 1",
            [("set", "--limit-mm-per-prompt", '{"image":1}')],
            "vllm serve A --limit-mm-per-prompt '{\"image\":1}'",
        ),
        (
            "vllm serve A --limit-mm-per-prompt '{\"image\":2}'",
            [("set", "--limit-mm-per-prompt.video", "0")],
            'vllm serve A --limit-mm-per-prompt \'{"image":2,"video":0}\'',
        ),
        (
            'vllm serve A --limit-mm-per-prompt "{\\"image\\": 2}"',
            [("set", "--limit-mm-per-prompt", '{"image": 1}')],
            'vllm serve A --limit-mm-per-prompt "{\\"image\\": 1}"',
        ),
        (
            "vllm serve A --a 1 --b 2",
            [("unset", "--a", None), ("unset", "--b", None), ("set", "--c", "3")],
            "vllm serve A --c 3",
        ),
        ("vllm serve A --old 1", [("rename", "--old", "--new"), ("set", "--new", "2")], "vllm serve A --new 2"),
        ("vllm serve A --old 1 --new 2", [("rename", "--old", "--new")], "vllm serve A --new 2"),
        ("vllm serve --port 1", [("set", "model", "B")], "vllm serve B --port 1"),
        (
            "bash -c 'vllm serve A --x 1'",
            [("set", "--y", '{"a": 1}')],
            "bash -c 'vllm serve A --x 1 --y '\\''{\"a\": 1}'\\'''",
        ),
        ("vllm serve A \\\r\n  --a 1 \\\r\n  --b 2\r\n", [("unset", "--a", None)], "vllm serve A \\\r\n  --b 2\r\n"),
        ("vllm serve A --a 1 # comment", [("set", "--b", "2")], "vllm serve A --a 1 --b 2 # comment"),
        ("sudo vllm serve A", [("env", "X", "1")], "sudo X=1 vllm serve A"),
        ("export X=1\nvllm serve A\n", [("unset-env", "X", None)], "vllm serve A\n"),
        ('ARGS="--a 1 --b 2"\nvllm serve A $ARGS', [("set", "--b", "3")], 'ARGS="--a 1 --b 3"\nvllm serve A $ARGS'),
        ('ARGS="--a 1 --b 2"\nvllm serve A $ARGS', [("unset", "--a", None)], 'ARGS="--b 2"\nvllm serve A $ARGS'),
    ],
)
def test_edits(text: str, edits: list[tuple[Op, str, str | None]], expected: str) -> None:
    assert edited(text, *edits) == expected


def test_lost_line_is_exposed() -> None:
    command = only("vllm serve A \\\n  --a 1\n  --b 2 \\\n  --c 3\n")
    assert [(lost.line, lost.text) for lost in command.lost_lines] == [(3, "--b 2 \\"), (4, "--c 3")]
    assert [flag.name for flag in command.lost_flags] == ["--b", "--c"]
    assert [problem.kind for problem in command.problems] == ["missing-backslash"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("vllm serve A --a 1 \\ \n  --b 2\n", "space-after-backslash"),
        ("vllm serve A --a 1 \\  # why\n  --b 2\n", "space-after-backslash"),
        ("vllm serve A --a 1 \\\n  # --x 1 \\\n  --b 2\n", "comment-in-continuation"),
    ],
)
def test_broken_continuations(text: str, kind: str) -> None:
    command = only(text)
    assert [problem.kind for problem in command.problems] == [kind]
    assert [flag.name for flag in command.flags] == ["--a"]
    assert [flag.name for flag in command.lost_flags] == ["--b"]
    assert command.strays == ()


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve $(cat model.txt) --port 1",
        "vllm serve A --port `next_port`",
        "vllm serve {{ model }} --port 1",
        "cat > run.sh <<'EOF'\nvllm serve A --port 1\nEOF\n",
        "eval 'vllm serve A --port 1'",
    ],
)
def test_not_editable(text: str) -> None:
    command = only(text)
    assert command.server == "serve"
    assert not command.editable
    assert command.not_editable_reason
    assert parse_text(text).edited(0, [Edit("set", "--port", "2")]) == text


def test_commands_collapsed_on_one_line() -> None:
    commands = parse_text(
        "pip install vllm vllm serve A --a 1 CUDA_VISIBLE_DEVICES=1 vllm serve B --b 2 curl http://x"
    ).commands
    assert [(command.model, [flag.name for flag in command.flags]) for command in commands] == [
        ("A", ["--a"]),
        ("B", ["--b"]),
    ]
    assert commands[1].env == {"CUDA_VISIBLE_DEVICES": "1"}
    assert commands[1].strays == ()


BROKEN = "vllm serve A \\\n  --a 1 \\  # why\n  --b 2\n  --c 3\n"


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([("set", "line-continuation", None)], "vllm serve A \\\n  --a 1 \\\n  --b 2 \\\n  --c 3\n"),
        ([("set", "--b", "5")], "vllm serve A \\\n  --a 1 \\\n  --b 5 \\\n  --c 3\n"),
        ([("unset", "--b", None)], "vllm serve A \\\n  --a 1 \\  # why\n  --c 3\n"),
        ([("set", "--d", "4")], "vllm serve A \\\n  --a 1 \\\n  --d 4 \\  # why\n  --b 2\n  --c 3\n"),
        (
            [("set", "--b", "5"), ("unset", "--c", None), ("set", "--a", "7")],
            "vllm serve A \\\n  --a 7 \\\n  --b 5\n",
        ),
    ],
)
def test_edits_of_lost_lines(edits: list[tuple[Op, str, str | None]], expected: str) -> None:
    assert edited(BROKEN, *edits) == expected


def test_yaml_without_its_extra_is_a_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(YamlSupportMissing, match=r"qvl-doctor\[deploy\]"):
        parse_text("services:\n  a:\n    image: vllm/vllm-openai\n")
    assert (
        parse_text("```yaml\nservices: {a: {image: vllm}}\n```\n```\nvllm serve A --a 1\n```\n").commands[0].model
        == "A"
    )


@pytest.mark.parametrize(
    ("text", "model", "flags", "editable"),
    [
        ("docker run `\n  vllm/vllm-openai `\n  --model A --x 1\n", "A", ["--model", "--x"], True),
        ("subprocess.run(['vllm', 'serve', 'A', '--x', '1'])", "A", ["--x"], False),
        ("os.system('vllm serve A --x 1 > log')", "A", ["--x"], False),
        ("llm = LLM(model='A', ..., x=1)", "A", ["--model", "--x"], True),
        (
            "### It died\n\nI can't tell why:\nvllm serve A/B \\\n  --x 1\n\nand it doesn't help.\n",
            "A/B",
            ["--x"],
            True,
        ),
        ("I start it with vllm serve A/B --x 1, then it's dead.", "A/B", ["--x"], True),
        ("使用以下命令启动：vllm serve A/B --x 0.9，然后访问 8000 端口。", "A/B", ["--x"], True),
        ("root@host:/workspace# vllm serve A --x 1\nINFO 01-01 12:00:00 starting\n", "A", ["--x"], True),
        ("kubectl exec -it pod -- vllm serve A --x 1", "A", ["--x"], True),
        ("f() {\n  vllm serve A --x 1 &\n}\nf\n", "A", ["--x"], True),
        ("if true; then vllm serve A --x 1; fi", "A", ["--x"], True),
        ("vllm serve A --x 1 2>&1 | tee log", "A", ["--x"], True),
    ],
)
def test_what_people_paste(text: str, model: str, flags: list[str], editable: bool) -> None:
    command = only(text)
    assert (command.model, [flag.name for flag in command.flags], command.editable) == (model, flags, editable)
    assert command.strays == ()
    assert (parse_text(text).edited(0, [Edit("set", "--x", "7")]) != text) == editable


@pytest.mark.parametrize(
    "text", ["", " \n", "# vllm serve A\n", "echo vllm serve A", "pkill -f 'vllm serve'", "the vllm serve command"]
)
def test_talk_is_no_command(text: str) -> None:
    assert all(command.server == "other" or command.model == "command" for command in parse_text(text).commands)
