"""MUC, B-cubed and CEAF: the papers' worked examples, and plain implementations of the definitions."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.coref.scores import METRICS, as_sets, best_alignment, cluster_scores

# Worked examples. Mentions are letters or numbers there.


def sets(*clusters: str):
    return as_sets([[(ord(letter), ord(letter) + 1) for letter in cluster] for cluster in clusters])


def scores(metric: str, key, response) -> tuple[float, float, float]:
    """Recall, precision, F1; not in per cent."""
    found = METRICS[metric](key, response).scores()
    return found["recall"] / 100, found["precision"] / 100, found["f1"] / 100


@pytest.mark.parametrize(
    ("key", "response", "recall", "precision"),
    [
        ("ABCD", "AB CD", 2 / 3, 1),
        ("AB CD", "ABCD", 1, 2 / 3),
        ("ABCD", "ABCD", 1, 1),
        ("ABCD", "AB", 1 / 3, 1),
        ("ABC", "AC", 1 / 2, 1),
        ("ABCD", "A B C D", 0, 0),
    ],
)
def test_muc_as_vilain_et_al_1995(key, response, recall, precision):
    assert scores("muc", sets(*key.split()), sets(*response.split()))[:2] == pytest.approx((recall, precision))


KEY = sets("12345", "67", "89ABC")


def test_b_cubed_as_bagga_and_baldwin_1998():
    """Two responses that MUC cannot tell apart."""
    near, far = sets("12345", "6789ABC"), sets("1234589ABC", "67")
    assert scores("muc", KEY, near)[:2] == scores("muc", KEY, far)[:2] == pytest.approx((1, 9 / 10))
    assert scores("b3", KEY, near)[:2] == pytest.approx((1, 16 / 21))
    assert scores("b3", KEY, far)[:2] == pytest.approx((1, 7 / 12))


@pytest.mark.parametrize(
    ("response", "aligned", "f1"),
    [
        ("12345 6789ABC", 1 + 10 / 12, 0.733),
        ("1234589ABC 67", 10 / 15 + 1, 0.667),
        ("123456789ABC", 10 / 17, 0.294),
        ("1 2 3 4 5 6 7 8 9 A B C", 2 / 6 + 2 / 3 + 2 / 6, 0.178),
    ],
)
def test_ceaf_as_luo_2005(response, aligned, f1):
    found = sets(*response.split())
    recall, precision, harmonic = scores("ceaf", KEY, found)
    assert (recall, precision) == pytest.approx((aligned / 3, aligned / len(found)))
    assert harmonic == pytest.approx(f1, abs=5e-4)


def test_predicted_mentions_as_pradhan_et_al_2014():
    """The reference implementation's example: e is missed, h and i are no mentions."""
    key, response = sets("abc", "defg"), sets("ab", "cd", "fghi")
    assert scores("muc", key, response) == pytest.approx((2 / 5, 2 / 5, 2 / 5))
    assert scores("b3", key, response)[:2] == pytest.approx(((4 / 3 + 1 / 3 + 1 / 4 + 4 / 4) / 7, 4 / 8))
    assert scores("ceaf", key, response)[:2] == pytest.approx((1.3 / 2, 1.3 / 3))
    assert scores("mentions", key, response)[:2] == pytest.approx((6 / 7, 6 / 8))


def test_nothing_is_scored_as_nothing():
    for metric in METRICS:
        assert scores(metric, [], []) == scores(metric, KEY, []) == scores(metric, [], KEY) == (0, 0, 0)


def test_single_mentions_count_where_they_are_asked_for():
    key = [[[(0, 1), (2, 3)], [(4, 5)]]]
    response = [[[[0, 1], [2, 3]], [[6, 7]]]]
    with_them = {name: s.scores() for name, s in cluster_scores(response, key, singletons=True).items()}
    without = {name: s.scores() for name, s in cluster_scores(response, key, singletons=False).items()}
    assert all(row == {"f1": 100, "precision": 100, "recall": 100} for row in without.values())
    assert with_them["muc"]["f1"] == 100  # it cannot see them
    assert with_them["b3"]["f1"] == pytest.approx(100 * 2 / 3)
    assert with_them["ceaf"]["recall"] == with_them["ceaf"]["precision"] == 50


def test_documents_are_summed_and_their_mentions_kept_apart():
    key = [[[(0, 1), (1, 2)]], [[(0, 1), (1, 2), (2, 3)]]]
    response = [[[(0, 1), (1, 2)]], []]
    assert cluster_scores(response, key, singletons=False)["muc"].scores()["recall"] == pytest.approx(100 / 3)


# Plain implementations


def plain(metric: str, ones, others) -> tuple[float, float]:
    """Numerator and denominator of recall, straight from the definitions, mention by mention."""
    where = {m: cluster for cluster in others for m in cluster}
    if metric == "muc":
        parts = [{where.get(m, frozenset([m])) for m in cluster} for cluster in ones]
        return sum(len(c) - len(p) for c, p in zip(ones, parts)), sum(len(c) - 1 for c in ones)
    if metric == "b3":
        every = [len(c & where.get(m, frozenset())) / len(c) for c in ones for m in c]
        return sum(every), len(every)
    size = max(len(ones), len(others))
    rows, columns = ([*side, *[frozenset()] * (size - len(side))] for side in (ones, others))
    likeness = [[2 * len(a & b) / max(1, len(a) + len(b)) for b in columns] for a in rows]
    return max(sum(likeness[i][j] for i, j in enumerate(p)) for p in permutations(range(size))), len(ones)


partitions = st.lists(st.integers(0, 4), min_size=8, max_size=8).map(
    lambda numbers: [  # 0: no mention
        frozenset((i, i + 1) for i, n in enumerate(numbers) if n == cluster) for cluster in set(numbers) - {0}
    ]
)


@given(partitions, partitions)
def test_the_metrics_agree_with_their_definitions(key, response):
    for metric in ("muc", "b3", "ceaf"):
        recalled, gold, correct, predicted = METRICS[metric](key, response)
        assert (recalled, gold) == pytest.approx(plain(metric, key, response))
        assert (correct, predicted) == pytest.approx(plain(metric, response, key))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6), st.booleans())
def test_the_best_alignment_is_the_best_of_all_permutations(rows, columns, seed, ties):
    likeness = np.random.default_rng(seed).random((rows, columns))
    if ties:
        likeness = np.floor(3 * likeness)
    few, many = sorted((likeness, likeness.T), key=len)
    best = max(many[list(p), range(len(few))].sum() for p in permutations(range(len(many)), len(few)))
    assert best_alignment(likeness) == pytest.approx(best)
