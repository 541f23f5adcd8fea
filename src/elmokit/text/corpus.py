"""Files -> a stream of lines. Plain text, .gz, .bz2, .xz, .zst or standard input; only "\\n" ends a line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Literal, NamedTuple, cast

BadLine = Literal["refuse", "skip", "replace"]


class Line(NamedTuple):
    number: int  # from 1
    text: str


class LineReader:
    """Iterate over it for the lines of a file, in order, without their ends.

    on_bad_line   a line that is not UTF-8: "refuse" (ValueError that names it), "skip" (left out; counted in
                  `skipped`) or "replace" (U+FFFD in place of what cannot be read).
    """

    def __init__(self, path: str | Path, on_bad_line: BadLine = "refuse") -> None:
        if on_bad_line not in ("refuse", "skip", "replace"):
            raise ValueError(f'on_bad_line: expected "refuse", "skip" or "replace", found {on_bad_line!r}')
        self.path = Path(path)
        self.on_bad_line = on_bad_line
        self.skipped: list[int] = []
        self._raw: BinaryIO = sys.stdin.buffer if str(path) == "-" else _open(self.path)
        self._size = 0 if str(path) == "-" else os.fstat(self._raw.fileno()).st_size

    def __enter__(self) -> LineReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def __iter__(self) -> Iterator[Line]:
        try:
            for number, raw in enumerate(_decompressed(self._raw, self.path), start=1):
                if number == 1:
                    raw = self._first(raw)
                text = self._decode(raw, number)
                if text is not None:
                    yield Line(number, text)
        except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.path}: the compressed file is damaged or cut short: {error}") from None

    def fraction(self) -> float | None:
        """How much of the file has been read, 0 to 1; None where that cannot be known."""
        return self._raw.tell() / self._size if self._size else None

    def _first(self, raw: bytes) -> bytes:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ValueError(f"{self.path}: this is UTF-16 text: convert it first (iconv -f utf-16 -t utf-8)")
        return raw.removeprefix(b"\xef\xbb\xbf")

    def _decode(self, raw: bytes, number: int) -> str | None:
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.on_bad_line == "refuse":
                raise ValueError(
                    f"{self.path}, line {number}: not valid UTF-8 ({error.reason} at its byte {error.start + 1}"
                    f"). Mend the line, or skip or replace such lines (--on-bad-line skip|replace)"
                ) from None
            if self.on_bad_line == "replace":
                return raw.decode("utf-8", "replace")
            self.skipped.append(number)
            return None


def _open(path: Path) -> BinaryIO:
    if path.is_dir():
        raise ValueError(f"{path} is a folder: expected a text file")
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise ValueError(f"no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _decompressed(raw: BinaryIO, path: Path) -> IO[bytes]:
    opened: IO[bytes]
    if path.suffix == ".gz":
        opened = cast(IO[bytes], gzip.open(raw))
    elif path.suffix == ".bz2":
        opened = bz2.open(raw)
    elif path.suffix == ".xz":
        opened = lzma.open(raw)
    elif path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"{path}: .zst files need the extra: pip install 'elmokit[zstd]'") from None
        opened = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
    else:
        opened = raw
    return opened
