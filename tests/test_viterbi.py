"""The best valid BIO path, against all paths one by one, and against a CRF that has learned nothing."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.nn.crf import CRF, Allowed
from elmokit.tasks.nn.viterbi import BioViterbi
from elmokit.tasks.spans import bio_may_follow, bio_tags

TAGS = bio_tags(["A", "C-A"])


def valid(tags: list[str]) -> bool:
    return all(bio_may_follow(before, tag) for before, tag in zip([None, *tags], tags))


def best_by_trial(scores: torch.Tensor) -> float:
    """Of all valid sequences of one sentence [T, K]."""
    return max(
        sum(float(row[TAGS.index(tag)]) for row, tag in zip(scores, tags))
        for tags in itertools.product(TAGS, repeat=len(scores))
        if valid(list(tags))
    )


def value(scores: torch.Tensor, tags: list[str]) -> float:
    return sum(float(row[TAGS.index(tag)]) for row, tag in zip(scores, tags))


@pytest.mark.parametrize("seed", range(20))
def test_the_path_is_the_best_of_all_valid_ones(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = [5, 3, 1, 4]
    scores = torch.randn(4, 5, len(TAGS), generator=generator, dtype=torch.float64) * 3
    scores[:, :, [2, 4]] += 2  # inside tags are tempting
    mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    for row, length, tags in zip(scores, lengths, BioViterbi(TAGS)(scores, mask)):
        assert len(tags) == length
        assert valid(tags)
        assert value(row, tags) == pytest.approx(best_by_trial(row[:length]))


@given(st.data())
def test_no_scores_bring_an_invalid_sequence(data):
    size, longest = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 7))
    labels = [f"R{number}" for number in range(data.draw(st.integers(0, 4)))]
    tags = data.draw(st.permutations(bio_tags(labels)))
    number = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, 1.0, 1e30, -1e30])
    count = size * longest * len(tags)
    scores = torch.tensor(data.draw(st.lists(number, min_size=count, max_size=count)))
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, longest), min_size=size, max_size=size)))
    mask = torch.arange(longest) < lengths.unsqueeze(1)
    found = BioViterbi(tags)(scores.view(size, longest, len(tags)), mask)
    assert [len(row) for row in found] == lengths.tolist()
    assert all(valid(row) for row in found)


def test_what_is_valid_already_is_kept():
    gold = ["B-A", "I-A", "O", "B-C-A"]
    scores = torch.zeros(1, 4, len(TAGS))
    for t, tag in enumerate(gold):
        scores[0, t, TAGS.index(tag)] = 1.0
    assert BioViterbi(TAGS)(scores, torch.ones(1, 4, dtype=torch.bool)) == [gold]


def test_a_batch_without_tokens_has_empty_paths():
    assert BioViterbi(TAGS)(torch.zeros(2, 0, len(TAGS)), torch.zeros(2, 0, dtype=torch.bool)) == [[], []]


def test_tags_that_cannot_be_begun_are_refused():
    with pytest.raises(ValueError, match="expected B-A where there is I-A, found O, I-A"):
        BioViterbi(["O", "I-A"])
    with pytest.raises(ValueError, match="with which a sentence may begin"):
        BioViterbi([])


@pytest.mark.parametrize("seed", range(5))
def test_a_crf_of_zeros_finds_the_same_paths(seed):
    generator = torch.Generator().manual_seed(seed)
    crf = CRF(Allowed.by_rule(TAGS, bio_may_follow))
    scores = torch.randn(6, 9, len(TAGS), generator=generator, dtype=torch.float64)
    mask = torch.arange(9) < torch.tensor([9, 0, 4, 1, 7, 9]).unsqueeze(1)
    named = [[TAGS[number] for number in path] for path in crf.best_paths(scores, mask)]
    assert BioViterbi(TAGS)(scores, mask) == named


def test_scores_without_bounds_bring_no_invalid_sequence():
    scores = torch.full((1, 3, len(TAGS)), torch.inf)
    assert valid(BioViterbi(TAGS)(scores, torch.ones(1, 3, dtype=torch.bool))[0])
