"""Sentences with their sentiment: trees, Naver's movie reviews, or a label and a text.

The first line says which of them a file is:
    (3 (2 It) (4 (2 's) (4 good)))     trees of the Stanford Sentiment Treebank
    id TAB document TAB label          the header of the Naver movie reviews; 0 is negative, 1 positive
    label TAB text                     any labels
.csv and .jsonl are tables, and so is .tsv whose first line names a text's and a label's column: `is_table`.
Trees have their tokens; other text is cut into words here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks.sentiment.trees import BEGINNING, Tree, parse_tree
from elmokit.tasks.task import located
from elmokit.text.columns import LABEL_NAMES, TEXT_NAMES
from elmokit.text.corpus import Line, LineReader, table_format
from elmokit.text.table import check_labels
from elmokit.text.tokens import make_tokenizer

HEADER = "id\tdocument\tlabel"
NAVER = {"0": "negative", "1": "positive"}


@dataclass(frozen=True)
class Review:
    tokens: list[str]
    label: str | None
    where: str
    tree: Tree | None = None  # of a whole sentence


def is_table(path: Path) -> bool:
    """Its columns have names, or its suffix says so; the Naver reviews have a reader of their own."""
    if table_format(path) != "tsv":
        return table_format(path) is not None
    with LineReader(path) as reader:
        first = next(iter(reader), None)
    names = set() if first is None or first.text == HEADER else set(first.text.lower().split("\t"))
    return bool(names & TEXT_NAMES and names & LABEL_NAMES)


def read_reviews(path: Path) -> list[Review]:
    with LineReader(path) as reader:
        lines = [line for line in reader if line.text.strip()]
    if not lines:
        raise UserError(f"{path}: expected labelled sentences, found none: the file is empty")
    if BEGINNING.match(lines[0].text):
        return [_read_tree(line, path) for line in lines]
    tokenize = make_tokenizer("words").tokens
    if lines[0].text == HEADER:
        if len(lines) == 1:
            raise UserError(f"{path}: expected reviews after the header, found none")
        return [_read_naver(line, path, tokenize) for line in lines[1:]]
    reviews = [_read_plain(line, path, tokenize) for line in lines]
    check_labels(path, [review.label for review in reviews if review.label is not None])
    return reviews


def _read_tree(line: Line, path: Path) -> Review:
    try:
        tree = parse_tree(line.text)
    except UserError as error:
        raise UserError(f"{path}, line {line.number}: {error}") from None
    return Review(tree.tokens, tree.label, located(path, line.number), tree)


def _read_naver(line: Line, path: Path, tokenize: Callable[[str], list[str]]) -> Review:
    fields = line.text.split("\t")
    if len(fields) != 3:
        raise UserError(
            f"{path}, line {line.number}: expected id, document and label with tabs between, found "
            f"{len(fields)} columns: {line.text[:60]!r}"
        )
    if fields[2] not in NAVER:
        raise UserError(f"{path}, line {line.number}: expected a label, 0 or 1, found {fields[2]!r}")
    return Review(tokenize(fields[1]), NAVER[fields[2]], located(path, line.number))


def _read_plain(line: Line, path: Path, tokenize: Callable[[str], list[str]]) -> Review:
    label, tab, text = line.text.partition("\t")
    if not tab or not label.strip():
        raise UserError(
            f"{path}, line {line.number}: expected label TAB text (or, from the first line on, trees, or the "
            f"header id TAB document TAB label), found {line.text[:60]!r}"
        )
    return Review(tokenize(text), label.strip(), located(path, line.number))
