"""Scores of labels: precision, recall, F1, accuracy and what a label is taken for.

Scores are in per cent; 0 where there is nothing to divide by, as official scorers have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple


class Counts(NamedTuple):
    correct: int = 0  # predicted, and gold
    predicted: int = 0
    gold: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other)))

    @property
    def precision(self) -> float:
        return percent(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        return percent(self.correct, self.gold)

    @property
    def f1(self) -> float:
        return f_score(self.precision, self.recall)

    def scores(self) -> dict[str, float]:
        return {"f1": self.f1, "precision": self.precision, "recall": self.recall}

    def row(self, label: str) -> dict[str, Any]:
        """Of a table with a row per label."""
        return {"label": label, **self.scores(), "count": self.gold}


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def f_score(precision: float, recall: float) -> float:
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0


Confusion = Counter[tuple[str, str]]  # (gold, predicted): how often


def accuracy(confusion: Confusion) -> float:
    correct = sum(count for (gold, predicted), count in confusion.items() if gold == predicted)
    return percent(correct, confusion.total())


def label_rows(confusion: Confusion, labels: Iterable[str]) -> list[dict[str, Any]]:
    """A table with a row per label; "taken for" are the two that it is most often mistaken for."""
    of_gold, of_predicted = Counter[str](), Counter[str]()
    for (gold, predicted), count in confusion.items():
        of_gold[gold] += count
        of_predicted[predicted] += count
    labels = list(labels)
    rows = []
    for label in labels:
        counts = Counts(confusion[label, label], of_predicted[label], of_gold[label])
        wrong = Counter({other: confusion[label, other] for other in labels if other != label})
        rows.append(
            {
                "label": label,
                "precision": counts.precision,
                "recall": counts.recall,
                "count": counts.gold,
                "taken for": [other for other, count in wrong.most_common(2) if count],
            }
        )
    return rows
