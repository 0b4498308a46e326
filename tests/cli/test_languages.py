"""The program's own words in both languages: the tables agree, errors and help speak the language that is asked for."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from qvl_doctor.errors import DoctorError
from qvl_doctor.help_zh import TEXTS
from qvl_doctor.text import language_asked, table, words
from qvl_doctor.usage import usage_error
from tests.cli.harness import COMMAND, REPOSITORY, WRONG_COMMAND, assert_plain, assert_user_error, doctor

CHINESE = re.compile("[\u4e00-\u9fff]")
ENGLISH_WORD = re.compile(
    r"(?<![\w-])(?:a|and|argument|cannot|expected|file|give|is|must|name|no|not|options|see|the|this|usage|your)(?![\w-])"
)
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
ZH = ("--lang", "zh")
HELPS: list[list[str]] = [
    *([], ["diagnose"], ["fix"], ["flags"]),
    *(["rules"], ["rules", "list"], ["rules", "show"], ["rules", "test"]),
]


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_tables_have_the_same_keys_and_placeholders() -> None:
    english, chinese = table("en"), table("zh")
    assert list(english) == list(chinese)
    assert {key: placeholders(text) for key, text in english.items()} == {
        key: placeholders(text) for key, text in chinese.items()
    }


def test_english_is_english_and_what_has_words_is_chinese_in_chinese() -> None:
    assert [key for key, text in table("en").items() if CHINESE.search(text)] == []
    unchanged = [key for key, text in table("zh").items() if not CHINESE.search(text) and "{" not in text]
    assert unchanged == ["version", "hint_install_yaml"]  # a name and a command


class Keys:
    """The keys that the code takes from the tables: literal ones, and the beginnings of those put together."""

    def __init__(self) -> None:
        self.literal: set[str] = set()
        self.beginnings: set[str] = set()
        self.strings: set[str] = set()  # all there are; a key may have come by way of a variable
        for path in (REPOSITORY / "qvl_doctor").rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            speaks = bool(re.search(r"from qvl_doctor.text import .*words", source))
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    self.strings.add(node.value)
                for expression in self._keys_in(node, speaks):
                    self._take(expression)

    def _keys_in(self, node: ast.AST, speaks: bool) -> Iterator[ast.expr]:
        if speaks and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "key":
            yield node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            position = {"words": 1, "DoctorError": 0, "Phrase": 0, "_heading": 0, "_labelled": 0}.get(node.func.id)
            if position is not None:
                yield node.args[position]
                yield from (keyword.value for keyword in node.keywords if keyword.arg == "hint")

    def _take(self, expression: ast.expr) -> None:
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            self.literal.add(expression.value)
        elif isinstance(expression, ast.IfExp):
            self._take(expression.body)
            self._take(expression.orelse)
        elif isinstance(expression, ast.JoinedStr):
            first = expression.values[0]
            assert isinstance(first, ast.Constant), ast.unparse(expression)
            self.beginnings.add(str(first.value))


def test_every_key_in_the_code_is_in_the_tables() -> None:
    keys = Keys()
    assert len(keys.literal) > 80
    assert keys.literal - set(table("en")) == set()
    assert [start for start in keys.beginnings if not any(key.startswith(start) for key in table("en"))] == []


def test_every_key_in_the_tables_is_used() -> None:
    keys = Keys()
    starts = tuple(keys.beginnings)
    assert [key for key in table("en") if key not in keys.strings and not key.startswith(starts)] == []


CASES: dict[str, tuple[list[str], str, str]] = {
    "no such log": (
        ["diagnose", "--log", "nowhere.log"],
        "error_unreadable",
        "无法读取日志 nowhere.log：文件或目录不存在",
    ),
    "nothing given": (["diagnose"], "error_nothing", "请给出 --log"),
    "no vLLM": (["diagnose", "--command", "ls -la"], "error_no_launch", "没有 vLLM 的启动命令"),
    "facts": (
        ["diagnose", "--command", COMMAND, "--facts", "facts.json"],
        "error_facts",
        "主机情况文件 facts.json：gpus 必须是对象的列表；shm_bytes 必须是不小于 0 的数",
    ),
    "unknown rule": (["rules", "show", "no-such-rule"], "error_no_rule", "没有规则 'no-such-rule'"),
    "unknown flag": (["flags", "--no-such-flag"], "error_no_flag", "--no-such-flag：任何 vLLM 版本都没有过"),
    "unknown option": (["fix", "--no-such-option"], "usage_unrecognized", "不认识的参数：--no-such-option"),
    "value missing": (
        ["diagnose", "--log"],
        "usage_one_value",
        "参数 --log：需要一个值（见 qvl-doctor diagnose --help）",
    ),
    "no command": ([], "usage_required", "缺少必需的参数：COMMAND"),
    "no process id": (["flags", "--pid", "x"], "usage_pid", "'x' 不是进程号"),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_are_chinese_on_request(tmp_path: Path, case: str) -> None:
    (tmp_path / "facts.json").write_text('{"gpus": 3, "shm_bytes": -1}')
    arguments, key, expected = CASES[case]
    by_locale = doctor(*arguments, cwd=tmp_path, env={"LC_ALL": "zh_CN.UTF-8", "PYTHONUTF8": "1"})
    assert_user_error(by_locale, expected)
    assert len(by_locale.err.splitlines()) == 1
    assert not ENGLISH_WORD.search(by_locale.err)
    if arguments:  # a command has to come first
        asked = doctor(arguments[0], *ZH, *arguments[1:], cwd=tmp_path)
        assert asked.err == by_locale.err or "rules" in arguments
    english = doctor(*arguments, "--json", cwd=tmp_path)
    assert not CHINESE.search(english.err)
    if case != "value missing":  # there, what follows would be the value
        assert english.document["key"] == key


def test_an_error_document_has_a_key_that_no_language_changes(tmp_path: Path) -> None:
    arguments = ["diagnose", "--log", "nowhere.log", "--json"]
    english, chinese = (doctor(*arguments, *more, cwd=tmp_path).document for more in ((), ZH))
    assert english["key"] == chinese["key"] == "error_unreadable"
    assert english["error"] == "log nowhere.log cannot be read: No such file or directory"
    assert chinese["error"] == "无法读取日志 nowhere.log：文件或目录不存在"


def test_an_error_document_is_as_clean_as_the_line() -> None:
    outcome = doctor("diagnose", "--json", "--api-key", "sk-4f9d1c7ab2e84d0c9a6e5b3f", "\x1b[31m\x07")
    assert "4f9d1c7ab2e84d0c" not in outcome.out + outcome.err
    assert_plain(outcome.document["error"])


def test_remarks_are_chinese_on_request() -> None:
    outcome = doctor("diagnose", "--command", COMMAND, "--gpu", "a toaster\x1b[31m", "--vllm-version", "0.0.1", *ZH)
    assert "--gpu a toaster：看不出是什么 GPU" in outcome.err
    assert "vLLM 0.0.1 比这里已知的任何版本都旧" in outcome.err
    assert_plain(outcome.err)


def test_why_a_command_is_left_alone_is_chinese_on_request() -> None:
    arguments = ["diagnose", "--command", f"eval {WRONG_COMMAND}"]
    assert "由 eval 执行" in doctor(*arguments, *ZH).out
    assert doctor(*arguments, *ZH, "--json").document["command"]["not_editable"] == "it is run by eval"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_ascii_terminal_gets_question_marks_and_no_traceback(language: str) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
    outcome = doctor("diagnose", "--lang", language, "--help", env=ascii_only)
    assert (outcome.code, outcome.err) == (0, "")
    assert "--command-file" in outcome.out


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_chinese_help_has_all_that_the_english_one_has(arguments: list[str]) -> None:
    english = doctor(*arguments, "--help").out
    chinese = doctor(*arguments, "--help", env={"LC_ALL": "zh_CN.UTF-8", "PYTHONUTF8": "1"}).out
    assert set(OPTION.findall(english)) <= set(OPTION.findall(chinese))
    assert not CHINESE.search(english)
    examples = english.partition("examples:")[2]
    assert examples == chinese.partition("示例:")[2]
    own = chinese.removesuffix(examples)
    assert own.startswith("用法： ")
    assert ENGLISH_WORD.findall(own) == []


def test_lang_is_enough_for_chinese_help() -> None:
    assert doctor("diagnose", *ZH, "--help").out == doctor("diagnose", "--lang=zh", "--help").out
    assert "用法" in doctor("diagnose", *ZH, "--help").out


def test_no_chinese_help_text_is_left_over() -> None:
    source = (REPOSITORY / "qvl_doctor" / "cli.py").read_text(encoding="utf-8")
    literals = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    assert [text for text in list(TEXTS)[4:] if text not in literals] == []  # the first four are argparse's own


@pytest.mark.parametrize(
    ("argv", "language"),
    [
        (["fix", "--lang", "zh", "--nonsense"], "zh"),
        (["fix", "--lang=zh"], "zh"),
        (["fix", "--lang", "zh", "--lang", "en"], "en"),
        (["fix", "--lang", "fr"], "en"),
        (["fix", "--lang"], "en"),
        (["fix", "--language=zh"], "en"),
        (["fix", "zh"], "en"),
        ([], "en"),
    ],
)
def test_the_language_is_known_before_the_arguments_are(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], language: str
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert language_asked(argv) == language


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("usage_choice", "argument --lang: invalid choice: 'fr' (choose from 'en', 'zh')"),
        ("usage_choice", "argument --lang: invalid choice: 'a: b' (choose from en, zh)"),
        ("usage_exclusive", "argument --command-file: not allowed with argument --command"),
        ("usage_no_value", "argument --json: ignored explicit argument '3'"),
        ("usage_one_value", "argument --log: expected one argument"),
        ("usage_values", "argument --explain-upgrade: expected 2 arguments"),
        ("usage_required", "the following arguments are required: ID"),
        ("usage_unrecognized", "unrecognized arguments: {a} %s\nb"),
        ("usage_other", "words of a later Python"),
    ],
)
def test_argparse_words_come_out_as_they_went_in(key: str, message: str) -> None:
    error = usage_error(message, "qvl-doctor fix")
    assert (error.key, str(error)) == (key, message)
    assert error.hint_text("zh") == "见 qvl-doctor fix --help"


def test_values_may_be_named_as_the_parameters_are_and_hold_braces() -> None:
    error = DoctorError("error_no_rule", hint="hint_rules_list", name="'{path}'")
    assert str(error) == "no rule '{path}'"
    with pytest.raises(KeyError):
        words("en", "no_such_key")
