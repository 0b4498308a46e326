"""Shell words to arguments: variables that the same text assigns plainly are filled in, arrays spread out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qvl_doctor.core.launch.shell import Piece, Token
from qvl_doctor.core.launch.values import Layer, Word
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import field, record

MAX_WORD_CHARACTERS = 16_384  # of one expanded word: variables may name each other, never without bound
MAX_WORDS = 20_000  # of one command or array
MAX_INSERTED = 2_000_000  # characters that variables may add to one document, all in all

_ASSIGNMENT = lazy_regex(r"(?P<name>[A-Za-z_]\w*)(?P<plus>\+?)=")
_BRACED = lazy_regex(r"(?P<name>[A-Za-z_]\w*)(?:(?P<array>\[[@*]\])|(?P<op>:?[-=])(?P<default>.*))?", re.DOTALL)


@record(frozen=False)
class Variables:
    """What the text has assigned up to here."""

    plain: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    budget: int = MAX_INSERTED

    def take(self, characters: int) -> bool:
        """Whether that much may still be inserted; what may not stays as the variable's name."""
        self.budget -= characters + 1
        return self.budget > 0


@record(frozen=False)
class _Builder:
    layer: Layer
    start: int
    end: int
    value: list[str] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0
    unresolved: bool = False
    dynamic: bool = False

    def add(self, text: str, position: int) -> None:
        if text:
            self.runs.append((self.size, position))
            self.value.append(text)
            self.size += len(text)

    def word(self) -> Word:
        in_step = all(position - index == self.start for index, position in self.runs)
        runs = () if in_step else tuple(self.runs)
        return Word("".join(self.value), self.layer, self.start, self.end, runs, self.unresolved, self.dynamic)


def literal_word(token: Token, layer: Layer) -> Word:
    """The word with nothing filled in."""
    return expand(token, layer, Variables())[0]


def expand(token: Token, layer: Layer, known: Variables) -> list[Word]:
    """The arguments a word becomes: one, or those of an array or of a variable that the shell splits."""
    spread = _spread(token.pieces, known)
    if spread is not None:
        return spread
    builder = _Builder(layer, token.start, token.end)
    for piece in token.pieces:
        if piece.kind == "text":
            builder.add(piece.text, piece.start)
        elif piece.kind == "variable":
            _expand_variable(piece, known, builder, layer)
        else:
            builder.dynamic = True
            builder.add(layer.text[piece.start : piece.end], piece.start)
    return [builder.word()]


def _spread(pieces: Sequence[Piece], known: Variables) -> list[Word] | None:
    """`"${ARGS[@]}"` and `$ARGS` alone in a word."""
    telling = [piece for piece in pieces if piece.text]
    if len(telling) != 1 or telling[0].kind != "variable":
        return None
    match = _BRACED.fullmatch(telling[0].text)
    if match is None:
        return None
    if match["array"]:
        elements = known.arrays.get(match["name"])
        if elements is None or not known.take(sum(len(word.value) for word in elements)):
            return None
        return [_inserted(word) for word in elements]
    word = known.plain.get(match["name"])
    if word is None or telling[0].quoted or not re.search(r"\s", word.value) or word.dynamic:
        return None
    if not known.take(len(word.value)):
        return None
    return [_slice(word, found.start(), found.end()) for found in re.finditer(r"\S+", word.value)]


def _inserted(word: Word) -> Word:
    return Word(word.value, word.layer, word.lstart, word.lend, word.runs, word.unresolved, word.dynamic, True)


def _slice(word: Word, start: int, end: int) -> Word:
    """A part of a variable's value, as a word of its own where it was written."""
    lstart, lend = word.locate(start), word.locate(end - 1) + 1
    value = word.value[start:end]
    runs: tuple[tuple[int, int], ...] = ()
    if word.runs and word.layer.text[lstart:lend] != value:
        runs = tuple((max(index - start, 0), word.locate(max(index, start))) for index, _ in word.runs if index < end)
    return Word(value, word.layer, lstart, lend, runs, word.unresolved, word.dynamic, True)


def _expand_variable(piece: Piece, known: Variables, builder: _Builder, layer: Layer) -> None:
    match = _BRACED.fullmatch(piece.text)
    word = known.plain.get(match["name"]) if match else None
    if word is not None and builder.size + len(word.value) <= MAX_WORD_CHARACTERS and known.take(len(word.value)):
        builder.add(word.value, piece.start)
        builder.unresolved = builder.unresolved or word.unresolved
        builder.dynamic = builder.dynamic or word.dynamic
    elif match and match["op"] and "$" not in match["default"]:
        builder.add(match["default"], piece.start)
    else:
        builder.unresolved = True
        builder.add(layer.text[piece.start : piece.end], piece.start)


def expand_all(tokens: Iterable[Token], layer: Layer, known: Variables) -> list[Word]:
    """The arguments of several words, up to `MAX_WORDS`."""
    found: list[Word] = []
    for token in tokens:
        if len(found) >= MAX_WORDS:
            break
        found.extend(expand(token, layer, known))
    return found[:MAX_WORDS]


def assignment(token: Token) -> re.Match[str] | None:
    """NAME= or NAME+= at the start of a word."""
    if not token.pieces or token.pieces[0].kind != "text" or token.pieces[0].quoted:
        return None
    return _ASSIGNMENT.match(token.pieces[0].text)


def assigned(token: Token, layer: Layer, known: Variables) -> tuple[str, Word]:
    """The name of an `assignment`, and a word that holds its value alone."""
    match = assignment(token)
    assert match is not None  # the caller asked
    return match["name"], value_part(expand(token, layer, known)[0], match.end())


def assign(token: Token, elements: Iterable[Token] | None, layer: Layer, known: Variables) -> tuple[str, Word]:
    """Enter an `assignment` in `known`; `elements` are the tokens of an array. Its name and value."""
    name, value = assigned(token, layer, known)
    match = assignment(token)
    adds = match is not None and bool(match["plus"])
    if elements is not None:
        array = known.arrays.setdefault(name, [])
        if not adds:
            array = known.arrays[name] = []
        array.extend(expand_all(elements, layer, known)[: MAX_WORDS - len(array)])
        known.plain.pop(name, None)
        return name, value
    before = known.plain.get(name)
    if adds and before is not None and len(before.value) < MAX_WORD_CHARACTERS and known.take(len(before.value)):
        joined = before.value + value.value
        value = Word(joined, layer, value.lstart, value.lend, ((0, value.lstart),), value.unresolved, value.dynamic)
    known.plain[name] = value
    return name, value


def value_part(word: Word, index: int) -> Word:
    """The word behind `value[:index]`, quotes included in its span."""
    lstart = word.locate(index - 1) + 1
    value = word.value[index:]
    runs: tuple[tuple[int, int], ...] = ()
    if word.runs or word.layer.text[lstart : word.lend] != value:
        runs = tuple((max(at - index, 0), word.locate(max(at, index))) for at, _ in word.runs if at >= index) or (
            (0, word.locate(index)),
        )
        if runs[0][0] != 0:
            runs = ((0, word.locate(index)), *runs)
    return Word(value, word.layer, lstart, word.lend, runs, word.unresolved, word.dynamic)
