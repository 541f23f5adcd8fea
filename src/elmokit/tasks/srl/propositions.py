"""CoNLL-2012 columns -> propositions, and their score: a predicate of a sentence, and who does what to whom.

Columns 1 to 11 are document, part, word number, word, POS, parse, lemma, frameset, sense, speaker and named
entity; the last is coreference; those between are one a predicate, in brackets:

    He (ARG0*)    gave (V*)    a (ARG1*    book *)    . *

Spans of one predicate neither nest nor overlap. Brackets inside words (-LRB-) become what they stand for, since
the text that a user or a biLM reads has plain ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import UserError
from elmokit.tasks.metrics import Counts
from elmokit.tasks.nn.viterbi import OUTSIDE
from elmokit.tasks.task import located
from elmokit.text.conll import Block, read_blocks

WORD, FIRST_ROLE = 3, 11  # columns, from 0
COLUMNS = FIRST_ROLE + 1  # of a sentence without a predicate
VERB, CONTINUED = "V", "C-"
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
CELL = re.compile(r"(?:\((?P<role>[^()*\s]+))?\*(?P<end>\)?)")


class Span(NamedTuple):
    role: str
    start: int  # the first token, from 0
    end: int  # behind the last


@dataclass(frozen=True)
class Proposition:
    tokens: list[str]
    predicate: tuple[int, int]  # the first token of the V span, and behind its last
    spans: list[Span] | None  # by their beginning, V among them; None where they are not known
    where: str

    @property
    def tags(self) -> list[str] | None:
        return None if self.spans is None else tags_of(self.spans, len(self.tokens))


def read_propositions(path: Path) -> list[Proposition]:
    """One a predicate; a sentence without one gives none."""
    found = []
    blocks = read_blocks(
        path,
        tabs=False,
        comment=lambda text: text.startswith(("#begin document", "#end document")),
        least=COLUMNS,
    )
    for block in blocks:
        width = len(block[0].fields)
        for row in block:
            if len(row.fields) != width:
                raise UserError(
                    f"{path}, line {row.line}: expected {width} columns as in line {block[0].line}, "
                    f"where the sentence begins, found {len(row.fields)}"
                )
        tokens = [plain_brackets(row.fields[WORD]) for row in block]
        for column in range(FIRST_ROLE, width - 1):
            spans = read_column(block, column, path)
            verbs = [span for span in spans if span.role == VERB]
            if len(verbs) != 1:
                line = block[verbs[1].start if verbs else 0].line
                raise UserError(
                    f"{path}, line {line}: expected one {VERB} in column {column + 1} of the sentence, "
                    f"found {len(verbs)}"
                )
            _, start, end = verbs[0]
            found.append(Proposition(tokens, (start, end), spans, located(path, block[start].line)))
    if not found:
        raise UserError(f"{path}: expected predicates (columns {COLUMNS} and on), found none")
    return found


def plain_brackets(word: str) -> str:
    if "RB-" in word or "SB-" in word or "CB-" in word:
        for name, bracket in BRACKETS.items():
            word = word.replace(name, bracket)
    return word


def read_column(block: Block, column: int, path: Path) -> list[Span]:
    spans: list[Span] = []
    role, start = None, 0  # of the span that is open
    for number, row in enumerate(block):
        cell = row.fields[column]
        matched = CELL.fullmatch(cell)
        problem = None
        if matched is None:
            problem = "expected (ROLE*, *, *) or (ROLE*)"
        elif matched["role"] and role is not None:
            problem = f"expected {role} of line {block[start].line} to end before another span begins"
        elif matched["end"] and role is None and not matched["role"]:
            problem = "expected an open span where one ends"
        if matched is None or problem is not None:
            raise UserError(f"{path}, line {row.line}: column {column + 1}: {problem}, found {cell!r}")
        if matched["role"]:
            role, start = matched["role"], number
        if matched["end"] and role is not None:
            spans.append(Span(role, start, number + 1))
            role = None
    if role is not None:
        raise UserError(
            f"{path}, line {block[start].line}: column {column + 1}: expected {role} to end in its sentence, "
            f"found no ')' up to line {block[-1].line}"
        )
    return spans


def tags_of(spans: Sequence[Span], length: int) -> list[str]:
    """Spans -> BIO tags."""
    tags = [OUTSIDE] * length
    for role, start, end in spans:
        tags[start:end] = [f"B-{role}", *[f"I-{role}"] * (end - start - 1)]
    return tags


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Valid BIO tags -> spans."""
    spans = []
    for start, tag in enumerate(tags):
        if tag.startswith("B-"):
            end = start + 1
            while end < len(tags) and tags[end] == f"I-{tag[2:]}":
                end += 1
            spans.append(Span(tag[2:], start, end))
    return spans


class Argument(NamedTuple):
    role: str
    pieces: tuple[tuple[int, int], ...]  # more than one where it is discontinuous


def arguments(spans: Sequence[Span]) -> set[Argument]:
    """What srl-eval.pl counts.

    - C-X is a piece of the last X before it, R-X or ARG1-DSP is a role as any other: X with its pieces is one
      argument of role X, right only where every piece is.
    - A C-X without an X before it is an X itself, and may be continued in its turn.
    - V does not count, nor does C-V, which is a piece of it.
    """
    pieces: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}
    for role, start, end in sorted(spans, key=lambda span: span.start):
        whole = role.removeprefix(CONTINUED)
        if role != whole and whole in last:
            last[whole].append((start, end))
        else:
            last[whole] = [(start, end)]
            pieces.append((whole, last[whole]))
    return {Argument(role, tuple(parts)) for role, parts in pieces if role != VERB}


def count(
    predicted: Sequence[Sequence[Span]], truth: Sequence[Sequence[Span]]
) -> tuple[Counts, dict[str, Counts]]:
    """Over all propositions together (micro), and by role. A role that no model can say counts as missed."""
    right: Counter[str] = Counter()
    said: Counter[str] = Counter()
    there: Counter[str] = Counter()
    for ours, theirs in zip(predicted, truth, strict=True):
        found, wanted = arguments(ours), arguments(theirs)
        right.update(argument.role for argument in found & wanted)
        said.update(argument.role for argument in found)
        there.update(argument.role for argument in wanted)
    by_role = {role: Counts(right[role], said[role], there[role]) for role in sorted(said | there)}
    return Counts(right.total(), said.total(), there.total()), by_role
