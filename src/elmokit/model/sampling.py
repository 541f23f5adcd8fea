"""Negatives for a sampled softmax: distinct words from the log-uniform (Zipfian) distribution.

    P(k) = (log(k + 2) - log(k + 1)) / log(V + 1)        words in order of frequency, k = 0 the most frequent

This is TensorFlow's `log_uniform_candidate_sampler` with `unique=True`: words are drawn one after the other, those
drawn before are passed over, and the number of draws (`tries`) says how often a word was to be expected.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import UserError

BLOCK = 1 << 20  # draws at once, at most: nearly all of a large vocabulary takes many


class Negatives(NamedTuple):
    ids: Tensor  # [S] int64, distinct, sorted
    tries: int  # draws that it took to find S distinct ones


class LogUniformSampler:
    def __init__(self, vocabulary: int) -> None:
        if vocabulary < 2:
            raise UserError(f"expected a vocabulary of 2 words or more to draw negatives from, found {vocabulary}")
        self.vocabulary = vocabulary
        # Where each word came first. Allocated once; a draw writes its words' places before it reads them.
        self._first = np.empty(vocabulary, dtype=np.int64)

    def probability(self, ids: Tensor) -> Tensor:
        """P(k) of one draw, float64."""
        return torch.log1p(1 / (ids.double() + 1)) / math.log(self.vocabulary + 1)

    def expected_count(self, ids: Tensor, tries: int) -> Tensor:
        """The probability that a word is among so many draws, float64: 1 - (1 - P(k)) ** tries."""
        return -torch.expm1(tries * torch.log1p(-self.probability(ids)))

    def sample(self, count: int, generator: np.random.Generator) -> Negatives:
        """`count` distinct words; the same ones for the same state of the generator."""
        if not 0 < count < self.vocabulary:
            raise UserError(
                f"expected 1 to {self.vocabulary - 1} negatives for a vocabulary of {self.vocabulary} words, "
                f"found {count}: take fewer, or the full softmax"
            )
        block = min(BLOCK, _likely_tries(self.vocabulary, count))
        found, tries = np.empty(0, dtype=np.int64), 0
        while True:
            draws = np.concatenate([found, self._draw(block, generator)])  # [D]
            first = self._first_places(draws)
            if len(first) >= count:
                tries += int(first[count - 1]) + 1 - len(found)
                return Negatives(torch.from_numpy(np.sort(draws[first[:count]])), tries)
            found, tries = draws[first], tries + block

    def _draw(self, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
        # The inverse of the cumulative distribution log(k + 1) / log(V + 1); rounding may reach its open end.
        above = np.exp(generator.random(count) * math.log(self.vocabulary + 1)).astype(np.int64)
        return np.minimum(above - 1, self.vocabulary - 1)

    def _first_places(self, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places in `draws` that hold a word for the first time, in order; the cost is that of the draws."""
        places = np.arange(len(draws))
        self._first[draws] = len(draws)
        np.minimum.at(self._first, draws, places)
        return np.flatnonzero(self._first[draws] == places)


@lru_cache(maxsize=64)
def _likely_tries(vocabulary: int, count: int) -> int:
    """So many draws that they nearly always hold `count` distinct words: one block, and one pass over it."""
    ids = np.arange(vocabulary, dtype=np.float64)
    log_miss = np.log1p(-np.log1p(1 / (ids + 1)) / math.log(vocabulary + 1))  # of one draw; [V], once a sampler

    def distinct(tries: int) -> float:
        return float(-np.expm1(tries * log_miss).sum())

    # The number of distinct words varies less than a Poisson variable of that mean.
    enough = min(count + 3 * math.sqrt(count), (count + vocabulary) / 2)
    high = count
    while distinct(high) < enough:
        high *= 2
    low = high // 2
    while high - low > 1 + high // 128:  # a rough answer will do
        middle = (low + high) // 2
        low, high = (middle, high) if distinct(middle) < enough else (low, middle)
    return high
