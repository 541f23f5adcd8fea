"""Sentences -> the vectors of every layer, in arrays that a probe can take.

Kept as float16, which halves the memory and changes no figure that a probe prints; sums are made in float32 or
wider. Probes have what is random, the choice of training examples, from `sample` alone.

Shapes: L layers, N tokens or sentences, D width.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Array, Elmo, Sentence
from elmokit.errors import UserError

Report = Callable[[str, int, int], None]  # the stage, how much is done, of how much
Item = TypeVar("Item")
LARGEST = float(np.finfo(np.float16).max)


def as_half(array: Array) -> NDArray[np.float16]:
    """float16, and what it cannot hold as the largest that it can."""
    return np.clip(array, -LARGEST, LARGEST).astype(np.float16)


def silent(stage: str, done: int, total: int) -> None:
    """The report of whoever does not want one."""


def watched(arrays: Iterator[Array], total: int, stage: str, report: Report) -> Iterator[Array]:
    report(stage, 0, total)
    for done, array in enumerate(arrays, start=1):
        yield array
        report(stage, done, total)


def token_vectors(
    elmo: Elmo, sentences: Sequence[Sequence[str]], stage: str = "embedding", report: Report = silent
) -> NDArray[np.float16]:
    """[L, N, D]: the vectors of all tokens, sentence after sentence."""
    vectors = np.empty((elmo.layers, sum(map(len, sentences)), elmo.width), dtype=np.float16)
    at = 0
    for array in watched(elmo.stream(sentences, layers="all"), len(sentences), stage, report):
        end = at + array.shape[1]
        vectors[:, at:end] = as_half(array)
        at = end
    assert at == vectors.shape[1]
    return vectors


def sentence_vectors(
    elmo: Elmo, sentences: Sequence[Sentence], stage: str = "embedding", report: Report = silent
) -> NDArray[np.float16]:
    """[L, N, D]: the mean of each sentence's tokens; zeros where it has none."""
    vectors = np.empty((elmo.layers, len(sentences), elmo.width), dtype=np.float16)
    arrays = elmo.stream(sentences, layers="all", pooling="mean")
    for row, array in enumerate(watched(arrays, len(sentences), stage, report)):
        vectors[:, row] = as_half(array)
    return vectors


def mean_of_layers(vectors: NDArray[np.float16]) -> NDArray[np.float32]:
    """[L, N, D] -> [N, D]"""
    mean: NDArray[np.float32] = vectors.mean(axis=0, dtype=np.float32)
    return mean


def sample(items: Sequence[Item], limit: int | None, seed: int) -> list[Item]:
    """No more than `limit` of them, chosen by the seed, in their order."""
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more training examples, found {limit}")
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in sorted(random.Random(seed).sample(range(len(items)), limit))]
