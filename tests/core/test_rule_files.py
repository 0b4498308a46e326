"""Rule files: every problem is named at once, with its line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qvl_doctor.core.rules import parse_rule

GOOD = """\
schema = 1
id = "demo-rule"
severity = "error"
[[when]]
log = 'needs (?P<need>\\d+)'
facts = { "match.need" = "> 3" }
[[fix]]
op = "set"
name = "--max-model-len"
value = "{match.need}"
en = "because"
zh = "因为"
[en]
title = "Needs {match.need}"
why = "Why"
todo = "Do"
[zh]
title = "需要 {match.need}"
why = "原因"
todo = "处理"
[[sample]]
fires = true
log = "needs 4"
[[sample]]
fires = false
log = "needs 2"
"""


def problems(text: str) -> list[str]:
    rule, found = parse_rule(text, "demo.toml", file_stem="demo-rule")
    assert (rule is None) == bool(found)
    return [f"{one.where}: {one.message}" for one in found]


def test_a_good_rule() -> None:
    rule, found = parse_rule(GOOD, "demo.toml", file_stem="demo-rule")
    assert found == ()
    assert rule is not None
    assert rule.patterns() == [("demo-rule#0.log.0", r"needs (?P<need>\d+)")]
    assert [sample.fires for sample in rule.samples] == [True, False]


def test_all_problems_are_named_with_their_lines() -> None:
    text = GOOD.replace('severity = "error"', 'severity = "fatal"').replace('op = "set"', 'op = "add"')
    text = text.replace("(?P<need>\\d+)'", "(?P<need>\\d+'").replace('zh = "因为"\n', "").replace("> 3", "3")
    found = problems(text)
    joined = "\n".join(found)
    assert "demo.toml:3: severity must be one of" in joined
    assert "demo.toml:5: log: pattern" in joined
    assert "demo.toml:6: match.need: '3' has no operator" in joined
    assert "demo.toml:8: op must be one of" in joined
    assert "a fix needs its reason in every language" in joined


def test_broken_toml_names_its_line() -> None:
    assert problems("schema = 1\nid = \n")[0].startswith("demo.toml:2: not valid TOML")


def test_facts_that_nothing_provides() -> None:
    found = "\n".join(problems(GOOD.replace("{match.need}", "{match.nothing}").replace('match.need"', 'plan.nothing"')))
    assert "match.nothing is no named group" in found
    assert "plan.nothing is no derived fact" in found


def test_languages_must_fill_in_the_same_title() -> None:
    assert "languages fill in different facts" in problems(GOOD.replace("需要 {match.need}", "需要"))[0]


def test_file_name_and_id() -> None:
    assert "differs from the file's name" in problems(GOOD.replace("demo-rule", "other-rule"))[0]


def test_unknown_keys_are_named() -> None:
    assert "unknown key 'fact'" in problems(GOOD.replace("facts =", "fact ="))[0]


def test_a_pattern_that_matches_everything_is_refused() -> None:
    assert any(
        "matches an empty line" in one for one in problems(GOOD.replace("needs (?P<need>\\d+)", "(?P<need>\\d*)"))
    )


@given(st.text(max_size=300))
def test_any_text_is_a_rule_or_a_list_of_problems(text: str) -> None:
    rule, found = parse_rule(text, "any.toml")
    assert rule is not None or found


@given(st.dictionaries(st.sampled_from(["schema", "id", "when", "fix", "en", "sample", "rank"]), st.integers()))
def test_wrong_types_are_problems(document: dict[str, int]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in document.items())
    _, found = parse_rule(text, "any.toml")
    assert found
