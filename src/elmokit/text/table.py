"""Tables of text -> rows: CSV, TSV and JSON lines, one record each, however many lines it takes.

`columns.py` says which columns are read. Rows are numbered from 1, the header not counted, as a data frame has
them; blank lines between rows are none. A line break inside a cell is kept in its text.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from elmokit.errors import UserError, clipped, listed
from elmokit.text.columns import Cells, Columns, Format, Key, Layout, cell, lay_out

if TYPE_CHECKING:
    from elmokit.text.corpus import BadLine, Line, LineReader

LOOKED_AT = 20  # rows below the first, to see what the columns hold
MOST_CHARACTERS = 1 << 24  # of a cell
_ESCAPED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes that are not UTF-8
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_WHOLE = re.compile(r"([-+]?\d+)\.0+")
_log = logging.getLogger(__name__)


class Row(NamedTuple):
    number: int  # from 1, without the header
    texts: tuple[str, ...]
    label: str | None  # None where there is none
    line: int  # of the file, where it begins

    @property
    def text(self) -> str:
        return self.texts[0]


class TableReader:
    """Iterate over it for the rows of a table.

    lines         its lines, with "surrogateescape" for what is not UTF-8
    on_bad_line   a row that is not UTF-8: "refuse", "skip" or "replace"; one with a column too few or too many,
                  or with wrong quotation marks: "refuse" or, with "skip", left out; see `skipped`
    texts         how many texts a row has
    labelled      its label is read, too
    """

    def __init__(
        self,
        lines: LineReader,
        format: Format,
        on_bad_line: BadLine = "refuse",
        asked: Columns | None = None,
        *,
        texts: int = 1,
        labelled: bool = False,
    ) -> None:
        self.lines, self.format, self.on_bad_line = lines, format, on_bad_line
        self.path = lines.path
        self.skipped: list[int] = []
        self._asked, self._texts, self._labelled = asked or Columns(), texts, labelled
        self._rows: Iterator[_Raw] | None = None
        self._layout: Layout | None = None

    def __enter__(self) -> TableReader:
        self.lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lines.__exit__(kind, error, trace)

    def fraction(self) -> float | None:
        """How much of the file has been read, 0 to 1; None where that cannot be known."""
        return self.lines.fraction()

    @property
    def layout(self) -> Layout:
        """By the first rows, which stay to be read."""
        if self._layout is None:
            rows = _parsed(self.lines, self.format)
            head = list(islice(rows, LOOKED_AT + 1))
            if not head:
                raise UserError(f"{self.path}: expected the rows of a table ({self.format}), found none")
            if head[0].fault is not None:
                raise UserError(f"{self.path}, line {head[0].line}: {head[0].fault}")
            whole = [raw.shown() for raw in head if raw.fault is None]
            try:
                layout = lay_out(whole, self._asked, texts=self._texts, labelled=self._labelled)
            except UserError as error:
                raise UserError(f"{self.path}: {error}") from None
            self._layout = layout
            self._rows = chain(head[1:] if layout.header else head, rows)
            _log.info("%s", self._described(layout, whole))
        return self._layout

    def identity(self) -> dict[str, Any]:
        """All that the texts depend on, apart from the file."""
        layout = self.layout
        return {"format": self.format, "header": layout.header, "text": list(layout.text)}

    def __iter__(self) -> Iterator[Row]:
        layout = self.layout
        assert self._rows is not None
        for number, raw in enumerate(self._rows, start=1):
            row = self._row(number, raw, layout)
            if row is not None:
                yield row

    def where(self, row: Row) -> str:
        return f"{self.path}, row {row.number} (line {row.line})"

    def _row(self, number: int, raw: _Raw, layout: Layout) -> Row | None:
        fault = raw.fault or self._fault(raw.cells, layout)
        text: tuple[str, ...] = ()
        label = None
        if fault is None:
            try:
                text = tuple(_text(cell(raw.cells, key)) for key in layout.text)
                label = None if layout.label is None else _label(_optional(raw.cells, layout.label))
            except KeyError as error:
                fault = f"no key {error}, found {listed(map(repr, raw.cells))}"
            except TypeError as error:
                fault = str(error)
        if fault is None and raw.escaped:
            if self.on_bad_line == "replace":
                text = tuple(_ESCAPED.sub("\ufffd", part) for part in text)
                label = label and _ESCAPED.sub("\ufffd", label)
            else:
                fault = "not valid UTF-8"
        if fault is None:
            return Row(number, tuple(_SURROGATE.sub("\ufffd", part) for part in text), label, raw.line)
        if self.on_bad_line != "skip":
            also = "|replace" if fault == "not valid UTF-8" else ""
            raise UserError(
                f"{self.path}, row {number} (line {raw.line}): {fault}. Mend the row, or leave such rows out "
                f"(--on-bad-line skip{also})"
            )
        self.skipped.append(number)
        return None

    def _fault(self, cells: Cells, layout: Layout) -> str | None:
        expected = len(layout.names)
        if isinstance(cells, dict) or len(cells) == expected:
            return None
        as_in = "the header" if layout.header else "the first row"
        hint = ""
        if self.format == "tsv" and any(str(found).startswith('"') for found in cells):
            hint = "; are its cells in quotation marks? Then it is read by --format csv"
        elif self.format == "csv" and len(cells) > expected:
            hint = "; a text with commas in it needs quotation marks"
        return f"expected {counted(expected, 'column')}, as in {as_in}, found {len(cells)}{hint}"

    def _described(self, layout: Layout, rows: list[Cells]) -> str:
        texts = " and ".join(layout.name(key) for key in layout.text)
        labels = "" if layout.label is None else f", labels from {layout.name(layout.label)}"
        kind = "header" if layout.header else "no header"
        shape = "JSON lines" if self.format == "jsonl" else f"{kind}, {counted(len(layout.names), 'column')}"
        said = f"{self.path.name}: {shape}; text from {texts}{labels}"
        if self.format == "tsv" and any(_looks_quoted(row, layout.text) for row in rows):
            said += " (cells that look quoted are taken as they are: --format csv removes the quotation marks)"
        return said


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split("\n")) if "\n" in text else text


class _Raw(NamedTuple):
    line: int  # of the file, where it begins
    cells: Cells
    fault: str | None = None  # why it cannot be read
    escaped: bool = False  # some of it is not UTF-8

    def shown(self) -> Cells:
        """Cells that can be printed."""
        return [_ESCAPED.sub("\ufffd", c) for c in self.cells] if isinstance(self.cells, list) else self.cells


def _parsed(lines: Iterable[Line], format: Format) -> Iterator[_Raw]:
    if format == "csv":
        return _csv_rows(iter(lines))
    return _tsv_rows(lines) if format == "tsv" else _json_rows(lines)


def _tsv_rows(lines: Iterable[Line]) -> Iterator[_Raw]:
    for line in lines:
        if line.text:
            yield _Raw(line.number, line.text.split("\t"), escaped=_ESCAPED.search(line.text) is not None)


def _json_rows(lines: Iterable[Line]) -> Iterator[_Raw]:
    for line in lines:
        if not line.text.strip():
            continue
        escaped = _ESCAPED.search(line.text) is not None
        try:
            table = json.loads(_ESCAPED.sub("\ufffd", line.text) if escaped else line.text)
        except (ValueError, RecursionError) as error:
            yield _Raw(line.number, {}, f"not valid JSON: {clipped(error)}")
            continue
        fault = None if isinstance(table, dict) else f"expected a JSON object, found {clipped(repr(table))}"
        yield _Raw(line.number, table if fault is None else {}, fault, escaped)


def _csv_rows(lines: Iterator[Line]) -> Iterator[_Raw]:
    csv.field_size_limit(max(MOST_CHARACTERS, csv.field_size_limit()))  # of the process: never made smaller
    first = next(lines, None)
    if first is None:
        return
    last, escaped = first.number - 1, False

    def texts() -> Iterator[str]:
        nonlocal last, escaped
        for line in chain([first], lines):
            last, escaped = line.number, escaped or _ESCAPED.search(line.text) is not None
            yield line.text + "\n"

    reader = csv.reader(texts(), delimiter=_delimiter(first.text), strict=True)
    while True:
        begin, escaped = last + 1, False
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _Raw(begin, [], _csv_fault(str(error)))
        else:
            if cells:
                yield _Raw(begin, cells, escaped=escaped)


def _delimiter(line: str) -> str:
    """Comma, semicolon or tab: that of which the first line has most, outside quotation marks."""
    outside = _QUOTED.sub("", line)
    return max(",;\t", key=outside.count)


def _csv_fault(error: str) -> str:
    if "unexpected end" in error:
        return "a quotation mark is opened and never closed"
    if "field limit" in error:
        return f"a cell of more than {MOST_CHARACTERS:,} characters: is a quotation mark opened and not closed?"
    if "expected after" in error:
        return 'text after a closing quotation mark; one inside a quoted cell is written twice ("")'
    if "new-line" in error:
        return "a carriage return outside quotation marks"
    return error


def _looks_quoted(row: Cells, keys: Iterable[Key]) -> bool:
    if not isinstance(row, list):
        return False
    cells = [row[key] for key in keys if isinstance(key, int) and key < len(row)]
    return any('""' in found[1:-1] and _QUOTED.fullmatch(found) for found in cells)


def _optional(cells: Cells, key: Key) -> Any:
    try:
        return cell(cells, key)
    except LookupError:
        return None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    if _is_missing(value):
        return ""
    if isinstance(value, bool | list | dict):
        raise TypeError(f"expected a text, found {clipped(json.dumps(value, ensure_ascii=False))}")
    return str(value).replace("\r\n", "\n").replace("\r", "\n")


def _label(value: Any) -> str | None:
    """Any string or number; 5.0, which programs make of 5 where a column has holes, is 5."""
    if _is_missing(value) or value == "":
        return None
    if isinstance(value, list | dict):
        raise TypeError(f"expected a label, found {clipped(json.dumps(value, ensure_ascii=False))}")
    text = json.dumps(value) if isinstance(value, bool) else str(value).strip()
    whole = _WHOLE.fullmatch(text)
    return (whole[1] if whole else text) or None
