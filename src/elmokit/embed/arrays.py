"""Sentences -> the vectors of every layer, in arrays that a probe can take.

Kept as float16, which halves the memory and changes no figure that a probe prints; sums are made in float32 or
wider.

Shapes: L layers, N tokens or sentences, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Elmo
from elmokit.embed.reader import Array
from elmokit.embed.sentences import Sentence
from elmokit.progress import OnProgress, silent, watched

LARGEST = float(np.finfo(np.float16).max)


def as_half(array: Array) -> NDArray[np.float16]:
    """float16, and what it cannot hold as the largest that it can."""
    return np.clip(array, -LARGEST, LARGEST).astype(np.float16)


def token_vectors(
    elmo: Elmo, sentences: Sequence[Sequence[str]], stage: str = "embedding", on_progress: OnProgress = silent
) -> NDArray[np.float16]:
    """[L, N, D]: the vectors of all tokens, sentence after sentence."""
    layers = np.empty((elmo.layers, sum(map(len, sentences)), elmo.width), dtype=np.float16)
    at = 0
    for array in watched(elmo.stream(sentences, layers="all"), len(sentences), stage, on_progress):
        end = at + array.shape[1]
        layers[:, at:end] = as_half(array)
        at = end
    assert at == layers.shape[1]
    return layers


def sentence_vectors(
    elmo: Elmo, sentences: Sequence[Sentence], stage: str = "embedding", on_progress: OnProgress = silent
) -> NDArray[np.float16]:
    """[L, N, D]: the mean of each sentence's tokens; zeros where it has none."""
    layers = np.empty((elmo.layers, len(sentences), elmo.width), dtype=np.float16)
    arrays = elmo.stream(sentences, layers="all", pooling="mean")
    for row, array in enumerate(watched(arrays, len(sentences), stage, on_progress)):
        layers[:, row] = as_half(array)
    return layers


def mean_of_layers(layers: NDArray[np.float16]) -> NDArray[np.float32]:
    """[L, N, D] -> [N, D]"""
    mean: NDArray[np.float32] = layers.mean(axis=0, dtype=np.float32)
    return mean
