"""Which columns of a table are read: those asked for, or those that are obvious; and is there a header?

The first row is a header if --header says so, or if a column was asked for by a name. Otherwise it is one if its
cells can be names (none empty, repeated, a number or long), none of them comes again in its column, and
    - one of them is a usual name of texts or labels (text, review, label, ...), or
    - in some column all rows below hold numbers, or
    - every cell is a single word, and the rows below have several words in some column.

The text is in the only column; or else in the only one with a usual name; or else in the only one where most rows
have two words or more. The label has a usual name; or it is in the other one of two columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from elmokit.config import suggest
from elmokit.errors import UserError, listed

Format = Literal["csv", "tsv", "jsonl"]
Column = str | int
Key = int | str  # of a row: a place in a list of cells, or the path of a JSON object's key
Cells = list[Any] | dict[str, Any]

TEXTS = "text sentence document review comment content body utterance tweet post 문장 본문 리뷰 내용 댓글"
LABELS = "label class stars rating sentiment category gold_label target score topic 라벨 분류 평점 감성"
TEXT_NAMES, LABEL_NAMES = frozenset(TEXTS.split()), frozenset(LABELS.split())
LONGEST_NAME = 60
_NUMBER = re.compile(r"\s*[-+]?(\d[\d.,:/\s-]*|\d*\.\d+(e[-+]?\d+)?)%?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """What was asked for; what was not is found out.

    text     names or numbers from 1, one for each text of an example
    header   whether the first row has the names
    format   "csv" (quoted; commas, semicolons or tabs), "tsv" (tabs, no quoting), "jsonl"; else by the file's name
    """

    text: tuple[str, ...] = ()
    label: str | None = None
    header: bool | None = None
    format: Format | None = None


def asked_columns(
    text_column: Column | Sequence[Column] | None = None,
    label_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
) -> Columns | None:
    """The keywords that calls share, as one; None where nothing was asked for."""
    if table_format not in (None, "csv", "tsv", "jsonl"):
        raise UserError(f'table_format: expected "csv", "tsv" or "jsonl", found {table_format!r}')
    if isinstance(text_column, str | int):
        text_column = [text_column]
    label = None if label_column is None else str(label_column)
    asked = Columns(tuple(map(str, text_column or ())), label, header, table_format)
    return None if asked == Columns() else asked


class Layout(NamedTuple):
    """A table's columns, resolved."""

    header: bool
    names: tuple[str, ...]  # of all columns; numbers where there is no header
    text: tuple[Key, ...]
    label: Key | None

    def name(self, key: Key) -> str:
        """For messages."""
        if isinstance(key, str):
            return repr(key)
        return repr(self.names[key]) if self.header else f"column {key + 1}"


def lay_out(rows: Sequence[Cells], asked: Columns, *, texts: int, labelled: bool) -> Layout:
    """The layout of a table that begins with these rows.

    texts      how many texts an example has
    labelled   its label is needed

    A UserError says what is wrong; the caller knows the file.
    """
    header = not isinstance(rows[0], dict) and _has_header(rows, asked)
    if isinstance(rows[0], dict):
        names = tuple(dict.fromkeys(name for row in rows for name in row))
    else:
        names = tuple(str(cell).strip() if header else str(i) for i, cell in enumerate(rows[0], start=1))
    finder = _Finder(names, rows[1:] if header else rows, header)
    if len(asked.text) not in (0, texts):
        raise UserError(f"expected {texts} text column(s), found {len(asked.text)}: {listed(asked.text)}")
    label = None if asked.label is None else finder.key(asked.label)
    text = tuple(finder.key(name) for name in asked.text) or finder.obvious_texts(texts, label)
    if labelled and label is None:
        label = finder.obvious_label(text)
    if label in text:
        raise UserError(f"the texts and the labels are both read from {asked.label!r}: give two columns")
    return Layout(header, names, text, label)


