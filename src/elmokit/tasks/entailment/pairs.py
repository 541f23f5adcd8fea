"""Pairs of sentences from JSON lines, as SNLI and MultiNLI have them; tables are read in `task.py`.

The keys are gold_label, sentence1 and sentence2. Pairs whose annotators did not agree (gold_label "-") are left
out; parses are not read, the sentences are cut into words here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks import json_fields
from elmokit.tasks.json_fields import field
from elmokit.tasks.task import located
from elmokit.text.corpus import Line, LineReader
from elmokit.text.tokens import make_tokenizer

KEYS = ("gold_label", "sentence1", "sentence2")
KNOWN = ("contradiction", "entailment", "neutral")
NO_MAJORITY = "-"


@dataclass(frozen=True)
class Pair:
    premise: list[str]
    hypothesis: list[str]
    label: str | None
    where: str


def read_pairs(path: Path) -> list[Pair]:
    tokenize = make_tokenizer("words").tokens
    with LineReader(path) as reader:
        lines = [line for line in reader if line.text.strip()]
    if not lines:
        raise UserError(f"{path}: expected pairs of sentences, found none: the file is empty")
    pairs = []
    for line in lines:
        label, premise, hypothesis = _fields(line, path)
        pairs.append(Pair(tokenize(premise), tokenize(hypothesis), label, located(path, line.number)))
    return with_majority(path, pairs)


def with_majority(path: Path, pairs: list[Pair]) -> list[Pair]:
    """Those that the annotators agreed on."""
    kept = [pair for pair in pairs if pair.label != NO_MAJORITY]
    if not kept:
        raise UserError(f'{path}: expected pairs with a label, found "-" in all {len(pairs)} lines')
    return kept


def _fields(line: Line, path: Path) -> tuple[str, str, str]:
    """The values of KEYS."""
    where = f"{path}, line {line.number}"
    table = json_fields.parse(line.text, where)
    label, premise, hypothesis = (field(table, key, str, where) for key in KEYS)
    if label not in (*KNOWN, NO_MAJORITY):
        raise UserError(f'{where}: expected gold_label to be {", ".join(KNOWN)} or "-", found {label[:60]!r}')
    return label, premise, hypothesis
