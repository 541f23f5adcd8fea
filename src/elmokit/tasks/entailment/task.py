"""Does a premise entail a hypothesis, contradict it, or neither? By ESIM (Chen et al. 2017).

Files are JSON lines as SNLI and MultiNLI have them: gold_label, sentence1, sentence2. Pairs whose annotators did
not agree (gold_label "-") are left out; parses are not read, the sentences are cut into words here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from elmokit.errors import UserError
from elmokit.tasks.entailment.network import EsimNetwork, EsimSettings
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.labelled import LABELS, LabelTask
from elmokit.tasks.task import TrainConfig, located
from elmokit.text.corpus import Line, LineReader
from elmokit.text.tokens import make_tokenizer

KEYS = ("gold_label", "sentence1", "sentence2")
KNOWN = ("contradiction", "entailment", "neutral")
NO_MAJORITY = "-"
BETWEEN = "|||"


@dataclass(frozen=True)
class Pair:
    premise: list[str]
    hypothesis: list[str]
    label: str | None
    where: str


class Entailment(LabelTask[Pair]):
    name = "entailment"
    summary = "entailment between sentences (SNLI, MultiNLI): ESIM (Chen et al. 2017)"
    settings_class = EsimSettings
    recipes: ClassVar = {
        "laptop": (EsimSettings(), TrainConfig(epochs=8, patience=2, examples=64, decay=0.5, average=0.999)),
        "paper": (
            EsimSettings(cells=300, dropout=0.5),
            TrainConfig(epochs=40, patience=7, examples=32, learning_rate=4e-4, decay=0.5),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Pair]:
        tokenize = make_tokenizer("words").tokens
        with LineReader(path) as reader:
            lines = [line for line in reader if line.text.strip()]
        if not lines:
            raise UserError(f"{path}: expected pairs of sentences, found none: the file is empty")
        pairs = []
        for line in lines:
            label, premise, hypothesis = _fields(line, path)
            if label != NO_MAJORITY:
                pairs.append(Pair(tokenize(premise), tokenize(hypothesis), label, located(path, line.number)))
        if not pairs:
            raise UserError(f'{path}: expected pairs with a label, found "-" in all {len(lines)} lines')
        return pairs

    @staticmethod
    def sentences(example: Pair) -> list[list[str]]:
        return [example.premise, example.hypothesis]

    def network(self, inputs: TokenInputs) -> EsimNetwork:
        return EsimNetwork(inputs, self.settings, self.labels[LABELS])

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Pair:
        parts: Sequence[str] = re.split(rf"{re.escape(BETWEEN)}|\t", text)
        if len(parts) != 2:
            raise UserError(
                f"{where}: expected a premise and a hypothesis with {BETWEEN} or a tab between, found "
                f"{len(parts)} parts: {text[:60]!r}"
            )
        return Pair(tokenize(parts[0]), tokenize(parts[1]), None, where)

    @staticmethod
    def show(example: Pair, prediction: str) -> str:
        return f"{prediction}\t{' '.join(example.premise)} {BETWEEN} {' '.join(example.hypothesis)}"


def _fields(line: Line, path: Path) -> list[str]:
    """The values of KEYS."""
    where = f"{path}, line {line.number}"
    try:
        table = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(table, dict):
        raise UserError(f"{where}: expected a JSON object, found {line.text[:60]!r}")
    for key in KEYS:
        if key not in table:
            raise UserError(f"{where}: expected the key {key!r}, found {', '.join(map(repr, table)) or 'none'}")
        if not isinstance(table[key], str):
            raise UserError(f"{where}: expected {key!r} to be text, found {table[key]!r}")
    if table["gold_label"] not in (*KNOWN, NO_MAJORITY):
        raise UserError(
            f'{where}: expected gold_label to be {", ".join(KNOWN)} or "-", found {table["gold_label"]!r}'
        )
    return [table[key] for key in KEYS]
