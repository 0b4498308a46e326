"""Arguments to flags, as vLLM's own parser takes them (`FlexibleArgumentParser`): either spelling of names,
`--flag=value`, dotted JSON keys, short options, negations; `argparse`'s rules for what belongs to a flag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qvl_doctor.core.launch.grammar import SHORT_OPTIONS, FlagGrammar, arity_of, looks_like_switch
from qvl_doctor.core.launch.values import Flag, LineIndex, Problem, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import record

_DASHES = "-–—−‐‑‒―－﹣⸺"
_FLAG = lazy_regex(rf"(?P<dashes>[{_DASHES}]{{1,3}})(?P<name>[A-Za-z][\w.+-]*)(?P<equals>=?)")
_NEGATIVE_NUMBER = lazy_regex(r"-\d+$|-\d*\.\d+$")  # argparse's own
_LEVEL = lazy_regex(r"-O(?P<equals>=?)(?P<level>[^.={\s][^={\s]*)")


@record
class FlagName:
    """A flag's name as written, taken apart."""

    name: str
    path: tuple[str, ...]
    negated: bool
    smart: bool  # written with typographic dashes


def flag_name(spelled: str, grammar: FlagGrammar) -> FlagName | None:
    """None if `spelled` (without "=value") is not a flag's name."""
    match = _FLAG.fullmatch(spelled)
    if match is None:
        return None
    dashes = match["dashes"]
    smart = set(dashes) != {"-"}
    # Typesetting turns "--" into one long dash; a short option keeps its one hyphen.
    short = len(dashes) == 1 and dashes in "-‐‑−﹣－"
    head, *path = match["name"].split(".")
    keys = tuple(key.removesuffix("+") for key in path if key)
    if short:
        option = "-" + head
        if option == "-O" and keys:
            return FlagName("--compilation-config", keys, False, smart)
        return FlagName(SHORT_OPTIONS.get(option, option.replace("_", "-")), keys, False, smart)
    name = "--" + head.replace("_", "-")
    if name.startswith("--no-") and len(name) > 5 and not (grammar.arity(name) and not grammar.arity("--" + name[5:])):
        return FlagName("--" + name[5:], keys, True, smart)
    return FlagName(name, keys, False, smart)


def canonical(name: str, grammar: FlagGrammar) -> FlagName:
    """The parts of a flag's name as rules and users give it; what is not one stands for itself."""
    return flag_name(name, grammar) or FlagName(name, (), False, False)


def is_flag(value: str) -> bool:
    """Whether argparse (or the eye, with typographic dashes) takes the argument for an option."""
    return (
        _FLAG.match(value) is not None and _NEGATIVE_NUMBER.match(value) is None and " " not in value.split("=", 1)[0]
    )


@record
class Arguments:
    flags: tuple[Flag, ...]
    positionals: tuple[Word, ...]
    problems: tuple[Problem, ...]


class ArgumentReader:
    """One pass over the words behind the program's name."""

    def __init__(self, words: Sequence[Word], grammar: FlagGrammar, lines: LineIndex) -> None:
        self.words = words
        self.grammar = grammar
        self.lines = lines
        self.flags: list[Flag] = []
        self.positionals: list[Word] = []
        self.problems: list[Problem] = []

    def read(self, *, model_expected: bool) -> Arguments:
        index = 0
        while index < len(self.words):
            word = self.words[index]
            if word.value == "--":
                self.positionals.extend(self.words[index + 1 :])
                break
            if is_flag(word.value):
                index = self._flag(index, model_expected=model_expected and not self.positionals)
            else:
                if word.value.strip():  # `\ ` behind a line is an argument of one blank; noted by the lexer
                    self.positionals.append(word)
                index += 1
        return Arguments(tuple(self.flags), tuple(self.positionals), tuple(self.problems))

    def _flag(self, index: int, *, model_expected: bool) -> int:
        word = self.words[index]
        level = _LEVEL.fullmatch(word.value)
        if level and not word.value.startswith("-O."):
            self._add("-O", FlagName("--optimization-level", (), False, False), [level["level"]], [word], joined=True)
            return index + 1
        if word.value.startswith("-O{"):
            self._add("-O", FlagName("--compilation-config", (), False, False), [word.value[2:]], [word], joined=True)
            return index + 1
        spelled, equals, value = word.value.partition("=")
        name = flag_name(spelled, self.grammar)
        if name is None:
            self.positionals.append(word)
            return index + 1
        if name.smart:
            self.problems.append(Problem("smart-dash", spelled, self.lines.line(word.start)))
        if equals:
            self._add(spelled, name, [value], [word], joined=True)
            return index + 1
        values = self._values(index + 1, name, model_expected=model_expected)
        if spelled == "-O" and values and values[0].value.startswith("{"):
            name = FlagName("--compilation-config", (), False, False)
        self._add(spelled, name, [found.value for found in values], [word, *values], joined=False)
        return index + 1 + len(values)

    def _values(self, index: int, name: FlagName, *, model_expected: bool) -> list[Word]:
        """The words that belong to a flag."""
        following = self._plain(index)
        if following is None:
            return []
        arity = "one" if name.path else arity_of(name.name, self.grammar)
        if arity == "many":
            if following.value.startswith("{") and following.value.endswith("}"):
                return [following]
            return self._many(index)
        # A JSON value broken by the shell at its blanks is one value in the user's mind.
        if following.value.startswith("{") and not name.negated and arity in ("one", None):
            return self._json(index)
        boolean = following.value.lower() in ("true", "false")
        if name.negated or arity == "switch":
            return [following] if boolean else []
        if arity == "optional":
            return [following] if boolean or name.name != "--enable-chunked-prefill" else []
        if arity is None and looks_like_switch(name.name):
            after = self._plain(index + 1)
            takes = boolean or (not model_expected and after is None and not _reads_like_model(following.value))
            return [following] if takes else []
        return [following]

    def _plain(self, index: int) -> Word | None:
        if index >= len(self.words):
            return None
        word = self.words[index]
        return None if is_flag(word.value) or not word.value.strip() or word.value == "--" else word

    def _many(self, index: int) -> list[Word]:
        found: list[Word] = []
        while (word := self._plain(index + len(found))) is not None:
            found.append(word)
        return found

    def _json(self, index: int) -> list[Word]:
        """Words up to the one that closes the brace: unquoted JSON with blanks."""
        depth = 0
        found: list[Word] = []
        while index + len(found) < len(self.words):
            word = self.words[index + len(found)]
            if is_flag(word.value):
                break
            found.append(word)
            depth += word.value.count("{") - word.value.count("}")
            if depth <= 0:
                return found
        return found[:1]

    def _add(self, spelled: str, name: FlagName, values: list[str], words: list[Word], *, joined: bool) -> None:
        first, last = words[0], words[-1]
        inserted = first.layer is not last.layer or first.lstart > last.lstart
        self.flags.append(
            Flag(
                name=name.name,
                path=name.path,
                negated=name.negated,
                spelled=spelled,
                value=" ".join(values) if values else None,
                line=self.lines.line(first.start),
                start=first.start,
                end=first.end if inserted else last.end,
                values=tuple(values),
                joined=joined,
                unresolved=any(word.unresolved or word.dynamic for word in words),
                words=tuple(words),
            )
        )


def _reads_like_model(value: str) -> bool:
    return "/" in value or re.match(r"(?i)qwen|llama|\$|<", value) is not None
