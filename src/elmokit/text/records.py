"""CSV, TSV and JSON lines -> records: the cells or the object of each, and the line where it begins.

A record that cannot be read says why, and the next one is read: what to do about it is for others to say.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal, NamedTuple

from elmokit.errors import clipped
from elmokit.text.columns import Cells, Format

BadLine = Literal["refuse", "skip", "replace"]
MOST_CHARACTERS = 1 << 24  # of a cell
ESCAPED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of bytes that are not UTF-8
QUOTED = re.compile(r'"(?:[^"]|"")*"')


class Line(NamedTuple):
    number: int  # from 1
    text: str


class Record(NamedTuple):
    line: int  # of the file, where it begins
    cells: Cells
    fault: str | None = None  # why it cannot be read
    escaped: bool = False  # some of it is not UTF-8

    def shown(self) -> Cells:
        """Cells that can be printed."""
        return [ESCAPED.sub("\ufffd", c) for c in self.cells] if isinstance(self.cells, list) else self.cells


def parse(lines: Iterable[Line], format: Format) -> Iterator[Record]:
    if format == "csv":
        return _csv_rows(iter(lines))
    return _tsv_rows(lines) if format == "tsv" else _json_rows(lines)


def _tsv_rows(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        if line.text:
            yield Record(line.number, line.text.split("\t"), escaped=ESCAPED.search(line.text) is not None)


def _json_rows(lines: Iterable[Line]) -> Iterator[Record]:
    for line in lines:
        if not line.text.strip():
            continue
        escaped = ESCAPED.search(line.text) is not None
        try:
            table = json.loads(ESCAPED.sub("\ufffd", line.text) if escaped else line.text)
        except (ValueError, RecursionError) as error:
            yield Record(line.number, {}, f"not valid JSON: {clipped(error)}")
            continue
        fault = None if isinstance(table, dict) else f"expected a JSON object, found {clipped(repr(table))}"
        yield Record(line.number, table if fault is None else {}, fault, escaped)


def _csv_rows(lines: Iterator[Line]) -> Iterator[Record]:
    csv.field_size_limit(max(MOST_CHARACTERS, csv.field_size_limit()))  # of the process: never made smaller
    first = next(lines, None)
    if first is None:
        return
    if "\r" in QUOTED.sub("", first.text):
        yield Record(1, [], "it has carriage returns: if they end its lines, convert them (tr '\\r' '\\n')")
        return
    last, escaped = first.number - 1, False

    def texts() -> Iterator[str]:
        nonlocal last, escaped
        for line in chain([first], lines):
            last, escaped = line.number, escaped or ESCAPED.search(line.text) is not None
            yield line.text.replace("\r", " ") + "\n"  # some writers do not quote a lone carriage return

    reader = csv.reader(texts(), delimiter=_delimiter(first.text), strict=True)
    while True:
        begin, escaped = last + 1, False
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Record(begin, [], _csv_fault(str(error)))
        else:
            if cells:
                yield Record(begin, cells, escaped=escaped)


def _delimiter(line: str) -> str:
    """Comma, semicolon or tab: that of which the first line has most, outside quotation marks."""
    outside = QUOTED.sub("", line)
    return max(",;\t", key=outside.count)


def _csv_fault(error: str) -> str:
    if "unexpected end" in error:
        return "a quotation mark is opened and never closed"
    if "field limit" in error:
        return f"a cell of more than {MOST_CHARACTERS:,} characters: is a quotation mark opened and not closed?"
    if "expected after" in error:
        return 'text after a closing quotation mark; one inside a quoted cell is written twice ("")'
    return error
