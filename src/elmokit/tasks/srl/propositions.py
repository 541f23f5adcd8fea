"""CoNLL-2012 columns -> propositions: a predicate of a sentence, and who does what to whom.

Columns 1 to 11 are document, part, word number, word, POS, parse, lemma, frameset, sense, speaker and named
entity; the last is coreference; between them is one per predicate, in brackets:

    He (ARG0*)    gave (V*)    a (ARG1*    book *)    . *

Spans of one predicate neither nest nor overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks.spans import Span, to_bio
from elmokit.tasks.srl.arguments import VERB
from elmokit.tasks.task import located
from elmokit.text.conll import CONLL2012_FIRST_ROLE, Sentence, plain_words, read_conll2012

CELL = re.compile(r"(?:\((?P<role>[^()*\s]+))?\*(?P<end>\)?)")


@dataclass(frozen=True)
class Proposition:
    tokens: list[str]
    predicate: tuple[int, int]  # the first token of the V span, and behind its last
    spans: list[Span] | None  # by their beginning, V among them; None where they are not known
    where: str

    @property
    def tags(self) -> list[str] | None:
        return None if self.spans is None else to_bio(self.spans, len(self.tokens))


def read_propositions(path: Path) -> list[Proposition]:
    """One per predicate; a sentence without one gives none."""
    documents = read_conll2012(path, borders=False)
    sentences = (sentence for document in documents for sentence in document.sentences)
    found = [proposition for sentence in sentences for proposition in _propositions(path, sentence)]
    if not found:
        raise UserError(f"{path}: expected predicates (columns {CONLL2012_FIRST_ROLE + 1} and on), found none")
    return found


def _propositions(path: Path, sentence: Sentence) -> Iterator[Proposition]:
    first = sentence[0]
    for row in sentence:
        if len(row.fields) != len(first.fields):
            raise UserError(
                f"{path}, line {row.line}: expected {len(first.fields)} columns as in line {first.line}, "
                f"where the sentence begins, found {len(row.fields)}"
            )
    tokens = plain_words(sentence)
    for column in range(CONLL2012_FIRST_ROLE, len(first.fields) - 1):
        spans = _spans(path, sentence, column)
        verbs = [span for span in spans if span.type == VERB]
        if len(verbs) != 1:
            line = sentence[verbs[1].start if verbs else 0].line
            raise UserError(
                f"{path}, line {line}: expected one {VERB} in column {column + 1} of the sentence, "
                f"found {len(verbs)}"
            )
        start, end, _ = verbs[0]
        yield Proposition(tokens, (start, end), spans, located(path, sentence[start].line))


def _spans(path: Path, sentence: Sentence, column: int) -> list[Span]:
    spans: list[Span] = []
    role, start = None, 0  # of the span that is open
    for number, row in enumerate(sentence):
        cell = row.fields[column]
        matched = CELL.fullmatch(cell)
        problem = None
        if matched is None:
            problem = "expected (ROLE*, *, *) or (ROLE*)"
        elif matched["role"] and role is not None:
            problem = f"expected {role} of line {sentence[start].line} to end before another span begins"
        elif matched["end"] and role is None and not matched["role"]:
            problem = "expected an open span where one ends"
        if matched is None or problem is not None:
            raise UserError(f"{path}, line {row.line}: column {column + 1}: {problem}, found {cell!r}")
        if matched["role"]:
            role, start = matched["role"], number
        if matched["end"] and role is not None:
            spans.append(Span(start, number + 1, role))
            role = None
    if role is not None:
        raise UserError(
            f"{path}, line {sentence[start].line}: column {column + 1}: expected {role} to end in its sentence, "
            f"found no ')' up to line {sentence[-1].line}"
        )
    return spans
