"""Files, folders and patterns -> lines of text.

Plain text, .gz, .bz2, .xz, .zst, .parquet or standard input; only "\\n" ends a line. Of tables (.csv, .tsv,
.jsonl), the texts: see `open_text`.
"""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from elmokit.errors import UserError, listed
from elmokit.text.columns import Columns, Format
from elmokit.text.records import BadLine as BadLine
from elmokit.text.records import Line as Line
from elmokit.text.table import Row, TableReader

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
TABLES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonlines", ".json-lines"), "jsonl"),
}
TEXT = (".txt", ".text", ".tokens", "")
_SHARD = re.compile(r"-\d+-of-\d+$")  # news.en-00001-of-00100: the One Billion Word Benchmark has no other suffix
_FIRST_BLOCK = 4096
_CONTROLS = re.compile("[\0-\x08\x0e-\x1a\x7f\ufffd]")  # what text hardly has and other files are full of


LONGEST = "ELMO_LONGEST_LINE"  # in the environment, so that processes that read for this one have it too
LONGEST_LINE = 1 << 26


def longest_line() -> int:
    """The bytes that a line of text may have: what the flag --longest-line or $ELMO_LONGEST_LINE says."""
    said = os.environ.get(LONGEST) or str(LONGEST_LINE)
    if not said.isdecimal() or not 0 < int(said) < sys.maxsize:
        raise UserError(f"{LONGEST}: expected a number of bytes, found {said[:40]!r}")
    return int(said)


