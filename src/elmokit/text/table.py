"""Tables of text -> rows: CSV, TSV and JSON lines, one record each, however many lines it takes.

`columns.py` says which columns are read. Rows are numbered from 1, the header not counted, as a data frame has
them; blank lines between rows are none. A line break inside a cell is kept in its text.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from elmokit.errors import UserError, clipped, counted, listed
from elmokit.text.columns import Cells, Columns, Format, Key, Layout, cell, lay_out
from elmokit.text.records import ESCAPED, QUOTED, BadLine, Line, Record, parse

MOST_LABELS = 20  # that may all be different
LOOKED_AT = 20  # rows below the first, to see what the columns hold
_SURROGATE = re.compile("[\ud800-\udfff]")
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


class Lines(Protocol):
    """A file that is being read: `corpus.LineReader` is one."""

    path: Path

    def __iter__(self) -> Iterator[Line]: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def fraction(self) -> float | None: ...


class TableReader:
    """Iterate over it for the rows of a table.

    lines         its lines, with "surrogateescape" for what is not UTF-8
    on_bad_line   a row that is not UTF-8: "refuse", "skip" or "replace"; one with a column too few or too many,
                  or with wrong quotation marks: "refuse" or, with "skip", left out; see `skipped`
    texts         how many texts a row has
    labelled      its label is read, too
    can_skip      whoever is told of a bad row can ask for on_bad_line="skip"
    """

    def __init__(
        self,
        lines: Lines,
        format: Format,
        on_bad_line: BadLine = "refuse",
        asked: Columns | None = None,
        *,
        texts: int = 1,
        labelled: bool = False,
        can_skip: bool = True,
    ) -> None:
        self.lines, self.format, self.on_bad_line = lines, format, on_bad_line
        self.path = lines.path
        self.skipped: list[int] = []
        self._asked, self._texts, self._labelled = asked or Columns(), texts, labelled
        self._can_skip = can_skip
        self._rows: Iterator[Record] | None = None
        self._layout: Layout | None = None

    def __enter__(self) -> TableReader:
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
            rows = parse(self.lines, self.format)
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

    def labelled_rows(self) -> list[Row]:
        """All rows, each with its label: those without one are named."""
        rows = list(self)
        without = [f"{row.number} (line {row.line})" for row in rows if row.label is None]
        if not rows:
            raise UserError(f"{self.path}: expected labelled texts, found no rows")
        if without:
            assert self.layout.label is not None
            raise UserError(
                f"{self.path}: expected a label in {self.layout.name(self.layout.label)}, found none in row "
                f"{listed(without)}: fill them in, or remove these rows"
            )
        check_labels(self.path, [row.label for row in rows if row.label is not None])
        return rows

    def _row(self, number: int, raw: Record, layout: Layout) -> Row | None:
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
                text = tuple(ESCAPED.sub("\ufffd", part) for part in text)
                label = label and ESCAPED.sub("\ufffd", label)
            else:
                fault = "not valid UTF-8"
        if fault is None:
            return Row(number, tuple(_SURROGATE.sub("\ufffd", part) for part in text), label, raw.line)
        if self.on_bad_line != "skip":
            also = "|replace" if fault == "not valid UTF-8" else ""
            skip = f"leave such rows out (--on-bad-line skip{also})" if self._can_skip else "remove it"
            raise UserError(f"{self.path}, row {number} (line {raw.line}): {fault}. Mend the row, or {skip}")
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
        name = "standard input" if str(self.path) == "-" else self.path.name
        said = f"{name}: {shape}; text from {texts}{labels}"
        if self.format == "tsv" and any(_looks_quoted(row, layout.text) for row in rows):
            said += " (cells that look quoted are taken as they are: --format csv removes the quotation marks)"
        return said


def check_labels(path: Path, labels: Sequence[str]) -> None:
    """Refuse texts in the place of labels: more than a few, and hardly any of them twice."""
    different = dict.fromkeys(labels)
    if len(different) > MOST_LABELS and len(different) > len(labels) / 2:
        raise UserError(
            f"{path}: {len(different):,} different labels in {len(labels):,} examples ({listed(different, 3)}): "
            f"are the columns of the texts and the labels swapped?"
        )


def one_line(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split("\n")) if "\n" in text else text


def _looks_quoted(row: Cells, keys: Iterable[Key]) -> bool:
    if not isinstance(row, list):
        return False
    cells = [row[key] for key in keys if isinstance(key, int) and key < len(row)]
    return any('""' in found[1:-1] and QUOTED.fullmatch(found) for found in cells)


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
