"""Reads single members of a wheel on a package index by HTTP range requests, without downloading the wheel."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable

TAIL_BYTES = 400_000  # the central directory of the largest wheel has about 300 kB
GAP_BYTES = 150_000  # two members nearer than this are read in one request
SLACK_BYTES = 600  # local header: 30 bytes, name and extra field
TIMEOUT_S = 120
PYTHONS = ("3.12", "3.10", "3.9")  # old releases have wheels for old interpreters only
PLATFORMS = ("manylinux1", "manylinux2014", "manylinux_2_17", "manylinux_2_24", "manylinux_2_28", "manylinux_2_31",
             "manylinux_2_34", "manylinux_2_35")  # fmt: skip


class RangeFile(io.RawIOBase):
    """A seekable file over HTTP. `fetch` reads spans ahead; reads outside them ask for one more span each."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.position = 0
        self.requests = 0
        self.bytes_read = 0
        self._spans: list[tuple[int, bytes]] = []
        request = urllib.request.Request(url, method="HEAD")  # the index's own address, given by pip
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            self.size = int(response.headers["Content-Length"])

    def fetch(self, start: int, end: int) -> None:
        """Read the bytes [start, end) in one request and keep them."""
        end = min(end, self.size)
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={start}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            if response.status != 206:
                raise OSError(f"the server does not answer range requests (status {response.status})")
            data = response.read(end - start + 1)
        self.requests += 1
        self.bytes_read += len(data)
        self._spans.append((start, data))

    def seekable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = base + offset
        return self.position

    def read(self, size: int = -1) -> bytes:
        """The next bytes, from what was fetched ahead if it covers them."""
        end = self.size if size < 0 else min(self.size, self.position + size)
        if end <= self.position:
            return b""
        data = self._known(self.position, end)
        if data is None:
            self.fetch(self.position, max(end, self.position + 65_536))
            data = self._spans[-1][1][: end - self.position]
        self.position += len(data)
        return data

    def _known(self, start: int, end: int) -> bytes | None:
        for offset, data in self._spans:
            if offset <= start and end <= offset + len(data):
                return data[start - offset : end - offset]
        return None


def wheel_url(package: str, version: str) -> str:
    """The address of a wheel for x86-64 Linux, from pip's own resolver. Raises LookupError if there is none."""
    for python in PYTHONS:
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-",
            "--quiet", "--target", tempfile.gettempdir(), "--only-binary=:all:", "--python-version", python,
            *(part for name in PLATFORMS for part in ("--platform", f"{name}_x86_64")), f"{package}=={version}",
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return str(json.loads(result.stdout)["install"][0]["download_info"]["url"])
    raise LookupError(f"pip finds no wheel of {package} {version} for x86-64 Linux")


class WheelTree:
    """A source tree (see qvl_doctor.core.vllm.source_tree) in a wheel; `wanted` prefixes are read ahead, together."""

    def __init__(self, url: str, wanted: Iterable[str]) -> None:
        self.file = RangeFile(url)
        self.file.fetch(max(0, self.file.size - TAIL_BYTES), self.file.size)
        self._zip = zipfile.ZipFile(self.file)
        self._names = {info.filename: info for info in self._zip.infolist()}
        self._read_ahead(tuple(wanted))

    def _read_ahead(self, wanted: tuple[str, ...]) -> None:
        infos = [
            i
            for n, i in self._names.items()
            if n.endswith("METADATA") or (n.endswith(".py") and (n.startswith(wanted) or "metric" in n))
        ]
        spans: list[list[int]] = []
        for info in sorted(infos, key=lambda i: i.header_offset):
            start = info.header_offset
            end = start + info.compress_size + len(info.filename) + SLACK_BYTES
            if spans and start - spans[-1][1] < GAP_BYTES:
                spans[-1][1] = max(spans[-1][1], end)
            else:
                spans.append([start, end])
        for start, end in spans:
            self.file.fetch(start, end)

    def read(self, path: str) -> str | None:
        """The text of a member."""
        if path not in self._names:
            return None
        return self._zip.read(self._names[path]).decode("utf-8", "replace")

    def names(self, prefix: str) -> tuple[str, ...]:
        """The Python members below a folder."""
        return tuple(sorted(n for n in self._names if n.startswith(prefix) and n.endswith(".py")))

    def metadata(self) -> str | None:
        """The METADATA member."""
        name = next((n for n in self._names if n.endswith(".dist-info/METADATA")), None)
        return None if name is None else self.read(name)
