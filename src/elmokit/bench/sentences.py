"""Sentences to measure on: the lines of a file, or made up by Zipf's law and as long as an encyclopaedia's."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.text.corpus import LineReader

Sentences = list[list[str]]
VOCABULARY = 100_000


def made_up_words(count: int) -> list[str]:
    """By rank, all different, as long as English ones are: the rank in base 16, and letters that are no digits."""
    rng, letters = random.Random(0), "ghijklmnopqrstuvwxyz"
    ranks = (f"{rank:x}" for rank in range(1, count + 1))
    return [rank + "".join(rng.choices(letters, k=int(rng.gammavariate(3, 0.3 * len(rank))))) for rank in ranks]


def zipf_shares(count: int) -> NDArray[np.float64]:
    """By Zipf and Mandelbrot: p(rank) ~ (rank + 2.7) ** -1.1."""
    weights = np.power(np.arange(1, count + 1, dtype=np.float64) + 2.7, -1.1)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@cache
def _words() -> tuple[list[str], NDArray[np.float64]]:
    return made_up_words(VOCABULARY), zipf_shares(VOCABULARY)


def real_lengths(count: int, seed: int = 0) -> NDArray[np.int64]:
    """As sentences of an encyclopaedia are: 22 tokens on average, now and then 60."""
    return 2 + np.random.default_rng(seed).gamma(3.0, 6.9, count).round().astype(np.int64)


def made_up(lengths: Sequence[int] | NDArray[np.int64], seed: int = 0) -> Sentences:
    words, shares = _words()
    drawn = np.random.default_rng(seed).choice(len(words), int(np.sum(lengths)), p=shares).tolist()
    ends = np.cumsum(lengths).tolist()
    return [[words[i] for i in drawn[start:end]] for start, end in zip([0, *ends], ends)]


def read_text(path: Path, elmo: Elmo, count: int) -> Sentences:
    """The first lines, as the model's tokenizer reads them; the same word is the same object, to save memory."""
    with LineReader(path, "skip") as lines:
        read = ([sys.intern(token) for token in elmo.tokens(line.text)] for line in lines)
        sentences = list(islice(filter(None, read), count))
    if not sentences:
        raise UserError(f"{path}: expected sentences, one a line, found none")
    return sentences


def first_tokens(sentences: Sentences, count: int) -> Sentences:
    """The first sentences, of so many tokens together, and the one that goes beyond it."""
    ends = np.cumsum([len(sentence) for sentence in sentences])
    return sentences[: 1 + int(np.searchsorted(ends, count))]


def tokens_of(sentences: Sentences) -> int:
    return sum(map(len, sentences))
