"""The documentation holds what it says: links lead somewhere, examples work, both languages show the same commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.harness import REPOSITORY, doctor

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("samples/**/*.md")])
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAIRS = [("README.md", "README.zh.md"), ("docs/rules-format.md", "docs/zh/rules-format.md")]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [body for name, body in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def example_commands(page: Path) -> list[list[str]]:
    """The words of each `qvl-doctor …` line in the page's shell blocks, without pipes before or after it."""
    found = []
    for block in blocks(page, "bash"):
        for line in block.splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
            lexer.whitespace_split = True
            words = list(lexer)
            starts = [at for at, word in enumerate(words) if word.rpartition("/")[2] == "qvl-doctor"]
            for start in starts:
                rest = words[start + 1 :]
                end = next((at for at, word in enumerate(rest) if word in {"|", "&&", "||", ";"}), len(rest))
                found.append(rest[:end])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_both_languages_show_the_same_commands(english: str, chinese: str) -> None:
    def bare(page: str, language: str) -> list[str]:
        kept = [re.sub(r"^\s*#.*\n", "", block, flags=re.MULTILINE) for block in blocks(REPOSITORY / page, language)]
        return [re.sub(r"\n{2,}", "\n", block) for block in kept]

    for language in ("bash", "json", "toml"):
        assert bare(english, language) == bare(chinese, language)


def test_the_examples_of_the_readme_are_found() -> None:
    commands = example_commands(REPOSITORY / "README.md")
    assert {words[0] for words in commands} == {"diagnose", "fix", "rules", "flags"}


@pytest.mark.parametrize("page", ["README.md", "docs/rules-format.md", "docs/development.md"])
def test_options_of_the_examples_exist(page: str) -> None:
    for words in example_commands(REPOSITORY / page):
        known = doctor(words[0], "--help").out
        options = [word for word in words[1:] if word.startswith("--") and words[0] != "flags"]
        assert [option for option in options if option not in known] == []


def test_the_worked_rule_works(tmp_path: Path) -> None:
    (rule,) = blocks(REPOSITORY / "docs" / "rules-format.md", "toml")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "proxy-body-limit.toml").write_text(rule, encoding="utf-8")
    tested = doctor("rules", "test", "mine", cwd=tmp_path)
    assert tested.code == 0, tested
    (tmp_path / "server.log").write_text("gateway: request body of 24 MiB exceeds 10 MiB\n")
    used = doctor("diagnose", "--rules", "mine", "--log", "server.log", "--json", cwd=tmp_path)
    assert (used.code, used.rules) == (1, ["proxy-body-limit"])


def test_the_output_in_the_readme_is_what_is_printed() -> None:
    for page, language in (("README.md", "en"), ("README.zh.md", "zh")):
        words = example_commands(REPOSITORY / page)[0]
        shown = blocks(REPOSITORY / page, "text")[0]
        printed = doctor(*words, "--lang", language, cwd=REPOSITORY).out
        lines = [line.rstrip() for line in printed.strip().splitlines()]
        assert lines == shown.strip().splitlines(), f"{page}: run python scripts/update_readme.py"
