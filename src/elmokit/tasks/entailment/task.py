"""Does a premise entail a hypothesis, contradict it, or neither? By ESIM (Chen et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from elmokit.tasks.classification import LabelTask
from elmokit.tasks.entailment.network import EsimNetwork, EsimSettings
from elmokit.tasks.entailment.pairs import Pair, read_pairs, with_majority
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.classifier import LABELS
from elmokit.tasks.task import BETWEEN, TrainConfig, split_in_two
from elmokit.text.columns import Columns
from elmokit.text.corpus import table_format


class Entailment(LabelTask[Pair]):
    name = "entailment"
    summary = "entailment between sentences (SNLI, MultiNLI): ESIM (Chen et al. 2017)"
    settings_class = EsimSettings
    texts = 2
    recipes: ClassVar = {
        "laptop": (EsimSettings(), TrainConfig(epochs=8, patience=2, examples=64, decay=0.5, average=0.999)),
        "paper": (
            EsimSettings(cells=300, dropout=0.5),
            TrainConfig(epochs=40, patience=7, examples=32, learning_rate=4e-4, decay=0.5),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Pair]:
        return cls.read_table(path, Columns()) if table_format(path) in ("csv", "tsv") else read_pairs(path)

    @classmethod
    def read_table(cls, path: Path, columns: Columns) -> list[Pair]:
        return with_majority(path, super().read_table(path, columns))

    @classmethod
    def row_example(
        cls, texts: Sequence[str], label: str | None, tokenize: Callable[[str], list[str]], where: str
    ) -> Pair:
        premise, hypothesis = texts
        return Pair(tokenize(premise), tokenize(hypothesis), label, where)

    @staticmethod
    def sentences(example: Pair) -> list[list[str]]:
        return [example.premise, example.hypothesis]

    def network(self, inputs: TokenInputs) -> EsimNetwork:
        return EsimNetwork(inputs, self.settings, self.labels[LABELS])

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Pair:
        premise, hypothesis = split_in_two(text, "a premise and a hypothesis", where)
        return Pair(tokenize(premise), tokenize(hypothesis), None, where)

    @staticmethod
    def show(example: Pair, prediction: str) -> str:
        return f"{prediction}\t{' '.join(example.premise)} {BETWEEN} {' '.join(example.hypothesis)}"