class LineReader:
    """Iterate over it for the lines of a file, in order, without their ends.

    on_bad_line   a line that is not UTF-8: "refuse" (a UserError that names it), "skip" (left out; counted in
                  `skipped`) or "replace" (U+FFFD in place of what cannot be read).
    longest       bytes of a line; a longer one is refused before it fills the memory. By default longest_line().

    A file of which a fifth or more of the first characters cannot be read is no UTF-8 text, and is refused
    whatever on_bad_line says.
    """

    def __init__(self, path: str | Path, on_bad_line: BadLine = "refuse", longest: int | None = None) -> None:
        if on_bad_line not in ("refuse", "skip", "replace"):
            raise UserError(f'on_bad_line: expected "refuse", "skip" or "replace", found {on_bad_line!r}')
        self.path = Path(path)
        self.on_bad_line = on_bad_line
        self._longest = longest or longest_line()
        self.skipped: list[int] = []
        self._raw: BinaryIO = sys.stdin.buffer if str(path) == "-" else _open(self.path)
        self._size = 0 if str(path) == "-" else os.fstat(self._raw.fileno()).st_size
        self._rows_read = 0.0  # the share of them, in a Parquet file: its bytes are not read in order

    def __enter__(self) -> LineReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def __iter__(self) -> Iterator[Line]:
        lines = self._parquet_lines() if self._is_parquet else self._text_lines()
        for number, raw in enumerate(lines, start=1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            text = self._decode(raw, number)
            if text is not None:
                yield Line(number, text)

    def fraction(self) -> float | None:
        """How much of the file has been read, 0 to 1; None where that cannot be known."""
        if self._is_parquet:
            return self._rows_read
        return self._raw.tell() / self._size if self._size else None

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix.lower() == ".parquet"

    def _text_lines(self) -> Iterator[bytes]:
        stream, failures = _decompressed(self._raw, self.path)
        try:
            head = stream.read1(_FIRST_BLOCK)  # what there is: who types a line waits for its answer
            if not head:
                return
            self._check_text(head)
            yield from io.BytesIO(head if head.endswith(b"\n") else head + stream.readline(self._longest))
            while line := stream.readline(self._longest + 1):
                yield line
        except failures as error:
            raise UserError(f"{self.path}: the compressed file is damaged or cut short: {error}") from None

    def _parquet_lines(self) -> Iterator[bytes]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UserError(
                f"{self.path}: .parquet files need the extra: pip install 'elmokit[parquet]'"
            ) from None
        try:
            file = pq.ParquetFile(self._raw)
            column = self._text_column(list(file.schema_arrow))
            rows = 0
            for batch in file.iter_batches(batch_size=256, columns=[column]):
                # As bytes: whether they are UTF-8 is for `_decode` to judge, line by line.
                for cell in batch.column(0).cast(pa.large_binary()):
                    if cell.is_valid:
                        yield from cell.as_py().removesuffix(b"\n").split(b"\n")
                rows += len(batch)
                self._rows_read = rows / file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{self.path}: not a Parquet file that can be read: {error}") from None

    def _text_column(self, fields: list[Any]) -> str:
        strings = [str(field.name) for field in fields if str(field.type) in ("string", "large_string")]
        if "text" in strings:
            return "text"
        if len(strings) == 1:
            return strings[0]
        found = listed(f"{field.name} ({field.type})" for field in fields)
        raise UserError(
            f'{self.path}: expected a column of strings named "text", or only one of strings; found {found}'
        )

    def _check_text(self, head: bytes) -> None:
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UserError(f"{self.path}: this is UTF-16 text: convert it first (iconv -f utf-16 -t utf-8)")
        # Not final: the block may end inside a character.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        junk = len(_CONTROLS.findall(text)) - head.count("\ufffd".encode())
        if junk >= 8 and junk >= len(text) / 5:
            raise UserError(
                f"{self.path}: expected UTF-8 text, found something else: {junk} of the first {len(text)} "
                f"characters cannot be read. Text in another encoding can be converted (iconv); compressed "
                f"files are known by their suffix ({', '.join(COMPRESSED)})"
            )

    def _decode(self, raw: bytes, number: int) -> str | None:
        if len(raw) > self._longest:
            raise UserError(
                f"{self.path}, line {number}: expected lines of {self._longest:,} bytes at most, found a longer "
                "one. Break it into sentences, or allow it: elmo --longest-line BYTES, before the command"
            )
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.on_bad_line == "refuse":
                raise UserError(
                    f"{self.path}, line {number}: not valid UTF-8 ({error.reason} at its byte {error.start + 1}"
                    f"). Mend the line, or skip or replace such lines (--on-bad-line skip|replace)"
                ) from None
            if self.on_bad_line == "replace":
                return raw.decode("utf-8", "replace")
            self.skipped.append(number)
            return None


class _EscapedLines(LineReader):
    """Of a table: which of its rows are not UTF-8 can be said when it is known where they begin and end."""

    def _decode(self, raw: bytes, number: int) -> str:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")


def table_format(path: str | Path, columns: Columns | None = None) -> Format | None:
    """What kind of table a file is, by what was asked or by its name; None for text."""
    if columns is not None and columns.format is not None:
        return columns.format
    name = str(path).lower()
    stem, suffix = os.path.splitext(name)
    return TABLES.get(os.path.splitext(stem)[1] if suffix in COMPRESSED else suffix)


def open_table(
    path: str | Path,
    on_bad_line: BadLine = "refuse",
    columns: Columns | None = None,
    *,
    texts: int = 1,
    labelled: bool = False,
    can_skip: bool = True,
) -> TableReader:
    """The options are those of `TableReader`."""
    format = table_format(path, columns)
    if format is None:
        what = "standard input" if str(path) == "-" else f"{path}"
        raise UserError(
            f"{what}: columns are read from tables ({', '.join(TABLES)}, also compressed): say which kind it is "
            f"by --format csv, tsv or jsonl"
        )
    lines = _EscapedLines(path, on_bad_line)
    return TableReader(
        lines, format, on_bad_line, columns, texts=texts, labelled=labelled, can_skip=can_skip and not labelled
    )


def open_text(
    path: str | Path, on_bad_line: BadLine = "refuse", columns: Columns | None = None
) -> LineReader | TableReader:
    """A text's lines; of a table, which its name or `columns` tells, the texts, numbered by its rows."""
    if columns is None and table_format(path) is None:
        return LineReader(path, on_bad_line)
    return open_table(path, on_bad_line, columns)


class CorpusReader:
    """The lines of several sources, one after the other; each line has its number in its own file."""

    def __init__(
        self, sources: Sequence[str | Path], on_bad_line: BadLine = "refuse", columns: Columns | None = None
    ) -> None:
        self.paths = expand_sources(sources)
        self.on_bad_line = on_bad_line
        self.columns = columns
        self._skipped = 0
        self._sizes = [path.stat().st_size if path.is_file() else 0 for path in self.paths]
        self._done = 0
        self._reader: LineReader | TableReader | None = None

    def __iter__(self) -> Iterator[Line | Row]:
        for path, size in zip(self.paths, self._sizes):
            with open_text(path, self.on_bad_line, self.columns) as self._reader:
                yield from self._reader
                self._skipped += len(self._reader.skipped)
            self._reader = None
            self._done += size

    @property
    def skipped(self) -> int:
        """How many lines have been left out because they are not UTF-8, or rows of tables that are not right."""
        return self._skipped + (len(self._reader.skipped) if self._reader is not None else 0)

    def fraction(self) -> float | None:
        """How much of the sources has been read, 0 to 1; None where that cannot be known."""
        here = 0.0
        if self._reader is not None:
            share = self._reader.fraction()
            if share is None:
                return None
            here = share * self._reader.path.stat().st_size
        total = sum(self._sizes)
        return min(1.0, (self._done + here) / total) if total else None


def read_lines(
    sources: Sequence[str | Path], on_bad_line: BadLine = "refuse", columns: Columns | None = None
) -> Iterator[Line | Row]:
    """The lines of files, folders, patterns and "-", in order."""
    return iter(CorpusReader(sources, on_bad_line, columns))


def expand_sources(sources: Sequence[str | Path]) -> list[Path]:
    """The files that the sources stand for, each once, in the order in which they were named.

    A file       is taken whatever its name; so is "-", standard input.
    A folder     stands for the text below it, sorted: files named *.txt, *.text, *.tokens, without a suffix or
                 with the number of a shard (-00001-of-00100), any of these compressed (.gz, .bz2, .xz, .zst),
                 and *.parquet. Hidden files and folders, and links to folders, are left out.
    A pattern    (*, ?, [...], ** for any depth) stands for the files that match it, sorted, whatever their suffix.
    """
    if isinstance(sources, (str, Path)):
        sources = [sources]
    if not sources:
        raise UserError('no sources: expected files, folders, patterns or "-"')
    found: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        if str(source) == "-":
            files = [path]
        elif path.is_dir():
            files = _text_below(path)
            if not files:
                raise UserError(
                    f"{path}: no text in this folder: looked for *.txt, *.text, *.tokens, names without a suffix, "
                    f"these with {', '.join(COMPRESSED)}, and *.parquet. For other names: a pattern ('{path}/*')"
                )
        elif path.exists():
            files = [path]
        elif glob.has_magic(str(source)):
            files = [Path(name) for name in sorted(glob.glob(str(source), recursive=True)) if Path(name).is_file()]
            if not files:
                raise UserError(f"no file matches the pattern {str(source)!r}")
        else:
            raise UserError(f"no file or folder {path}")
        found.update(dict.fromkeys(files))
    return list(found)


def _text_below(folder: Path) -> list[Path]:
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in files if not name.startswith(".") and _looks_like_text(name)]
    return sorted(found)


