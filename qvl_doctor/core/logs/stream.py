"""Bytes in any chunks to complete lines: encodings, line ends, and a bound on what a line may hold."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from qvl_doctor.core.lazy_regex import lazy_regex

LINE_LIMIT = 64 * 1024  # bytes kept of one line, from its start
BLOCK_SIZE = 1 << 20  # bytes handled at a time

# gzip, zip, zstd, xz, PNG, ELF, bzip2, SQLite
_MAGIC = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"\x89PNG", b"\x7fELF", b"BZh", b"SQLite f")
# `docker logs` through the engine's socket: stream number, three zero bytes, length (big endian)
_DOCKER_HEADER = lazy_regex(rb"^[\x00-\x02]\x00{3}[^\n]{4}", re.MULTILINE)


class LineSplitter:
    """Cuts a byte stream into blocks of whole lines; the same lines come out however the stream is chunked.

    A line keeps its first `LINE_LIMIT` bytes, so a stream without line ends stays bounded.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.nul_bytes = 0
        self.compressed = False
        self._start = b""  # the first bytes, until the encoding is known
        self._decided = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._pending = bytearray()

    @property
    def binary(self) -> bool:
        """Whether this is no text: compressed, or more than one NUL in a thousand bytes."""
        return self.compressed or self.nul_bytes * 1000 > self.size_bytes

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Blocks of whole lines, each ending in a newline."""
        self.size_bytes += len(chunk)
        if not self._decided:
            self._start += chunk
            if len(self._start) < 8:
                return
            chunk = self._decide()
        for start in range(0, len(chunk), BLOCK_SIZE):
            piece = chunk[start : start + BLOCK_SIZE] if len(chunk) > BLOCK_SIZE else chunk
            yield from self._lines(self._decoded(piece, final=False))

    def finish(self) -> Iterator[bytes]:
        """What is left: a last line without a line end."""
        rest = b"" if self._decided else self._decide()
        yield from self._lines(self._decoded(rest, final=True))
        if self._pending:
            block = self._take_pending()
            yield block + b"\n"

    def _decide(self) -> bytes:
        start, self._start, self._decided = self._start, b"", True
        self.compressed = start.startswith(_MAGIC)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        elif start.startswith(codecs.BOM_UTF8):
            start = start[3:]
        return start

    def _decoded(self, piece: bytes, *, final: bool) -> bytes:
        if self._decoder is not None:
            # lone surrogates have no UTF-8 form
            piece = self._decoder.decode(piece, final).encode("utf-8", "replace")
        self.nul_bytes += piece.count(0)
        return piece

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        start = 0
        if self._pending:
            start = piece.find(b"\n") + 1
            self._keep(piece[: start - 1] if start else piece)
            if not start:
                return
            yield self._clean(self._take_pending() + b"\n")
        end = piece.rfind(b"\n") + 1
        if end > start:
            yield self._clean(piece[start:end])
        self._keep(piece[end:])

    def _keep(self, part: bytes) -> None:
        room = LINE_LIMIT - len(self._pending)
        if room > 0:
            self._pending += part[:room]

    def _take_pending(self) -> bytes:
        block = bytes(self._pending)
        self._pending.clear()
        return block

    def _clean(self, block: bytes) -> bytes:
        if b"\0" not in block:
            return block
        bare = _DOCKER_HEADER.sub(b"", block)
        self.nul_bytes -= block.count(0) - bare.count(0)  # a header's zeros speak of no binary file
        return bare.replace(b"\0", b"")
