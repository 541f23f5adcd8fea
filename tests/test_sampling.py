from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model import sampling
from elmokit.model.sampling import LogUniformSampler


def one_after_the_other(vocabulary, count, generator):
    """The definition, as a loop: draw until `count` distinct words are found."""
    found, tries = set(), 0
    while len(found) < count:
        found.add(int(math.exp(generator.random() * math.log(vocabulary + 1))) - 1)
        tries += 1
    return sorted(found), tries


def test_probabilities_are_those_of_the_definition():
    sampler = LogUniformSampler(9)
    expected = [(math.log(k + 2) - math.log(k + 1)) / math.log(10) for k in range(9)]
    np.testing.assert_allclose(sampler.probability(torch.arange(9)), expected, rtol=1e-14)
    assert sampler.probability(torch.arange(9)).sum() == pytest.approx(1.0, abs=1e-14)


def test_expected_counts_are_tensorflows():
    """Worked out by hand for V = 3: P = 1/2, log(3/2)/log 4, log(4/3)/log 4."""
    counts = LogUniformSampler(3).expected_count(torch.tensor([0, 1, 2]), 4)
    np.testing.assert_allclose(counts, [0.9375, 1 - (1 - 0.29248125) ** 4, 1 - (1 - 0.20751875) ** 4], rtol=1e-7)


def test_expected_counts_of_rare_words_keep_their_digits():
    """1 - (1 - p) ** 3 as it stands loses seven of them in float64; written out it loses none."""
    vocabulary = 800_000
    p = math.log1p(1 / vocabulary) / math.log(vocabulary + 1)
    count = LogUniformSampler(vocabulary).expected_count(torch.tensor([vocabulary - 1]), 3)
    assert count.item() == pytest.approx(3 * p - 3 * p**2 + p**3, rel=1e-14, abs=0)


@given(st.integers(2, 60), st.data(), st.integers(0, 2**32), st.sampled_from([3, 1 << 20]))
def test_a_sample_is_what_drawing_one_after_the_other_gives(vocabulary, data, seed, block):
    count = data.draw(st.integers(1, vocabulary - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "BLOCK", block)  # 3: many blocks for one sample
        ids, tries = LogUniformSampler(vocabulary).sample(count, np.random.default_rng(seed))
    expected_ids, expected_tries = one_after_the_other(vocabulary, count, np.random.default_rng(seed))
    assert ids.tolist() == expected_ids
    assert tries == expected_tries
    assert ids.dtype == torch.int64


def test_a_large_sample_is_what_drawing_one_after_the_other_gives():
    sampler = LogUniformSampler(10_000)
    for seed in range(3):  # a second sample must not see what the first left behind
        ids, tries = sampler.sample(8192, np.random.default_rng(seed))
        assert (ids.tolist(), tries) == one_after_the_other(10_000, 8192, np.random.default_rng(seed))


def test_words_and_tries_come_as_often_as_they_should():
    """Exact probabilities by all orders in which three of five words can be found."""
    vocabulary, count, samples = 5, 3, 20_000
    p = [math.log((k + 2) / (k + 1)) / math.log(vocabulary + 1) for k in range(vocabulary)]
    included, mean_tries = np.zeros(vocabulary), 0.0
    for order in permutations(range(vocabulary), count):
        chance, left, tries = 1.0, 1.0, 0.0
        for word in order:
            chance *= p[word] / left
            tries += 1 / left  # draws until one of those that are left comes
            left -= p[word]
        included[list(order)] += chance
        mean_tries += chance * tries
    sampler, generator = LogUniformSampler(vocabulary), np.random.default_rng(0)
    drawn = [sampler.sample(count, generator) for _ in range(samples)]
    frequency = np.bincount(torch.cat([ids for ids, _ in drawn]), minlength=vocabulary) / samples
    assert np.all(np.abs(frequency - included) < 4 * np.sqrt(included * (1 - included) / samples))
    tries = np.array([tries for _, tries in drawn])
    assert abs(tries.mean() - mean_tries) < 4 * tries.std() / math.sqrt(samples)


def test_expected_counts_are_near_how_often_words_come():
    """They are an approximation (TensorFlow's) of the chance to be in the sample: good for few of many words."""
    sampler, generator, samples = LogUniformSampler(1000), np.random.default_rng(1), 3000
    drawn = [sampler.sample(50, generator) for _ in range(samples)]
    frequency = np.bincount(torch.cat([ids for ids, _ in drawn]), minlength=1000) / samples
    expected = np.mean([sampler.expected_count(torch.arange(1000), tries).numpy() for _, tries in drawn], axis=0)
    assert np.all(np.abs(frequency - expected) < 0.01 + 5 * np.sqrt(expected * (1 - expected) / samples))
    assert expected.sum() == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("count", [0, 10, 11, -1])
def test_impossible_counts_are_refused(count):
    with pytest.raises(ValueError, match=f"expected 1 to 9 negatives .* found {count}: .* full softmax"):
        LogUniformSampler(10).sample(count, np.random.default_rng(0))


def test_a_vocabulary_without_negatives_is_refused():
    with pytest.raises(ValueError, match="2 words or more"):
        LogUniformSampler(1)