def _looks_like_text(name: str) -> bool:
    stem, suffix = os.path.splitext(name)
    if suffix.lower() in COMPRESSED:  # corpus.txt.gz is text, corpus.tar.gz is not
        stem, suffix = os.path.splitext(stem)
    elif suffix.lower() == ".parquet":
        return True
    return suffix.lower() in TEXT or _SHARD.search(suffix) is not None


def _open(path: Path) -> BinaryIO:
    if path.is_dir():
        raise UserError(f"{path} is a folder: expected a text file")
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _decompressed(raw: BinaryIO, path: Path) -> tuple[io.BufferedIOBase, tuple[type[Exception], ...]]:
    """The stream of what is inside, and what it raises when that is damaged."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(raw), (EOFError, zlib.error, gzip.BadGzipFile)
    if suffix == ".bz2":
        return bz2.open(raw), (EOFError, OSError)
    if suffix == ".xz":
        return lzma.open(raw), (EOFError, lzma.LZMAError)
    if suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise UserError(f"{path}: .zst files need the extra: pip install 'elmokit[zstd]'") from None
        return io.BufferedReader(_Zstd(raw, zstandard.ZstdDecompressor())), (EOFError, zstandard.ZstdError)
    return cast(io.BufferedIOBase, raw), ()


class _Zstd(io.RawIOBase):
    """What zstandard's own reader passes over in silence: several frames in a file (`cat a.zst b.zst`, parallel
    compressors), and a file that is cut short."""

    def __init__(self, raw: BinaryIO, decompressor: Any) -> None:
        self._raw, self._decompressor = raw, decompressor
        self._frame: Any = None  # the one that is being read
        self._rest, self._text = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            packed = self._rest or self._raw.read(1 << 13)
            if not packed:
                if self._frame is not None:
                    raise EOFError("its last frame has no end")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._text, self._rest = memoryview(self._frame.decompress(packed)), b""
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._text))
        buffer[:size] = self._text[:size]
        self._text = self._text[size:]
        return size
