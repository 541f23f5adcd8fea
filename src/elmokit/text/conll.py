"""CoNLL's kind of file: a token a line, columns, a blank line after each sentence; every field knows its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import UserError
from elmokit.text.corpus import LineReader


class Row(NamedTuple):
    line: int  # from 1
    fields: list[str]


Block = list[Row]  # a sentence


def read_blocks(
    path: Path,
    *,
    tabs: bool,
    comment: Callable[[str], bool] = lambda text: False,
    least: int = 2,
) -> list[Block]:
    """The sentences of a file.

    tabs      columns are separated by tabs alone; else by any white space.
    comment   which lines to pass over.
    least     columns that every line must have.
    """
    blocks: list[Block] = []
    block: Block = []
    with LineReader(path) as reader:
        for line in reader:
            if not line.text.strip():
                if block:
                    blocks.append(block)
                    block = []
                continue
            if comment(line.text):
                continue
            fields = line.text.split("\t") if tabs else line.text.split()
            if len(fields) < least:
                raise UserError(
                    f"{path}, line {line.number}: expected {least} columns{' with tabs between' if tabs else ''}, "
                    f"found {len(fields)}: {line.text[:60]!r}"
                )
            if not fields[0]:
                raise UserError(f"{path}, line {line.number}: expected a token, found an empty field")
            block.append(Row(line.number, fields))
    if block:
        blocks.append(block)
    if not blocks:
        raise UserError(f"{path}: expected sentences, found none: the file is empty")
    return blocks
