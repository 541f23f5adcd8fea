"""MUC, B-cubed and CEAF of two clusterings, as the reference scorer has them (v8.01; Pradhan et al. 2014).

Numerators and denominators are summed over documents, and single-mention clusters count where they are given.
OntoNotes has none: to compare with it, they are dropped in key and response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.tasks.coref.clusters import Clusters, Mention
from elmokit.tasks.metrics import f_score, percent


class Score(NamedTuple):
    """Numerators and denominators of recall (over the key) and precision (over the response)."""

    recalled: float = 0  # of the gold, what the response has
    gold: float = 0
    correct: float = 0  # of the predicted, what the key has
    predicted: float = 0

    def plus(self, other: Score) -> Score:
        return Score(*(a + b for a, b in zip(self, other)))

    def scores(self) -> dict[str, float]:
        """In per cent."""
        recall, precision = percent(self.recalled, self.gold), percent(self.correct, self.predicted)
        return {"f1": f_score(precision, recall), "precision": precision, "recall": recall}


Sets = list[frozenset[Mention]]  # disjoint


def as_sets(clusters: Clusters) -> Sets:
    return [frozenset((int(start), int(end)) for start, end in cluster) for cluster in clusters]


def without_singles(clusters: Sets) -> Sets:
    return [cluster for cluster in clusters if len(cluster) > 1]


def _overlaps(ones: Sets, others: Sets) -> list[Counter[int]]:
    """For each of ones, how many mentions it shares with which of others."""
    cluster_of = {mention: number for number, cluster in enumerate(others) for mention in cluster}
    return [Counter(cluster_of[m] for m in cluster if m in cluster_of) for cluster in ones]


def muc(key: Sets, response: Sets) -> Score:
    """Vilain et al. 1995: links. A cluster of n in p parts has n - p correct; each mention missed is a part."""

    def links(ones: Sets, others: Sets) -> tuple[int, int]:
        shared = _overlaps(ones, others)
        return sum(s.total() - len(s) for s in shared), sum(len(cluster) - 1 for cluster in ones)

    return Score(*links(key, response), *links(response, key))


def b_cubed(key: Sets, response: Sets) -> Score:
    """Bagga and Baldwin 1998: for each mention, the share of its cluster that is in its other cluster."""

    def shares(ones: Sets, others: Sets) -> tuple[float, int]:
        parts = zip(ones, _overlaps(ones, others))
        correct = sum(sum(n * n for n in shared.values()) / len(cluster) for cluster, shared in parts if cluster)
        return correct, sum(map(len, ones))

    return Score(*shares(key, response), *shares(response, key))


def ceaf(key: Sets, response: Sets) -> Score:
    """Luo 2005, by entities: phi4 = 2 |K and R| / (|K| + |R|), summed over the best one-to-one alignment."""
    if not key or not response:
        return Score(0, len(key), 0, len(response))
    likeness = np.zeros((len(key), len(response)))
    for k, shared in enumerate(_overlaps(key, response)):
        for r, count in shared.items():
            likeness[k, r] = 2 * count / (len(key[k]) + len(response[r]))
    best = best_alignment(likeness)
    return Score(best, len(key), best, len(response))


def mentions(key: Sets, response: Sets) -> Score:
    gold, predicted = frozenset().union(*key), frozenset().union(*response)
    return Score(len(gold & predicted), len(gold), len(gold & predicted), len(predicted))


METRICS = {"muc": muc, "b3": b_cubed, "ceaf": ceaf, "mentions": mentions}


def best_alignment(likeness: NDArray[np.float64]) -> float:
    """The largest sum of entries, at most one per row and per column: the Hungarian algorithm, O(n^2 m).

    Rows join one after the other, each along the shortest path of reduced costs; potentials keep those >= 0.
    """
    cost = -(likeness if likeness.shape[0] <= likeness.shape[1] else likeness.T)
    rows, columns = cost.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns + 1)  # potentials; the last column is where a path begins
    row_at = np.full(columns + 1, -1)
    for row in range(rows):
        row_at[columns] = row
        column = columns
        nearest, before = np.full(columns, np.inf), np.full(columns, columns)
        visited = np.zeros(columns + 1, dtype=bool)
        while row_at[column] >= 0:
            visited[column] = True
            here = row_at[column]
            reduced = cost[here] - of_row[here] - of_column[:columns]
            closer = ~visited[:columns] & (reduced < nearest)
            nearest[closer], before[closer] = reduced[closer], column
            column = int(np.argmin(np.where(visited[:columns], np.inf, nearest)))
            step = nearest[column]
            of_row[row_at[visited]] += step
            of_column[visited] -= step
            nearest[~visited[:columns]] -= step
        while column != columns:  # back along the path: every column takes the row of the one before
            row_at[column] = row_at[before[column]]
            column = int(before[column])
    aligned = np.flatnonzero(row_at[:columns] >= 0)
    return float(-cost[row_at[aligned], aligned].sum())


def cluster_scores(
    predicted: Sequence[Clusters], gold: Sequence[Clusters], *, singletons: bool
) -> dict[str, Score]:
    """By the name of the metric, over all documents. Without `singletons`, single mentions are dropped in both."""
    totals = dict.fromkeys(METRICS, Score())
    for ours, theirs in zip(predicted, gold, strict=True):
        response, key = as_sets(ours), as_sets(theirs)
        if not singletons:
            response, key = without_singles(response), without_singles(key)
        for name, metric in METRICS.items():
            totals[name] = totals[name].plus(metric(key, response))
    return totals
