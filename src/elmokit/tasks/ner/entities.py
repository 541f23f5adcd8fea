"""CoNLL columns -> sentences with their entities: the token first, its tag last.

WNUT-17, CoNLL-2003 and their kind. Tags may be BIO, IOB1, BIOES or BILOU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks.spans import Span, spans_of, split_tag
from elmokit.tasks.task import located
from elmokit.text import conll

DOCUMENT = "-DOCSTART-"  # CoNLL-2003's line between documents


@dataclass(frozen=True)
class Sentence:
    tokens: list[str]
    entities: list[Span] | None
    where: str


def read_entities(path: Path) -> list[Sentence]:
    rows = conll.read_columns(path, comment=lambda text: text.startswith(DOCUMENT))
    return [_sentence(path, sentence) for sentence in rows]


def _sentence(path: Path, rows: conll.Sentence) -> Sentence:
    for line, fields in rows:
        if not fields[0]:
            raise UserError(f"{path}, line {line}: expected a token, found an empty field")
        try:
            split_tag(fields[-1])
        except UserError as error:
            raise UserError(f"{path}, line {line}: {error}") from None
    tags = [row.fields[-1] for row in rows]
    return Sentence([row.fields[0] for row in rows], spans_of(tags), located(path, rows[0].line))
