"""Contenders from text to vectors: a format of weights, native or by definition, words known or not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from elmokit.bench.lstms import Apart, shell
from elmokit.bench.rates import seconds
from elmokit.bench.sentences import Sentences
from elmokit.checkpoint import Checkpoint
from elmokit.embed.embedder import Elmo
from elmokit.embed.reader import Array
from elmokit.embed.token_layer import TokenLayer
from elmokit.model.kernels import use
from elmokit.model.kernels.packing import WeightFormat


@dataclass(frozen=True, eq=False)
class Contender:
    """Contenders of one model share its weights; what was packed of them is kept from reader to reader."""

    name: str
    checkpoint: Checkpoint
    weights: WeightFormat = "float32"
    native: bool = True
    known: TokenLayer | None = None  # words that need not be computed any more

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, name: str, weights: WeightFormat = "float32", native: bool = True
    ) -> Contender:
        return cls(name, replace(checkpoint, bilm=shell(checkpoint.bilm)), weights, native)

    def reader(self, **options: Any) -> Elmo:
        """A new one, the only owner of its weights: as a model is that was opened by its name."""
        elmo = Elmo._owning(self.checkpoint, "in memory", weights=self.weights, **options)
        if self.known is not None:
            elmo.token_layer = self.known
        return elmo

    def kernels(self) -> AbstractContextManager[object]:
        return nullcontext() if self.native else use("definition")

    def vectors(self, sentences: Sentences) -> list[Array]:
        with self.kernels():
            return self.reader().embed(sentences)

    def warm(self, name: str, sentences: Sentences) -> Contender:
        """The same, that knows the words of these sentences."""
        elmo = self.reader()
        with self.kernels():
            deque(elmo.stream(sentences), maxlen=0)
        return replace(self, name=name, known=elmo.token_layer)

    def seconds(self, sentences: Sentences, keep: bool = False, **options: Any) -> float:
        """Of reading the sentences with a new reader."""
        elmo = self.reader(**options)
        with self.kernels():
            return seconds(lambda: elmo.embed(sentences) if keep else deque(elmo.stream(sentences), maxlen=0))

    def latencies(self, sentences: Sentences) -> list[float]:
        """Of one sentence after the other, each by itself."""
        elmo = self.reader()
        with self.kernels():
            return [seconds(partial(elmo.embed, [sentence])) for sentence in sentences]


def farthest(found: Sequence[Array], expected: Sequence[Array]) -> Apart:
    """Of all layers of all tokens: the largest difference and the lowest cosine."""
    pairs = [Apart.of(torch.from_numpy(a), torch.from_numpy(b)) for a, b in zip(found, expected) if a.size]
    return Apart(max(pair.difference for pair in pairs), min(pair.cosine for pair in pairs))
