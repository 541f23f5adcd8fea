"""Sentences that come with the models, read once: whatever the page compares the reader's own with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import regex
from numpy.typing import NDArray

from elmokit.analysis.contexts.marked import MarkedSentence, read_marked
from elmokit.analysis.probes.pairs import SensePair, pairs_file, read_pairs
from elmokit.embed.embedder import Elmo
from elmokit.embed.similarity import unit_rows

KOREAN = regex.compile(r"\p{Hangul}")


def language_of(*texts: str) -> str:
    return "ko" if any(KOREAN.search(text) for text in texts) else "en"


@dataclass(frozen=True)
class Gallery:
    """The bundled sentences of a language, read by a model. N tokens in all, L layers, D wide."""

    elmo: Elmo
    language: str

    @cached_property
    def pairs(self) -> list[SensePair]:
        return read_pairs(pairs_file(self.language))

    @cached_property
    def sentences(self) -> list[MarkedSentence]:
        """Pair by pair, all contexts of its first sense, then all of its second."""
        return [
            read_marked(self.elmo, context)
            for pair in self.pairs
            for contexts in pair.contexts
            for context in contexts
        ]

    @cached_property
    def layers(self) -> list[NDArray[np.float32]]:
        """[L, T, D] per sentence."""
        return self.elmo.embed([sentence.tokens for sentence in self.sentences])

    @cached_property
    def tokens(self) -> list[tuple[int, int]]:
        """The sentence and the place of each of the N tokens."""
        return [(s, t) for s, sentence in enumerate(self.sentences) for t in range(len(sentence.tokens))]

    @cached_property
    def vectors(self) -> NDArray[np.float32]:  # [L, N, D]
        return np.concatenate(self.layers, axis=1)

    @cached_property
    def units(self) -> NDArray[np.float32]:  # [L, N, D], each vector of length 1
        return np.stack([unit_rows(layer) for layer in self.vectors])

    @cached_property
    def plane(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """By layer, the middle [L, D] of all tokens and the two directions [L, D, 2] in which they differ most.

        They are the model's own, and do not change while somebody types.
        """
        middle = self.vectors.mean(axis=1)
        directions = []
        for layer, centre in zip(self.vectors, middle):
            centred = layer.astype(np.float64) - centre
            _, found = np.linalg.eigh(centred.T @ centred)
            two = found[:, :-3:-1]
            directions.append(two * np.sign(two[np.abs(two).argmax(axis=0), [0, 1]]))
        return middle, np.stack(directions).astype(np.float32)
