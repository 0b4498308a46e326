"""Files of every kind, out of `samples/commands`: what is found in them, and edits that change nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from qvl_doctor.core.findings import Edit, Op
from qvl_doctor.core.launch import Document, LaunchCommand, parse_text

SAMPLES = Path(__file__).parents[2] / "samples" / "commands"
NAMES = sorted(path.name for path in SAMPLES.iterdir())

EditRow = tuple[Op, str, str | None]


def read(name: str) -> str:
    return (SAMPLES / name).read_bytes().decode("utf-8")


def document(name: str) -> Document:
    return parse_text(read(name), name=name)


def shape(found: Document) -> list[tuple[str, str | None, tuple[tuple[str, str | None], ...]]]:
    return [(c.server, c.model, tuple((flag.name, flag.value) for flag in c.flags)) for c in found.commands]


def test_there_are_enough_samples() -> None:
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_kind_is_seen_without_the_name(name: str) -> None:
    assert shape(parse_text(read(name))) == shape(document(name))


@pytest.mark.parametrize("name", NAMES)
def test_spans_are_those_of_the_text(name: str) -> None:
    text = read(name)
    for command in document(name).commands:
        assert text[command.start : command.end] == command.text
        assert command.where == f"{name}:{command.line}"
        for flag in command.flags:
            assert 0 <= flag.start < flag.end <= len(text)
            assert text.count("\n", 0, flag.start) + 1 == flag.line
            assert flag.spelled.lstrip("-–—")[:2] in text[flag.start : flag.end]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "edit",
    [
        ("set", "--max-model-len", "4096"),
        ("set", "--limit-mm-per-prompt", '{"image": 1, "video": 0}'),
        ("set", "--enforce-eager", "true"),
        ("set", "model", "Qwen/Other"),
        ("unset", "--max-model-len", None),
        ("env", "VLLM_LOGGING_LEVEL", "INFO"),
        ("unset-env", "CUDA_VISIBLE_DEVICES", None),
    ],
)
def test_an_edit_holds_and_holds_once(name: str, edit: EditRow) -> None:
    found = document(name)
    op, target, value = edit
    for index, command in enumerate(found.commands):
        once = found.edited(index, [Edit(op, target, value)])
        again = parse_text(once, name=name)
        assert len(again.commands) == len(found.commands)
        assert again.edited(index, [Edit(op, target, value)]) == once
        assert_holds(again.commands[index], command, edit)
        for other, (before, after) in enumerate(zip(found.commands, again.commands, strict=True)):
            if other != index and op not in ("env", "unset-env"):
                assert (before.model, before.env) == (after.model, after.env)
                assert [flag.value for flag in before.flags] == [flag.value for flag in after.flags]


def assert_holds(after: LaunchCommand, before: LaunchCommand, edit: EditRow) -> None:
    op, target, value = edit
    if not before.editable:
        assert shape_of(after) == shape_of(before)
        return
    if op == "set" and target == "model":
        assert after.model == value
    elif op == "set":
        assert after.get(target) == value
        lost = before.lost_flags if any(flag.name == target for flag in before.lost_flags) else ()
        kept = [flag.name for flag in (*before.flags, *lost) if flag.name != target]
        assert [flag.name for flag in after.flags if flag.name != target] == kept
    elif op == "unset":
        assert not after.has(target)
    elif op == "unset-env":
        assert target not in after.env or before.server == "llm"
    elif before.server not in ("llm", "config"):
        in_dockerfile = before.container is not None and before.container.kind == "dockerfile"
        assert in_dockerfile or after.env.get(target) == value


def shape_of(command: LaunchCommand) -> list[tuple[str, str | None]]:
    return [(flag.name, flag.value) for flag in command.flags]


EDITS: list[tuple[str, int, EditRow, str, str]] = [
    # file, command, edit, the text before, the text after
    ("compose-string.yaml", 0, ("set", "--max-model-len", "8192"), "len 16384", "len 8192"),
    (
        "compose-string.yaml",
        0,
        ("set", "--max-num-seqs", "4"),
        '"image": 4}\'\n',
        '"image": 4}\'\n      --max-num-seqs 4\n',
    ),
    ("compose-string.yaml", 0, ("unset", "--tensor-parallel-size", None), "      --tensor-parallel-size 2\n", ""),
    ("compose-string.yaml", 0, ("rename", "--max-model-len", "--ctx"), "--max-model-len", "--ctx"),
    ("compose-string.yaml", 0, ("env", "HF_HOME", "/x"), "HF_HOME: /hf", "HF_HOME: /x"),
    ("compose-string.yaml", 0, ("env", "NEW", "1"), '"change-me"\n', '"change-me"\n      NEW: "1"\n'),
    ("compose-string.yaml", 0, ("unset-env", "HF_HOME", None), "      HF_HOME: /hf\n", ""),
    ("compose-string.yaml", 0, ("docker", "--shm-size", "16g"), 'shm_size: "1gb"', 'shm_size: "16g"'),
    ("compose-string.yaml", 0, ("docker", "--ipc", "host"), "    command: >", "    ipc: host\n    command: >"),
    ("compose-list.yaml", 0, ("set", "--max-model-len", "4096"), '"8192"', '"4096"'),
    (
        "compose-list.yaml",
        0,
        ("set", "--max-num-seqs", "4"),
        '"--enforce-eager"\n',
        '"--enforce-eager"\n      - "--max-num-seqs"\n      - "4"\n',
    ),
    (
        "compose-list.yaml",
        0,
        ("unset", "--max-model-len", None),
        '      - "--max-model-len"       # context\n      - "8192"\n',
        "",
    ),
    ("compose-list.yaml", 0, ("rename", "--enforce-eager", "--eager"), '"--enforce-eager"', '"--eager"'),
    ("compose-list.yaml", 0, ("set", "model", "/models/b"), '"/models/Qwen2.5-VL-3B-Instruct"', '"/models/b"'),
    ("compose-list.yaml", 0, ("env", "CUDA_VISIBLE_DEVICES", "1"), "DEVICES=0", "DEVICES=1"),
    ("compose-list.yaml", 0, ("env", "NEW", "a"), 'WARN"\n', 'WARN"\n      - "NEW=a"\n'),
    ("compose-list.yaml", 0, ("unset-env", "NCCL_DEBUG", None), '      - "NCCL_DEBUG=WARN"\n', ""),
    ("compose-flow.yaml", 0, ("set", "--max-model-len", "4096"), "=32768", "=4096"),
    ("compose-flow.yaml", 0, ("set", "--limit-mm-per-prompt", '{"image":1}'), '{\\"image\\":2}', '{\\"image\\":1}'),
    ("compose-flow.yaml", 0, ("set", "--port", "80"), ':2}"]', ':2}", "--port=80"]'),
    ("compose-flow.yaml", 0, ("unset", "--max-model-len", None), ', "--max-model-len=32768"', ""),
    ("compose-flow.yaml", 0, ("env", "A", "1"), "    command: [", "    environment:\n      - A=1\n    command: ["),
    ("compose-crlf.yaml", 0, ("set", "--max-model-len", "4096"), "8192", "4096"),
    ("compose-crlf.yaml", 0, ("set", "--port", "1"), "8192\r\n", "8192\r\n      --port 1\r\n"),
    ("compose-crlf.yaml", 0, ("unset", "--max-model-len", None), "\r\n      --max-model-len 8192", ""),
    ("compose-crlf.yaml", 0, ("env", "A", "1"), "    command", "    environment:\r\n      - A=1\r\n    command"),
    ("kubernetes-deployment.yaml", 0, ("set", "--max-model-len", "8192"), '"32768"', '"8192"'),
    (
        "kubernetes-deployment.yaml",
        0,
        ("set", "--max-num-seqs", "4"),
        '"32768"   # tokens\n',
        '"32768"   # tokens\n            - "--max-num-seqs"\n            - "4"\n',
    ),
    (
        "kubernetes-deployment.yaml",
        0,
        ("unset", "--tensor-parallel-size", None),
        '            - --tensor-parallel-size\n            - "4"\n',
        "",
    ),
    ("kubernetes-deployment.yaml", 0, ("set", "model", "Qwen/B"), "- Qwen/Qwen2.5-VL-32B-Instruct", "- Qwen/B"),
    ("kubernetes-deployment.yaml", 0, ("env", "VLLM_LOGGING_LEVEL", "INFO"), '"DEBUG"', '"INFO"'),
    (
        "kubernetes-deployment.yaml",
        0,
        ("env", "NEW", "1"),
        '"DEBUG"\n',
        '"DEBUG"\n            - name: NEW\n              value: "1"\n',
    ),
    (
        "kubernetes-deployment.yaml",
        0,
        ("unset-env", "VLLM_LOGGING_LEVEL", None),
        '            - name: VLLM_LOGGING_LEVEL\n              value: "DEBUG"\n',
        "",
    ),
    ("kubernetes-shell.yaml", 0, ("set", "--max-model-len", "4096"), "16384", "4096"),
    ("kubernetes-shell.yaml", 0, ("set", "--limit-mm-per-prompt", '{"image": 1}'), '{"image": 2}', '{"image": 1}'),
    ("kubernetes-shell.yaml", 0, ("set", "--port", "1"), '"image": 2}\'\n', '"image": 2}\' \\\n        --port 1\n'),
    ("kubernetes-shell.yaml", 0, ("unset", "--max-model-len", None), " \\\n        --max-model-len 16384", ""),
    ("vllm.service", 0, ("set", "--tensor-parallel-size", "1"), "size 2", "size 1"),
    ("vllm.service", 0, ("set", "--port", "1"), "4}'\n", "4}' \\\n    --port 1\n"),
    ("vllm.service", 0, ("unset", "--host", None), " \\\n    --host 0.0.0.0", ""),
    ("vllm.service", 0, ("env", "CUDA_VISIBLE_DEVICES", "0"), "DEVICES=0,1", "DEVICES=0"),
    ("vllm.service", 0, ("env", "HF_HOME", "/srv"), '"HF_HOME=/srv hf cache"'.replace(" hf", "/hf"), '"HF_HOME=/srv"'),
    ("vllm.service", 0, ("env", "NEW", "a b"), '/hf cache"\n', '/hf cache"\nEnvironment="NEW=a b"\n'),
    ("vllm.service", 0, ("unset-env", "CUDA_VISIBLE_DEVICES", None), "Environment=CUDA_VISIBLE_DEVICES=0,1\n", ""),
    ("config.yaml", 0, ("set", "--max-model-len", "8192"), "16384      #", "8192      #"),
    (
        "config.yaml",
        0,
        ("set", "--limit-mm-per-prompt", '{"image": 1}'),
        "\n  image: 4\n  video: 0",
        " '{\"image\": 1}'",
    ),
    ("config.yaml", 0, ("set", "--enable-prefix-caching", "true"), "caching: false", "caching: true"),
    ("config.yaml", 0, ("set", "--max-num-seqs", "4"), "port: 8000\n", "port: 8000\nmax-num-seqs: 4\n"),
    ("config.yaml", 0, ("unset", "--limit-mm-per-prompt", None), "limit-mm-per-prompt:\n  image: 4\n  video: 0\n", ""),
    ("config.yaml", 0, ("rename", "--max-model-len", "--ctx"), "max_model_len", "ctx"),
    ("config.yaml", 0, ("set", "model", "Qwen/B"), "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/B"),
    ("offline.py", 0, ("set", "--max-model-len", "4096"), "=8192", "=4096"),
    ("offline.py", 0, ("set", "--limit-mm-per-prompt", '{"image": 1}'), '{"image": 10, "video": 1}', '{"image": 1}'),
    ("offline.py", 0, ("set", "--enforce-eager", "false"), "eager=True", "eager=False"),
    ("offline.py", 0, ("set", "--dtype", "half"), "eager=True,", 'eager=True,\n    dtype="half",'),
    (
        "offline.py",
        0,
        ("unset", "--limit-mm-per-prompt", None),
        '    limit_mm_per_prompt={"image": 10, "video": 1},  # 图片上限\n',
        "",
    ),
    ("offline.py", 0, ("rename", "--enforce-eager", "--eager-mode"), "enforce_eager", "eager_mode"),
    ("offline.py", 0, ("set", "model", "Qwen/B"), "model=MODEL", 'model="Qwen/B"'),
    ("offline.py", 0, ("env", "VLLM_USE_V1", "1"), '= "0"', '= "1"'),
    ("offline.py", 0, ("env", "OTHER", "1"), "", ""),
    ("engine_args.py", 0, ("set", "--max-num-seqs", "8"), ": 256", ": 8"),
    ("engine_args.py", 0, ("unset", "--tensor-parallel-size", None), "tensor_parallel_size=2, ", ""),
    ("engine_args.py", 0, ("set", "--quantization", "awq"), "**options)", "**options, quantization='awq')"),
    ("Dockerfile", 0, ("set", "--max-model-len", "4096"), '"8192"', '"4096"'),
    ("Dockerfile", 0, ("set", "--port", "1"), '"--enforce-eager"]', '"--enforce-eager", "--port", "1"]'),
    ("Dockerfile", 0, ("unset", "--enforce-eager", None), ', "--enforce-eager"', ""),
    ("docker-run-shell.sh", 0, ("set", "--port", "1"), "8000", "1"),
    ("docker-run-shell.sh", 0, ("docker", "--shm-size", "8g"), "--entrypoint bash", "--entrypoint bash --shm-size 8g"),
    ("docker-run-shell.sh", 0, ("env", "A", "1"), "--entrypoint bash", "--entrypoint bash -e A=1"),
    ("serve-bash-c.sh", 0, ("set", "--limit-mm-per-prompt", '{"image": 1}'), '{\\"image\\": 5}', '{\\"image\\": 1}'),
    ("serve-bash-c.sh", 0, ("env", "VLLM_USE_V1", "1"), "V1=0", "V1=1"),
    ("serve-typeset.txt", 0, ("set", "--max-model-len", "4096"), "—max-model-len 8192", "--max-model-len 4096"),
    (
        "serve-typeset.txt",
        0,
        ("set", "--limit-mm-per-prompt", '{"image":1}'),
        '—limit-mm-per-prompt “{"image":2}”',
        "--limit-mm-per-prompt '{\"image\":1}'",
    ),
    (
        "article.html",
        1,
        ("set", "--limit-mm-per-prompt", '{"image": 1}'),
        "'{&quot;image&quot;: 2}'",
        "'{\"image\": 1}'",
    ),
    ("article.html", 1, ("set", "--port", "80"), "8000", "80"),
    ("article.zh.md", 1, ("unset", "--enable-mm-token-trim", None), " --enable-mm-token-trim", ""),
    ("article.zh.md", 2, ("unset", "--quantization-param-bits", None), " --quantization-param-bits 4", ""),
    ("article.en.md", 4, ("unset", "--swap-space", None), " --swap-space 16", ""),
    ("pasted-on-one-line.txt", 1, ("set", "--port", "9"), "8001", "9"),
    ("pasted-on-one-line.txt", 0, ("set", "--dtype", "half"), "4096 CUDA", "4096 --dtype half CUDA"),
    ("helm-values.yaml", 0, ("set", "--max-model-len", "1"), "", ""),
    ("serve-command-substitution.sh", 0, ("set", "--max-model-len", "1"), "", ""),
]


@pytest.mark.parametrize(("name", "index", "edit", "before", "after"), EDITS)
def test_edit_is_exact(name: str, index: int, edit: EditRow, before: str, after: str) -> None:
    text = read(name)
    op, target, value = edit
    assert not before or text.count(before) >= 1
    once = parse_text(text, name=name).edited(index, [Edit(op, target, value)])
    assert once == text.replace(before, after, 1)
    assert parse_text(once, name=name).edited(index, [Edit(op, target, value)]) == once


def test_english_article() -> None:
    commands = document("article.en.md").commands
    assert [(command.line, command.server) for command in commands] == [
        (3, "serve"),
        (10, "serve"),
        (20, "api_server"),
        (29, "llm"),
        (35, "api_server"),
        (39, "serve"),
    ]
    assert commands[1].has("--vision-encoder-device")
    assert commands[1].env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert commands[2].has("--enable-mm-token-trim")
    assert commands[4].get("--image-input-type") == "pixel_values"


def test_chinese_article() -> None:
    commands = document("article.zh.md").commands
    assert [command.line for command in commands] == [8, 13, 15, 21]
    assert commands[1].get("--mm-token-trim-threshold") == "0.5"
    assert commands[2].get("--quantization-param-bits") == "4"
    assert [flag.name for flag in commands[3].lost_flags] == ["--limit-mm-per-prompt"]


def test_containers() -> None:
    compose = document("compose-string.yaml").commands[0].container
    manifest = document("kubernetes-deployment.yaml").commands[0].container
    assert compose is not None
    assert manifest is not None
    assert (compose.shm_size_bytes, compose.gpus, compose.runtime) == (1024**3, "2", "nvidia")
    assert (manifest.shm_size_bytes, manifest.gpus, manifest.kind) == (8 * 1024**3, "4", "kubernetes")
    assert document("kubernetes-shell.yaml").commands[0].container is not None
    assert document("compose-flow.yaml").commands[0].version == "0.11.2"


def test_arithmetic_in_python_is_worked_out() -> None:
    assert document("offline.py").commands[0].json_value("--mm-processor-kwargs") == {
        "min_pixels": 784,
        "max_pixels": 1003520,
    }


def test_unreadable_yaml_is_shown_not_edited() -> None:
    found = document("helm-values.yaml")
    assert [problem.kind for problem in found.problems] == ["unreadable"]
    assert not found.commands[0].editable
