"""A task with one label per example: its label set, targets, accuracy and table of labels.

An example without an answer (a user's line, a neutral review where there are two classes) counts neither in the
loss nor in the scores. The network's side of it is `nn/classifier.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from elmokit.tasks.metrics import Confusion, accuracy, label_rows
from elmokit.tasks.nn.classifier import LABELS
from elmokit.tasks.task import IGNORED, Labels, Task, located, unknown_label
from elmokit.text.columns import Columns
from elmokit.text.corpus import open_table
from elmokit.text.tokens import make_tokenizer


class Labelled(Protocol):
    @property
    def label(self) -> str | None: ...

    @property
    def where(self) -> str: ...


L = TypeVar("L", bound=Labelled)


class LabelTask(Task[L]):
    metric = "accuracy"

    @classmethod
    def read_table(cls, path: Path, columns: Columns) -> list[L]:
        """A row is an example: its texts are cut into words here, its label is any string or number."""
        tokenize = make_tokenizer("words").tokens
        with open_table(path, columns=columns, texts=cls.texts, labelled=True) as table:
            return [
                cls.row_example(row.texts, row.label, tokenize, located(path, row.line))
                for row in table.labelled_rows()
            ]

    @classmethod
    def labels_of(cls, examples: Sequence[L]) -> Labels:
        return {LABELS: sorted({example.label for example in examples if example.label is not None})}

    def answer(self, example: L) -> str | None:
        """The label that counts; None where there is none."""
        return example.label

    def check(self, examples: Sequence[L]) -> None:
        known = set(self.labels[LABELS])
        for example in examples:
            answer = self.answer(example)
            if answer is not None and answer not in known:
                raise unknown_label(example.where, f"label {answer!r}", sorted(known))

    def collate(self, examples: Sequence[L]) -> dict[str, Tensor]:
        numbers: dict[str | None, int] = {label: i for i, label in enumerate(self.labels[LABELS])}
        return {LABELS: torch.tensor([numbers.get(self.answer(example), IGNORED) for example in examples])}

    def metrics(self, predictions: Sequence[str], examples: Sequence[L]) -> dict[str, float]:
        return {"accuracy": accuracy(self._confusion(predictions, examples))}

    def by_label(self, predictions: Sequence[str], examples: Sequence[L]) -> list[dict[str, Any]]:
        """A row per label; "found as" is its row of the confusion matrix."""
        confusion, labels = self._confusion(predictions, examples), self.labels[LABELS]
        return [
            {**row, "found as": {predicted: confusion[row["label"], predicted] for predicted in labels}}
            for row in label_rows(confusion, labels)
        ]

    def _confusion(self, predictions: Sequence[str], examples: Sequence[L]) -> Confusion:
        answers = [self.answer(example) for example in examples]
        return Counter((a, p) for a, p in zip(answers, predictions, strict=True) if a is not None)