def _has_header(rows: Sequence[Cells], asked: Columns) -> bool:
    if asked.header is not None:
        return asked.header
    first = [str(cell).strip() for cell in rows[0]]
    named = [name for name in (*asked.text, asked.label) if name is not None]
    if any(name in first or not name.isdecimal() for name in named):
        return True
    below = [row for row in rows[1:] if len(row) == len(first)]
    columns = [[str(row[i]).strip() for row in below if isinstance(row, list)] for i in range(len(first))]
    if not all(cell and len(cell) <= LONGEST_NAME and not _NUMBER.fullmatch(cell) for cell in first):
        return False
    if len(set(first)) < len(first) or any(cell in column for cell, column in zip(first, columns)):
        return False
    if any(cell.lower() in TEXT_NAMES | LABEL_NAMES for cell in first):
        return True
    if any(column and all(map(_NUMBER.fullmatch, column)) for column in columns):
        return True
    words = all(len(cell.split()) == 1 for cell in first)
    return words and any(len(cell.split()) > 1 for column in columns for cell in column)


class _Finder:
    """Finds columns by name, by number or by what is in them."""

    def __init__(self, names: tuple[str, ...], rows: Sequence[Cells], header: bool) -> None:
        self.names, self.rows, self.header = names, rows, header
        self.is_json = bool(rows) and isinstance(rows[0], dict)

    def key(self, asked: str) -> Key:
        if self.is_json:
            return self._path(asked)
        if self.header and asked in self.names:
            if self.names.count(asked) > 1:
                raise UserError(f"{self.names.count(asked)} columns are named {asked!r}: give the column's number")
            return self.names.index(asked)
        if asked.isdecimal():
            if not 1 <= int(asked) <= len(self.names):
                raise UserError(f"no column {asked}: columns are numbered from 1 to {len(self.names)}")
            return int(asked) - 1
        if not self.header:
            raise UserError(f"no column {asked!r}: without a header, columns are numbers, 1 to {len(self.names)}")
        raise UserError(f"no column {asked!r} in its header; {suggest(asked, self.names)}")

    def _path(self, asked: str) -> Key:
        for row in self.rows:
            try:
                cell(row, asked)
            except LookupError:
                continue
            return asked
        raise UserError(f"no key {asked!r} in its first {len(self.rows)} objects; {suggest(asked, self.names)}")

    def obvious_texts(self, texts: int, label: Key | None) -> tuple[Key, ...]:
        keys = [key for key in self._keys() if key != label]
        usual = [key for key in keys if self._name(key).lower() in TEXT_NAMES]
        wordy = [key for key in keys if self._is_wordy(key)]
        for found in (keys, usual, wordy):
            if len(found) == texts and all(self._is_text(key) for key in found):
                return tuple(found)
        which = "the text is in" if texts == 1 else f"the {texts} texts are in"
        option = " ".join(["--text-column NAME"] * texts)
        raise UserError(f"which column {which} is not obvious: give it by {option}; {self._columns()}")

    def obvious_label(self, text: tuple[Key, ...]) -> Key:
        keys = [key for key in self._keys() if key not in text]
        usual = [key for key in keys if self._name(key).lower() in LABEL_NAMES]
        for found in (usual, keys):
            if len(found) == 1:
                return found[0]
        raise UserError(
            f"which column the label is in is not obvious: give it by --label-column NAME; {self._columns()}"
        )

    def _columns(self) -> str:
        if self.header or self.is_json:
            return f"found {listed(map(repr, self.names))}"
        return f"found {len(self.names)} columns without names: give numbers from 1, or --header if there is one"

    def _keys(self) -> list[Key]:
        return list(self.names) if self.is_json else list(range(len(self.names)))

    def _name(self, key: Key) -> str:
        return key if isinstance(key, str) else self.names[key]

    def _cells(self, key: Key) -> list[Any]:
        if isinstance(key, str):
            return [row.get(key) for row in self.rows if isinstance(row, dict)]
        return [row[key] for row in self.rows if isinstance(row, list) and len(row) == len(self.names)]

    def _is_text(self, key: Key) -> bool:
        return all(found is None or isinstance(found, str) for found in self._cells(key))

    def _is_wordy(self, key: Key) -> bool:
        cells = self._cells(key)
        several = [isinstance(c, str) and len(c.split()) > 1 and not _NUMBER.fullmatch(c) for c in cells]
        return sum(several) > len(cells) / 2


def cell(row: Cells, key: Key) -> Any:
    """A LookupError where the row has none; a JSON key may lead through objects (user.name)."""
    if isinstance(key, int):
        assert isinstance(row, list)
        return row[key]
    found: Any = row
    if isinstance(found, dict) and key in found:
        return found[key]
    for part in key.split("."):
        if not isinstance(found, dict):
            raise KeyError(part)
        found = found[part]
    return found
