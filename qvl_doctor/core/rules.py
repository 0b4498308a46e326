"""Rule files: one TOML document is one cause. Parsing returns the rule or every problem of the file, with lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from qvl_doctor.core.clauses import Clause, ClauseError, parse_clause, parse_specifier
from qvl_doctor.core.facts import REGISTRY
from qvl_doctor.core.findings import (
    CONFIDENCES,
    OPS,
    SAFETIES,
    SCOPES,
    SEVERITIES,
    Confidence,
    Op,
    Safety,
    Scope,
    Severity,
)
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.messages import placeholders, required_placeholders
from qvl_doctor.core.records import field, record

SCHEMA = 1
LANGUAGES = ("en", "zh")
LINE_LISTS = ("flags", "gpus")  # what `foreach` can walk over

Kind = Literal["log", "also", "never"]
_ID = lazy_regex(r"^[a-z][a-z0-9]*(-[a-z0-9.]+)*$")
_COMPUTED = ("plan.", "derived.", "effective.", "model.")
_TEXT_KEYS = ("title", "why", "todo")


@record
class RuleProblem:
    """What is wrong with a rule file, and where."""

    where: str
    message: str


@record
class When:
    """One alternative under which the rule fires; all of its parts must hold."""

    index: int
    log: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    pick: Literal["first", "last"] = "first"
    phase: tuple[str, ...] = ()
    vllm: str | None = None  # a PEP 440 range
    confidence: Confidence = "certain"
    severity: Severity | None = None  # in place of the rule's own
    risk: bool | None = None  # likewise
    facts: tuple[Clause, ...] = ()
    text: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@record
class Fix:
    """One edit that the rule proposes where its conditions hold; `value` may hold placeholders."""

    op: Op
    name: str
    value: str | None
    value_zh: str | None  # where the value is a sentence (host, client)
    safety: Safety
    group: str | None
    vllm: str | None
    facts: tuple[Clause, ...]
    reason: Mapping[str, str]


@record
class Sample:
    """A test of the rule that lives beside it."""

    index: int
    fires: bool
    first: bool = True
    vllm: str | None = None
    launch: str | None = None
    log: str | None = None
    log_file: str | None = None
    gpu: str | None = None
    host: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[str, ...] | None = None


@record
class Rule:
    """One cause: when it is seen, what it says, what mends it."""

    id: str
    severity: Severity
    risk: bool
    status: Literal["stable", "preview"]
    rank: int
    cluster: str | None
    scope: Scope
    fallback: bool
    foreach: str | None
    explains: tuple[str, ...]
    aliases: tuple[str, ...]
    sources: tuple[str, ...]
    when: tuple[When, ...]
    fix: tuple[Fix, ...]
    text: Mapping[str, Mapping[str, str]]
    samples: tuple[Sample, ...]
    where: str

    def patterns(self) -> list[tuple[str, str]]:
        """(key, regex) of every log pattern of the rule, as the log reader takes them."""
        return [
            (pattern_key(self.id, when.index, kind, position), regex)
            for when in self.when
            for kind in get_args(Kind)
            for position, regex in enumerate(getattr(when, kind))
        ]


def pattern_key(rule_id: str, when_index: int, kind: str, position: int) -> str:
    """The name under which the log reader reports one pattern of one rule."""
    return f"{rule_id}#{when_index}.{kind}.{position}"


def parse_rule(text: str, where: str, *, file_stem: str | None = None) -> tuple[Rule | None, tuple[RuleProblem, ...]]:
    """The rule in a TOML text, or all that is wrong with it. Never raises.

    `where` names the file in messages; `file_stem`, where given, must equal the rule's id.
    """
    import tomllib  # noqa: PLC0415 - checked rules are documents already

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        return None, (RuleProblem(f"{where}:{line[1] if line else 1}", f"not valid TOML: {error}"),)
    reader = _Reader(document, where, text)
    rule = reader.rule(file_stem)
    problems = tuple(reader.problems)
    return (None if problems else rule), problems


def checked_rule(document: Mapping[str, Any], where: str, *, with_log: bool = True) -> Rule | None:
    """The rule in a document that `parse_rule` has accepted before: nothing is checked or compiled again.

    `with_log` = False leaves out the alternatives that only a log can make hold.
    """
    reader = _Reader(document, where, None, with_log=with_log)
    rule = reader.rule(None)
    return None if reader.problems else rule


def rests_on_log(document: Mapping[str, Any]) -> bool:
    """Whether no alternative of the rule can hold without a log."""
    return all(isinstance(when, dict) and _needs_log(when) for when in document.get("when", ()))


def _needs_log(when: Mapping[str, Any]) -> bool:
    return bool(when.get("log") or when.get("also"))


class _Reader:
    """Reads one document, collecting every problem instead of stopping at the first.

    Without `text` the document is known to be good: patterns and fact names are taken as they are.
    """

    def __init__(self, document: Mapping[str, Any], where: str, text: str | None, *, with_log: bool = True) -> None:
        self.document = document
        self.lines = [] if text is None else text.splitlines()
        self.checks = text is not None
        self.with_log = with_log
        self.where = where
        self.problems: list[RuleProblem] = []

    def problem(self, message: str, *, table: str | None = None, index: int = 0, key: str | None = None) -> None:
        self.problems.append(RuleProblem(f"{self.where}:{self._line(table, index, key)}", message))

    def _line(self, table: str | None, index: int, key: str | None) -> int:
        start = 0
        if table is not None:
            headers = [n for n, line in enumerate(self.lines) if re.match(rf"\s*\[+{re.escape(table)}\]+", line)]
            start = headers[index] if index < len(headers) else 0
        if key is not None:
            for number in range(start, len(self.lines)):
                if re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", self.lines[number]):
                    return number + 1
        return start + 1

    def rule(self, file_stem: str | None) -> Rule | None:
        known = {
            "schema", "id", "severity", "status", "risk", "rank", "cluster", "scope", "fallback", "foreach", "explains",
            "aliases", "sources", "when", "fix", "en", "zh", "sample",
        }  # fmt: skip
        self._unknown_keys(self.document, known, None, 0)
        if self.document.get("schema") != SCHEMA:
            self.problem(f"schema must be {SCHEMA}", key="schema")
        rule_id = self._id(file_stem)
        when = tuple(
            self._when(entry, index)
            for index, entry in enumerate(self._tables("when"))
            if self.with_log or not _needs_log(entry)
        )
        if not when:
            self.problem("a rule needs at least one [[when]]")
        rule = Rule(
            id=rule_id,
            severity=self._choice("severity", SEVERITIES, "error"),
            risk=self._bool("risk"),
            status=self._choice("status", ("stable", "preview"), "stable"),
            rank=self._rank(),
            cluster=self._optional_text("cluster"),
            scope=self._choice("scope", SCOPES, "server"),
            fallback=self._bool("fallback"),
            foreach=self._foreach(),
            explains=self._texts(self.document, "explains", None, 0),
            aliases=self._texts(self.document, "aliases", None, 0),
            sources=self._texts(self.document, "sources", None, 0),
            when=when,
            fix=tuple(self._fix(entry, index) for index, entry in enumerate(self._tables("fix"))),
            text={language: self._language(language) for language in LANGUAGES},
            samples=tuple(self._sample(entry, index) for index, entry in enumerate(self._tables("sample"))),
            where=self.where,
        )
        if self.checks:
            self._check_placeholders(rule)
        return rule

    def _id(self, file_stem: str | None) -> str:
        rule_id = self.document.get("id")
        if not isinstance(rule_id, str) or not _ID.match(rule_id):
            self.problem(f"id must be a slug such as max-len-exceeds-kv, got {rule_id!r}", key="id")
            return "?"
        if file_stem is not None and rule_id != file_stem:
            self.problem(f"id {rule_id!r} differs from the file's name {file_stem!r}", key="id")
        return rule_id

    def _unknown_keys(self, table: Mapping[str, Any], known: set[str], name: str | None, index: int) -> None:
        for key in table if self.checks else ():
            if key not in known:
                self.problem(
                    f"unknown key {key!r}; known are {', '.join(sorted(known))}", table=name, index=index, key=key
                )

    def _tables(self, name: str) -> list[Mapping[str, Any]]:
        entries = self.document.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.problem(f"{name} must be written as [[{name}]] tables", table=name)
            return []
        return entries

    def _choice(self, key: str, options: tuple[Any, ...], default: str) -> Any:
        value = self.document.get(key, default)
        if value not in options:
            self.problem(f"{key} must be one of {', '.join(options)}, got {value!r}", key=key)
            return default
        return value

    def _bool(self, key: str) -> bool:
        value = self.document.get(key, False)
        if not isinstance(value, bool):
            self.problem(f"{key} must be true or false, got {value!r}", key=key)
            return False
        return value

    def _rank(self) -> int:
        value = self.document.get("rank", 50)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(f"rank must be a whole number, got {value!r}", key="rank")
            return 50
        return value

    def _optional_text(self, key: str) -> str | None:
        value = self.document.get(key)
        if value is not None and not isinstance(value, str):
            self.problem(f"{key} must be text, got {value!r}", key=key)
            return None
        return value

    def _foreach(self) -> str | None:
        value = self._optional_text("foreach")
        if value is not None and value not in LINE_LISTS:
            self.problem(f"foreach must be one of {', '.join(LINE_LISTS)}, got {value!r}", key="foreach")
        return value

    def _texts(self, table: Mapping[str, Any], key: str, name: str | None, index: int) -> tuple[str, ...]:
        value = table.get(key, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(f"{key} must be a text or a list of texts, got {value!r}", table=name, index=index, key=key)
            return ()
        return tuple(value)

    def _patterns(self, entry: Mapping[str, Any], key: str, index: int) -> tuple[str, ...]:
        patterns = self._texts(entry, key, "when", index)
        if not self.checks:
            return patterns
        from qvl_doctor.core.logs.regexes import regex_problem  # noqa: PLC0415 - checked rules do not need it

        for pattern in patterns:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                self.problem(f"{key}: pattern {pattern!r}: {error}", table="when", index=index, key=key)
                continue
            if (costly := regex_problem(pattern)) is not None:
                self.problem(f"{key}: pattern {pattern!r}: {costly}", table="when", index=index, key=key)
            if compiled.match(""):
                self.problem(f"{key}: pattern {pattern!r} matches an empty line", table="when", index=index, key=key)
        return patterns

    def _clauses(self, entry: Mapping[str, Any], name: str, index: int) -> tuple[Clause, ...]:
        facts = entry.get("facts", {})
        if not isinstance(facts, dict):
            self.problem("facts must be a table of clauses", table=name, index=index, key="facts")
            return ()
        clauses = []
        for fact, text in facts.items():
            try:
                if not isinstance(text, str):
                    raise ClauseError(f'a clause is a text such as "> 1", got {text!r}')
                clauses.append(parse_clause(fact, text, compiles=self.checks))
            except ClauseError as error:
                self.problem(f"{fact}: {error}", table=name, index=index, key="facts")
        return tuple(clauses)

    def _specifier(self, entry: Mapping[str, Any], name: str, index: int) -> str | None:
        text = entry.get("vllm")
        if text is None:
            return None
        try:
            text = text if isinstance(text, str) else repr(text)
            if self.checks:
                parse_specifier(text)
            return text
        except ClauseError as error:
            self.problem(str(error), table=name, index=index, key="vllm")
            return None

    def _when(self, entry: Mapping[str, Any], index: int) -> When:
        known = {"log", "also", "never", "pick", "phase", "vllm", "confidence", "severity", "risk", "facts", *LANGUAGES}
        self._unknown_keys(entry, known, "when", index)
        confidence = entry.get("confidence", "certain")
        if confidence not in CONFIDENCES:
            self.problem(
                f"confidence must be one of {', '.join(CONFIDENCES)}", table="when", index=index, key="confidence"
            )
        severity, risk = entry.get("severity"), entry.get("risk")
        if severity is not None and severity not in SEVERITIES:
            self.problem(f"severity must be one of {', '.join(SEVERITIES)}", table="when", index=index, key="severity")
        if risk is not None and not isinstance(risk, bool):
            self.problem("risk must be true or false", table="when", index=index, key="risk")
        pick = entry.get("pick", "first")
        if pick not in ("first", "last"):
            self.problem("pick must be first or last", table="when", index=index, key="pick")
        severity, risk = entry.get("severity"), entry.get("risk")
        if severity is not None and severity not in SEVERITIES:
            self.problem(f"severity must be one of {', '.join(SEVERITIES)}", table="when", index=index, key="severity")
        if risk is not None and not isinstance(risk, bool):
            self.problem("risk must be true or false", table="when", index=index, key="risk")
        when = When(
            index=index,
            log=self._patterns(entry, "log", index),
            also=self._patterns(entry, "also", index),
            never=self._patterns(entry, "never", index),
            pick=pick,
            phase=self._texts(entry, "phase", "when", index),
            vllm=self._specifier(entry, "when", index),
            confidence=confidence,
            severity=severity if severity in SEVERITIES else None,
            risk=risk if isinstance(risk, bool) else None,
            facts=self._clauses(entry, "when", index),
            text={language: entry[language] for language in LANGUAGES if isinstance(entry.get(language), dict)},
        )
        if not when.log and not when.also and not when.facts:
            self.problem("an alternative needs log lines or facts to rest on", table="when", index=index)
        return when

    def _fix(self, entry: Mapping[str, Any], index: int) -> Fix:
        known = {"op", "name", "value", "value_zh", "safety", "group", "vllm", "facts", *LANGUAGES}
        self._unknown_keys(entry, known, "fix", index)
        op, safety = entry.get("op"), entry.get("safety", "safe")
        if op not in OPS:
            self.problem(f"op must be one of {', '.join(OPS)}, got {op!r}", table="fix", index=index, key="op")
        if safety not in SAFETIES:
            self.problem(f"safety must be one of {', '.join(SAFETIES)}", table="fix", index=index, key="safety")
        name, value = entry.get("name"), entry.get("value")
        if not isinstance(name, str) or not name:
            self.problem("a fix needs the name of what it changes", table="fix", index=index, key="name")
        spoken = op in ("host", "client") and isinstance(value, str) and " " in value
        if self.checks and spoken and not isinstance(entry.get("value_zh"), str):
            self.problem("a value that is a sentence needs value_zh beside it", table="fix", index=index, key="value")
        if not isinstance(entry.get("group", ""), str):
            self.problem("group must be text", table="fix", index=index, key="group")
        reason = {language: entry.get(language, "") for language in LANGUAGES}
        if any(not isinstance(text, str) or not text for text in reason.values()):
            self.problem("a fix needs its reason in every language (en = …, zh = …)", table="fix", index=index)
        return Fix(
            op=op if op in OPS else "set",
            name=str(name),
            value=None if value is None else str(value),
            value_zh=entry.get("value_zh"),
            safety=safety if safety in SAFETIES else "manual",
            group=entry.get("group"),
            vllm=self._specifier(entry, "fix", index),
            facts=self._clauses(entry, "fix", index),
            reason=reason,
        )

    def _language(self, language: str) -> Mapping[str, str]:
        table = self.document.get(language)
        if not isinstance(table, dict):
            self.problem(f"the text in {language!r} is missing: [{language}] with {', '.join(_TEXT_KEYS)}")
            return {}
        self._unknown_keys(table, set(_TEXT_KEYS), language, 0)
        for key in _TEXT_KEYS:
            if not isinstance(table.get(key), str) or not table[key]:
                self.problem(f"[{language}] needs {key}", table=language, key=key)
        return {key: table[key] for key in _TEXT_KEYS if isinstance(table.get(key), str)}

    def _sample(self, entry: Mapping[str, Any], index: int) -> Sample:
        known = {"fires", "first", "vllm", "launch", "log", "log_file", "gpu", "host", "edits", "name"}
        self._unknown_keys(entry, known, "sample", index)
        if not isinstance(entry.get("fires"), bool):
            self.problem("a sample says fires = true or false", table="sample", index=index, key="fires")
        if not isinstance(entry.get("host", {}), dict):
            self.problem("host must be a table of host facts", table="sample", index=index, key="host")
        for key in ("vllm", "launch", "log", "log_file", "gpu"):
            if not isinstance(entry.get(key, ""), str):
                self.problem(f"{key} must be text", table="sample", index=index, key=key)
        edits = self._texts(entry, "edits", "sample", index) if "edits" in entry else None
        return Sample(
            index=index,
            fires=bool(entry.get("fires")),
            first=bool(entry.get("first", True)),
            edits=edits,
            host=entry.get("host", {}) if isinstance(entry.get("host", {}), dict) else {},
            **{key: entry.get(key) for key in ("vllm", "launch", "log", "log_file", "gpu")},
        )

    def _check_placeholders(self, rule: Rule) -> None:
        groups = {f"match.{name}" for when in rule.when for pattern in when.log for name in _group_names(pattern)}
        for language, key, template in _templates(rule):
            for name in sorted(placeholders(template)):
                self._check_fact(name, groups, language, key)
        for when in rule.when:
            for clause in when.facts:
                for name in filter(None, (clause.fact, clause.other)):
                    self._check_fact(name, groups, "when", "facts", when.index)
        for index, fix in enumerate(rule.fix):
            names = {*placeholders(fix.value or ""), *(clause.fact for clause in fix.facts)}
            for name in sorted(names):
                self._check_fact(name, groups, "fix", "value", index)
        english, chinese = (rule.text.get(language, {}) for language in LANGUAGES)
        for key in _TEXT_KEYS:
            first, second = (required_placeholders(text.get(key, "")) for text in (english, chinese))
            if key == "title" and first != second:
                self.problem(
                    f"title: the languages fill in different facts: {sorted(first ^ second)}", table="zh", key=key
                )

    def _check_fact(self, name: str, groups: set[str], table: str, key: str, index: int = 0) -> None:
        if name.startswith("match.") and name not in groups:
            self.problem(f"{name} is no named group of this rule's log patterns", table=table, index=index, key=key)
        if name.startswith(_COMPUTED) and name not in REGISTRY:
            self.problem(f"{name} is no derived fact", table=table, index=index, key=key)


def _templates(rule: Rule) -> list[tuple[str, str, str]]:
    """(table, key, template) of all message texts of the rule."""
    found = [(language, key, text) for language, texts in rule.text.items() for key, text in texts.items()]
    for when in rule.when:
        for language, texts in when.text.items():
            found += [(f"when.{language}", key, str(text)) for key, text in texts.items()]
    for fix in rule.fix:
        found += [("fix", language, text) for language, text in fix.reason.items() if isinstance(text, str)]
    return found


def _group_names(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(re.compile(pattern).groupindex)
    except re.error:
        return ()
