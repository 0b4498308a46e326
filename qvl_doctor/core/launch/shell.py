"""Shell text to tokens and statements, with the span of each.

As POSIX sh splits it, as far as launch commands go: quotes, escapes, continuations, comments, operators, redirections,
heredocs. Never fails: a quote that is never closed is an ordinary character and noted. Linear in the length.
Typographic quotes and odd spaces of web pages are read as they were meant, and noted.
"""

from __future__ import annotations

import re
from typing import Literal

from qvl_doctor.core.launch.values import Layer
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.records import field, record

PieceKind = Literal["text", "variable", "substitution", "template"]
TokenKind = Literal["word", "operator", "redirection", "comment", "newline"]

_BLANKS = lazy_regex(r"[ \t\r]+")
_LINE_END = lazy_regex(r"\r?\n")
_PLAIN = lazy_regex(r"""[^\s\\'"$`;&|()<>{“”‘’‚„«»＂＇\x1c-\x1f\x85]+""")
_IN_DOUBLE = lazy_regex(r'[^"\\$`]+')
_VARIABLE = lazy_regex(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[^{}\n]{1,200})\}|(?P<special>[0-9@*#?$!-]))")
_OPERATOR = lazy_regex(r";;|;|&&|&(?!>)|\|\||\|&|\||\(|\)")
_REDIRECTION = lazy_regex(r"(?:\d{1,3})?(?:>>|>\||>&|<<<|<<-|<<|<&|<>|>|<)|&>>|&>")
_PLACEHOLDER = lazy_regex(r"<[^\W\d][\w .:/|-]{0,80}>(?=[\s\"'/\\:,;.]|$)")
_HEREDOC = lazy_regex(r"(?P<op><<-?)[ \t]*(?P<quote>['\"]?)(?P<word>[\w.-]{1,64})(?P=quote)")
_CLOSING = {"“": '”"“', "”": '”"“', "„": '”“"', "«": "»", "＂": '＂"', "‘": "’'", "’": "’'", "‚": "‘’'", "＇": "＇'"}
_NEAR = 4000  # how far ahead, in characters, templates and typographic quotes may close
_PARENTHESIS = lazy_regex(r"[()]")
_ANSI_C_PLAIN = lazy_regex(r"[^'\\]+")
_ANSI_C = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r"}


@record
class Piece:
    """A run of a word: text that runs in step with the layer from `start` on, or one thing to expand."""

    kind: PieceKind
    text: str  # the text; a variable's name or the inside of its braces
    start: int
    end: int
    quoted: bool


@record
class Token:
    kind: TokenKind
    start: int  # layer positions
    end: int
    text: str = ""
    pieces: tuple[Piece, ...] = ()


@record
class Note:
    """A problem at a layer position."""

    kind: Literal["smart-quote", "odd-space", "unclosed-quote", "space-after-backslash"]
    position: int
    text: str


@record(frozen=False)
class Statement:
    """A simple command: words and redirections up to an operator or a line's end."""

    tokens: list[Token] = field(default_factory=list)  # words, in order
    redirections: list[Token] = field(default_factory=list)
    arrays: dict[int, list[Token]] = field(default_factory=dict)  # index of the NAME=( word -> its elements
    terminator: str = ""  # "", "\n", "&", ";", "|" ...
    end: int = 0  # behind the last word or redirection
    closed: int = 0  # behind the terminator, where that is "&"; else as `end`
    comment: Token | None = None  # behind it on its line
    heredoc: bool = False

    @property
    def start(self) -> int:
        first = [group[0].start for group in (self.tokens, self.redirections) if group]
        return min(first, default=self.end)


@record
class Dialect:
    """`operators`: ; & | and redirections mean something; `newline_ends`: a line's end ends the command."""

    operators: bool = True
    newline_ends: bool = True
    comments: bool = True


SH = Dialect()
ARGUMENTS = Dialect(operators=False, newline_ends=False, comments=False)  # systemd, compose: words only


class Lexer:
    """Tokens of one layer. `notes` fill up on the way."""

    def __init__(self, layer: Layer, dialect: Dialect = SH) -> None:
        self.text = layer.text
        self.dialect = dialect
        self.notes: list[Note] = []
        self.heredocs: list[tuple[int, int]] = []  # layer spans of their bodies
        self._pending: list[tuple[str, bool]] = []
        self._unclosed: set[str] = set()

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        position, size = 0, len(self.text)
        while position < size:
            character = self.text[position]
            if character == "\n":
                if self.dialect.newline_ends:
                    found.append(Token("newline", position, position + 1, "\n"))
                position = self._skip_heredocs(position + 1)
                continue
            skipped = self._blank(position)
            if skipped > position:
                position = skipped
                continue
            if character == "#" and self.dialect.comments:
                end = self.text.find("\n", position)
                end = size if end < 0 else end
                found.append(Token("comment", position, end, self.text[position:end]))
                position = end
                continue
            token = self._operator(position) if self.dialect.operators else None
            if token is None:
                token = self._word(position)
            found.append(token)
            position = max(token.end, position + 1)
        return found

    # --- blanks, operators

    def _blank(self, position: int) -> int:
        blanks = _BLANKS.match(self.text, position)
        if blanks:
            return blanks.end()
        continued = self._continuation(position) or self._windows_continuation(position)
        if continued:
            return continued
        character = self.text[position]
        if character.isspace() and character != "\n":
            self.notes.append(Note("odd-space", position, character))
            return position + 1
        return position

    def _continuation(self, position: int) -> int:
        """Behind a backslash and line end, or 0."""
        if self.text.startswith("\\\n", position):
            return position + 2
        return position + 3 if self.text.startswith("\\\r\n", position) else 0

    def _windows_continuation(self, position: int) -> int:
        """Behind PowerShell's ` or cmd's ^ at a line's end, behind a blank; or 0."""
        if self.text[position] not in "`^" or self.text[position - 1 : position] not in (" ", "\t"):
            return 0
        match = _LINE_END.match(self.text, position + 1)
        return match.end() if match else 0

    def _operator(self, position: int) -> Token | None:
        character = self.text[position]
        if character not in "<>;&|()0123456789":
            return None
        if character == "<" and _PLACEHOLDER.match(self.text, position):
            return None
        redirection = _REDIRECTION.match(self.text, position)
        if redirection:
            return self._redirection(position, redirection)
        operator = _OPERATOR.match(self.text, position)
        return Token("operator", position, operator.end(), operator[0]) if operator else None

    def _redirection(self, position: int, match: re.Match[str]) -> Token:
        heredoc = _HEREDOC.match(self.text, position)
        if heredoc and not self.text.startswith("<<<", position):
            self._pending.append((heredoc["word"], heredoc["op"] == "<<-"))
            return Token("redirection", position, heredoc.end(), heredoc["op"])
        end = match.end()
        while end < len(self.text) and self.text[end] in " \t":
            end += 1
        if end < len(self.text) and not self.text[end].isspace() and self.text[end] not in ";&|()<>":
            target = self._word(end)
            return Token("redirection", position, target.end, match[0], target.pieces)
        return Token("redirection", position, match.end(), match[0])

    def _skip_heredocs(self, position: int) -> int:
        for word, indented in self._pending:
            body = position
            while position < len(self.text):
                end = self.text.find("\n", position)
                end = len(self.text) if end < 0 else end
                line = self.text[position:end].rstrip("\r")
                done = (line.lstrip("\t") if indented else line) == word
                if done:
                    self.heredocs.append((body, position))
                    position = end + 1
                    break
                position = end + 1
            else:
                self.heredocs.append((body, len(self.text)))
        self._pending = []
        return min(position, len(self.text))

    # --- words

    def _word(self, start: int) -> Token:
        pieces: list[Piece] = []
        position, size = start, len(self.text)
        while position < size:
            character = self.text[position]
            plain = _PLAIN.match(self.text, position)
            if plain:
                pieces.append(Piece("text", plain[0], position, plain.end(), False))
                position = plain.end()
            elif character == "\\":
                position = self._escape(position, pieces)
            elif character == "'":
                position = self._single(position, pieces)
            elif character == '"':
                position = self._double(position, pieces)
            elif character in "$`":
                position = self._expansion(position, pieces, quoted=False)
            elif character == "{":
                position = self._brace(position, pieces)
            elif character in _CLOSING:
                position = self._typographic(position, pieces)
            elif character.isspace() or (self.dialect.operators and self._ends_word(position, start)):
                break
            else:
                placeholder = _PLACEHOLDER.match(self.text, position)
                end = placeholder.end() if placeholder else position + 1
                pieces.append(Piece("text", self.text[position:end], position, end, False))
                position = end
        return Token("word", start, max(position, start + 1), self.text[start:position], tuple(pieces))

    def _ends_word(self, position: int, start: int) -> bool:
        if self.text[position] not in ";&|()<>":
            return False
        if self.text[position] == "<" and _PLACEHOLDER.match(self.text, position):
            return False
        return position > start or self._operator(position) is not None

    def _escape(self, position: int, pieces: list[Piece]) -> int:
        continued = self._continuation(position)
        if continued:
            return continued
        following = self.text[position + 1 : position + 2]
        if not following:
            pieces.append(Piece("text", "\\", position, position + 1, False))
            return position + 1
        if following in " \t\r":
            rest = self.text[position + 1 : position + 200].split("\n", 1)[0].strip()
            if not rest or rest.startswith("#"):
                self.notes.append(Note("space-after-backslash", position, "\\" + following))
        pieces.append(Piece("text", following, position + 1, position + 2, True))
        return position + 2

    def _single(self, position: int, pieces: list[Piece]) -> int:
        end = -1 if "'" in self._unclosed else self.text.find("'", position + 1)
        if end < 0:
            return self._literal_quote(position, pieces)
        pieces.append(Piece("text", self.text[position + 1 : end], position + 1, end, True))
        return end + 1

    def _literal_quote(self, position: int, pieces: list[Piece]) -> int:
        character = self.text[position]
        self._unclosed.add(character)
        self.notes.append(Note("unclosed-quote", position, character))
        pieces.append(Piece("text", character, position, position + 1, False))
        return position + 1

    def _double(self, position: int, pieces: list[Piece]) -> int:
        if '"' in self._unclosed:
            return self._literal_quote(position, pieces)
        inside: list[Piece] = [Piece("text", "", position + 1, position + 1, True)]
        cursor, size = position + 1, len(self.text)
        while cursor < size:
            plain = _IN_DOUBLE.match(self.text, cursor)
            if plain:
                inside.append(Piece("text", plain[0], cursor, plain.end(), True))
                cursor = plain.end()
                continue
            character = self.text[cursor]
            if character == '"':
                pieces.extend(inside)
                return cursor + 1
            if character == "\\":
                cursor = self._escape_in_double(cursor, inside)
            else:
                cursor = self._expansion(cursor, inside, quoted=True)
        return self._literal_quote(position, pieces)

    def _escape_in_double(self, position: int, pieces: list[Piece]) -> int:
        continued = self._continuation(position)
        if continued:
            return continued
        following = self.text[position + 1 : position + 2]
        if following and following in '"\\$`':
            pieces.append(Piece("text", following, position + 1, position + 2, True))
            return position + 2
        pieces.append(Piece("text", "\\", position, position + 1, True))
        return position + 1

    def _expansion(self, position: int, pieces: list[Piece], *, quoted: bool) -> int:
        text = self.text
        if text[position] == "`" or text.startswith("$(", position):
            end = self._substitution(position)
            if end:
                pieces.append(Piece("substitution", text[position:end], position, end, quoted))
                return end
        if text.startswith("$'", position) and not quoted:
            return self._ansi_c(position, pieces)
        if text.startswith("${{", position):
            return self._brace(position + 1, pieces, start=position)
        variable = _VARIABLE.match(text, position)
        if variable:
            name = variable["name"] or variable["braced"] or variable["special"]
            pieces.append(Piece("variable", name, position, variable.end(), quoted))
            return variable.end()
        pieces.append(Piece("text", text[position], position, position + 1, quoted))
        return position + 1

    def _substitution(self, position: int) -> int:
        """The end of $(…) or `…`, or 0 if it is never closed."""
        opener = self.text[position]
        if opener in self._unclosed:
            return 0
        if opener == "`":
            end = self.text.find("`", position + 1)
            if end < 0:
                self._unclosed.add("`")
            return end + 1
        depth = 0
        for match in _PARENTHESIS.finditer(self.text, position):
            depth += 1 if match[0] == "(" else -1
            if depth == 0:
                return match.end()
        self._unclosed.add("$")
        return 0

    def _ansi_c(self, position: int, pieces: list[Piece]) -> int:
        cursor, size = position + 2, len(self.text)
        inside: list[Piece] = []
        while cursor < size and "$'" not in self._unclosed:
            end = _ANSI_C_PLAIN.match(self.text, cursor)
            if end:
                inside.append(Piece("text", end[0], cursor, end.end(), True))
                cursor = end.end()
            elif self.text[cursor] == "'":
                pieces.extend(inside or [Piece("text", "", cursor, cursor, True)])
                return cursor + 1
            else:
                following = self.text[cursor + 1 : cursor + 2]
                decoded = _ANSI_C.get(following, following)
                inside.append(Piece("text", decoded, cursor + 1, cursor + 2, True))
                cursor += 2
        self._unclosed.add("$'")
        pieces.append(Piece("text", "$", position, position + 1, False))
        return position + 1

    def _brace(self, position: int, pieces: list[Piece], *, start: int | None = None) -> int:
        start = position if start is None else start
        if self.text.startswith("{{", position):
            line_end = self.text.find("\n", position, position + _NEAR)
            end = self.text.find("}}", position, position + _NEAR if line_end < 0 else line_end)
            if end >= 0 and '"' not in self.text[position + 2 : position + 4]:
                pieces.append(Piece("template", self.text[start : end + 2], start, end + 2, False))
                return end + 2
        pieces.append(Piece("text", self.text[start : position + 1], start, position + 1, False))
        return position + 1

    def _typographic(self, position: int, pieces: list[Piece]) -> int:
        """“…” as a quote, where it closes on its line; an apostrophe within a word stays one."""
        closers = _CLOSING.get(self.text[position], "")
        self.notes.append(Note("smart-quote", position, self.text[position]))
        line_end = self.text.find("\n", position, position + _NEAR)
        line_end = position + _NEAR if line_end < 0 else line_end
        ends = [self.text.find(closer, position + 1, line_end) for closer in closers]
        end = next((found for found in ends if found >= 0), -1)  # its own closing mark before any other
        opens_word = not pieces or pieces[-1].text.endswith(("=", "{", ":", ","))
        if end < 0 or not opens_word:
            pieces.append(Piece("text", self.text[position], position, position + 1, False))
            return position + 1
        pieces.append(Piece("text", self.text[position + 1 : end], position + 1, end, True))
        return end + 1


def statements(tokens: list[Token]) -> list[Statement]:
    """Simple commands in order. Parentheses, pipes and lists end one; arrays `NAME=( … )` are kept whole."""
    found: list[Statement] = []
    current = Statement()
    index = 0

    def close(terminator: str, position: int) -> None:
        nonlocal current
        if current.tokens or current.redirections:
            current.terminator = terminator
            current.closed = position if terminator == "&" else current.end
            found.append(current)
        current = Statement()

    while index < len(tokens):
        token = tokens[index]
        if token.kind == "word":
            current.tokens.append(token)
            current.end = token.end
            following = tokens[index + 1] if index + 1 < len(tokens) else None
            if following is not None and _opens_array(token, following):
                index = _array(tokens, index + 2, current)
                continue
        elif token.kind == "redirection":
            current.redirections.append(token)
            current.heredoc = current.heredoc or token.text.startswith("<<")
            current.end = token.end
        elif token.kind == "comment":
            current.comment = token
        else:
            close(token.text, token.end)
        index += 1
    close("", 0)
    return found


def _opens_array(word: Token, following: Token) -> bool:
    return (
        following.kind == "operator"
        and following.text == "("
        and following.start == word.end
        and re.fullmatch(r"[A-Za-z_]\w*\+?=", word.text) is not None
    )


def _array(tokens: list[Token], index: int, statement: Statement) -> int:
    elements: list[Token] = []
    while index < len(tokens):
        token = tokens[index]
        index += 1
        statement.end = max(statement.end, token.end)
        if token.kind == "operator" and token.text == ")":
            break
        if token.kind == "word":
            elements.append(token)
    statement.arrays[len(statement.tokens) - 1] = elements
    return index
