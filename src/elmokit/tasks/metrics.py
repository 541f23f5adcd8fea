"""Precision, recall and F1, in per cent; 0 where there is nothing to divide by, as official scorers have it."""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    right: int = 0  # found, and so in truth
    found: int = 0
    there: int = 0  # in truth

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other)))

    @property
    def precision(self) -> float:
        return percent(self.right, self.found)

    @property
    def recall(self) -> float:
        return percent(self.right, self.there)

    @property
    def f1(self) -> float:
        return f_score(self.precision, self.recall)

    def scores(self) -> dict[str, float]:
        return {"f1": self.f1, "precision": self.precision, "recall": self.recall}


def percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0


def f_score(precision: float, recall: float) -> float:
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0
