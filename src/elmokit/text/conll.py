"""CoNLL's files: columns, CoNLL-U and CoNLL-2012, read in this one place.

columns       a token per line, any columns, a blank line after each sentence
CoNLL-U       ten columns with tabs between; lines that are no words (1-2, 8.1) and comments are passed over
CoNLL-2012    columns of white space, within #begin document and #end document

Every row knows its line. What a column means is for the caller to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import UserError
from elmokit.text.corpus import Line, LineReader


class Row(NamedTuple):
    line: int  # from 1
    fields: list[str]


Sentence = list[Row]

# Columns, from 0.
CONLLU_COLUMNS, CONLLU_FORM, CONLLU_UPOS = 10, 1, 3
CONLL2012_WORD, CONLL2012_SPEAKER, CONLL2012_FIRST_ROLE = 3, 9, 11
CONLL2012_COLUMNS = CONLL2012_FIRST_ROLE + 1  # of a sentence without a predicate; coreference is the last

_ID = re.compile(r"\d+([-.]\d+)?")  # of CoNLL-U: a word, a multiword token, an empty node
BEGIN, END = "#begin document", "#end document"
HEADER = re.compile(rf"{BEGIN} \(.*\)(?:; part \d+)?\s*")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


# Columns


def read_columns(
    path: str | Path,
    *,
    tabs: bool | None = None,
    comment: Callable[[str], bool] = lambda text: False,
    least: int = 2,
) -> list[Sentence]:
    """The sentences of a file; every line has as many columns as the first.

    tabs      columns are separated by tabs alone (True) or by any white space; None: as the first line says.
    comment   which lines to pass over.
    least     columns that a line must have.
    """
    return _columns(path, (line for line in _lines(path) if not comment(line.text)), tabs, least)


def read_tabbed(path: str | Path) -> tuple[bool, list[Sentence]]:
    """Whether a file is CoNLL-U, as its first line says, and its sentences; else its columns have tabs between."""
    lines = _lines(path)
    first = next((line for line in lines if line.text.strip() and not line.text.startswith("#")), None)
    fields = first.text.split("\t") if first else []
    if len(fields) == CONLLU_COLUMNS and _ID.fullmatch(fields[0]):
        return True, _conllu(path, lines)
    # A hashtag may be a token; a comment has no tab, outside CoNLL-U.
    tokens = (line for line in lines if not line.text.startswith("#") or "\t" in line.text)
    return False, _columns(path, tokens, tabs=True, least=1)


def _columns(path: str | Path, lines: Iterable[Line], tabs: bool | None, least: int) -> list[Sentence]:
    lines = list(lines)
    if tabs is None:
        tabs = "\t" in next((line.text for line in lines if line.text.strip()), "")
    sentences = _sentences(lines, tabs)
    if not sentences:
        raise UserError(f"{path}: expected sentences, found none: the file is empty")
    first, between = sentences[0][0], ", with tabs between them" if tabs else ""
    count = max(least, len(first.fields))
    for row in (row for sentence in sentences for row in sentence):
        if len(row.fields) != count:
            as_first = f", as in line {first.line}" if row is not first else ""
            raise UserError(f"{_at(path, row)}: expected {count} columns{as_first}{between}, {_found(row)}")
    return sentences


# CoNLL-U


def read_conllu(path: str | Path) -> list[Sentence]:
    """The words of every sentence that has one."""
    return _conllu(path, _lines(path))


def _conllu(path: str | Path, lines: Iterable[Line]) -> list[Sentence]:
    sentences = _sentences((line for line in lines if not line.text.startswith("#")), tabs=True)
    if not sentences:
        raise UserError(f"{path}: expected sentences, found none: the file is empty")
    for row in (row for sentence in sentences for row in sentence):
        if len(row.fields) != CONLLU_COLUMNS or not _ID.fullmatch(row.fields[0]):
            raise UserError(
                f"{_at(path, row)}: expected CoNLL-U's {CONLLU_COLUMNS} columns, an id first, with tabs between "
                f"them, {_found(row)}"
            )
    words = ([row for row in sentence if row.fields[0].isdigit()] for sentence in sentences)
    found = [sentence for sentence in words if sentence]
    if not found:
        raise UserError(f"{path}: expected words, found none")
    return found


# CoNLL-2012


class Document(NamedTuple):
    header: Line | None  # None for what stands outside of any document
    sentences: list[Sentence]


def read_conll2012(path: str | Path, *, borders: bool = True) -> list[Document]:
    """The documents of a file.

    borders   whether each must begin and end with its lines; else what stands outside of them is read too.
    """
    documents = []
    for header, lines in _parts(path, borders):
        sentences = _sentences(lines, tabs=False)
        for row in (row for sentence in sentences for row in sentence):
            if len(row.fields) < CONLL2012_COLUMNS:
                raise UserError(
                    f"{_at(path, row)}: expected {CONLL2012_COLUMNS} columns or more, the last for coreference, "
                    f"{_found(row)}"
                )
        if sentences:
            documents.append(Document(header, sentences))
        elif header is not None and borders:
            raise UserError(f"{path}, line {header.number}: expected tokens in the document, found none")
    if not documents:
        raise UserError(f"{path}: expected sentences, found none: the file is empty")
    return documents


def _parts(path: str | Path, borders: bool) -> Iterator[tuple[Line | None, list[Line]]]:
    """What stands between the borders of documents."""
    header: Line | None = None
    inside: list[Line] = []
    for line in _lines(path):
        begins, ends = line.text.startswith(BEGIN), line.text.startswith(END)
        if not begins and not ends:
            if borders and header is None and line.text.strip():
                raise UserError(
                    f"{path}, line {line.number}: expected '{BEGIN} (name); part 000' before the first token, "
                    f"found {line.text[:60]!r}"
                )
            inside.append(line)
            continue
        if borders and not (ends if header else HEADER.fullmatch(line.text)):
            expected = END if header else f"{BEGIN} (name); part 000"
            raise UserError(f"{path}, line {line.number}: expected {expected!r}, found {line.text[:60]!r}")
        yield header, inside
        header, inside = line if begins else None, []
    if borders and header:
        raise UserError(f"{path}: expected {END!r} for the document of line {header.number}, found the file's end")
    yield header, inside


def plain_words(sentence: Sentence) -> list[str]:
    """The words of CoNLL-2012 with plain brackets: the text that a user or a biLM reads has no -LRB-."""
    return [_plain_brackets(row.fields[CONLL2012_WORD]) for row in sentence]


def _plain_brackets(word: str) -> str:
    if "RB-" in word or "SB-" in word or "CB-" in word:
        for name, bracket in _BRACKETS.items():
            word = word.replace(name, bracket)
    return word


# Lines


def _lines(path: str | Path) -> list[Line]:
    with LineReader(path) as reader:
        return list(reader)


def _sentences(lines: Iterable[Line], tabs: bool) -> list[Sentence]:
    sentences: list[Sentence] = [[]]
    for number, text in lines:
        if text.strip():
            sentences[-1].append(Row(number, text.split("\t" if tabs else None)))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _at(path: str | Path, row: Row) -> str:
    return f"{path}, line {row.line}"


def _found(row: Row) -> str:
    return f"found {len(row.fields)}: {' '.join(row.fields)[:60]!r}"
