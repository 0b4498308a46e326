"""Rules are read from folders; the kept form is a cache and nothing more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qvl_doctor import resources
from qvl_doctor.core.logs import LogReader
from qvl_doctor.errors import DoctorError
from qvl_doctor.sources.rule_store import load_rules, rows_of_rules

RULE = """\
schema = 1
id = "{id}"
[[when]]
{when}
[en]
title = "{title}"
why = "why"
todo = "todo"
[zh]
title = "{title}"
why = "why"
todo = "todo"
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """Built-in rules, the user's rules, the cache."""
    shipped, own, cache = tmp_path / "shipped", tmp_path / "own", tmp_path / "cache"
    shipped.mkdir()
    own.mkdir()
    monkeypatch.setattr(resources, "rules_folder", lambda: shipped)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    write(shipped, "by-log", when="log = 'x'")
    write(shipped, "by-command", when='facts = { "launch.dtype" = "== \'half\'" }')
    return shipped, own, cache


def write(folder: Path, rule_id: str, *, when: str = "log = 'x'", title: str = "title") -> None:
    (folder / f"{rule_id}.toml").write_text(RULE.format(id=rule_id, when=when, title=title))


def test_the_second_reading_equals_the_first(folders: tuple[Path, Path, Path]) -> None:
    first = load_rules([])
    assert list((folders[2] / "qvl-doctor").glob("rules-*.json"))
    second = load_rules([])
    assert [rule.id for rule in first] == ["by-command", "by-log"]
    assert [str(rule.when) for rule in second] == [str(rule.when) for rule in first]


def test_rules_that_need_a_log_are_left_out_without_one(folders: tuple[Path, Path, Path]) -> None:
    assert [rule.id for rule in load_rules([], with_log=False)] == ["by-command"]


def test_the_users_rule_replaces_the_shipped_one(folders: tuple[Path, Path, Path]) -> None:
    write(folders[1], "by-log", title="mine")
    titles = {rule.id: rule.text["en"]["title"] for rule in load_rules([str(folders[1])])}
    assert titles == {"by-command": "title", "by-log": "mine"}


def test_a_changed_file_is_read_again(folders: tuple[Path, Path, Path]) -> None:
    load_rules([])
    write(folders[0], "by-log", title="a longer title")
    assert "a longer title" in [rule.text["en"]["title"] for rule in load_rules([])]


def test_a_damaged_cache_is_ignored(folders: tuple[Path, Path, Path]) -> None:
    load_rules([])
    (kept,) = (folders[2] / "qvl-doctor").glob("rules-*.json")
    for damage in ("", "[1, 2]", "{", json.dumps([["x", {"id": 3}]])):
        kept.write_text(damage)
        assert {rule.id for rule in load_rules([])} == {"by-command", "by-log"}
        kept.write_text(kept.read_text().partition("\n")[0] + "\n" + damage)  # behind what it was made from
        assert {rule.id for rule in load_rules([])} == {"by-command", "by-log"}


def test_prepared_regexes_are_kept_and_may_be_damaged(folders: tuple[Path, Path, Path]) -> None:
    """The second reader finds what the first found, with nothing prepared again."""
    rules = load_rules([])
    for damage in (None, "", "[]", "[[1]]", "{", '[["x", 1]]'):
        rows_of_rules(rules)
        (kept,) = (folders[2] / "qvl-doctor").glob("regexes-*.json")
        first, _, prepared = kept.read_text().partition("\n")
        if damage is not None:
            kept.write_text(f"{first}\n{damage}\n")
            rows_of_rules(rules)
            assert kept.read_text().partition("\n")[2] == prepared
        reader = LogReader(rows_of_rules(rules))
        reader.feed(b"a line with x\n")
        assert set(reader.finish().matches) == {"by-log#0.log.0"}


def test_a_rule_with_a_costly_regex_is_refused(folders: tuple[Path, Path, Path]) -> None:
    write(folders[1], "costly", when="log = '(a+)+$'")
    with pytest.raises(DoctorError, match="exponential"):
        load_rules([str(folders[1])])


def test_no_cache_folder_is_no_obstacle(folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folders[2].write_text("a file where the folder should be")
    assert len(load_rules([])) == 2
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert len(load_rules([])) == 2


def test_all_problems_at_once(folders: tuple[Path, Path, Path]) -> None:
    (folders[1] / "broken.toml").write_text("schema = 1\nid = \n")
    write(folders[1], "bad-pattern", when="log = '('")
    with pytest.raises(DoctorError) as caught:
        load_rules([str(folders[1])])
    assert "broken.toml:2" in str(caught.value)
    assert "bad-pattern.toml:4" in str(caught.value)


def test_a_missing_folder_is_named() -> None:
    with pytest.raises(DoctorError, match="does not exist"):
        load_rules(["/nowhere/at/all"])
