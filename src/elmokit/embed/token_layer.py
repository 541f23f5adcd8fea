"""x_k of tokens without gradients: each distinct token is computed once, and kept while there is room.

A token's vector depends on its characters alone, and, if the native library computes it, not in a bit on the batch
that it is computed in: what is kept is what would be computed. Where the weights change, all is forgotten.

Shapes: B sentences, T tokens of the longest with its boundaries, P width of x_k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.kernels.cache import Seen, certain, look, weights_of
from elmokit.model.kernels.dispatch import path_for
from elmokit.model.kernels.forking import ForkLock
from elmokit.text.characters import TokenMapper

BYTES = 64 << 20  # of vectors; as many characters of tokens at most
BEGIN, END = 0, 1  # keys that no token is
Key = str | int


class TokenLayer:
    """Safe from several threads at once: one of them computes what is missing, the others wait for it."""

    def __init__(self, bilm: BiLM, mapper: TokenMapper, room: int = BYTES) -> None:
        self._bilm, self.mapper, self.room = bilm, mapper, room
        self._lock = ForkLock()
        self._seen: Seen | None = None  # the weights of what is kept
        self._forget()

    def _forget(self) -> None:
        self._places: dict[Key, int] = {}
        self._characters = 0
        self._vectors: Tensor | None = None  # [places, P]; the first is zero, for padding

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """x [B, T, P] and mask [B, T] of the sentences between their boundaries; zero where padded."""
        longest = max((len(sentence) for sentence in sentences), default=-2) + 2
        lengths = np.array([len(sentence) + 2 for sentence in sentences], dtype=np.int64)
        keys: list[Key] = []
        for sentence in sentences:
            keys += (BEGIN, *sentence, END)
        real = np.arange(longest) < lengths[:, None]  # [B, T]
        where = np.zeros(real.shape, dtype=np.int64)
        with self._lock:
            self._make_room(keys)
            where[real] = [self._places[key] for key in keys]
            assert self._vectors is not None
            x = self._vectors[torch.from_numpy(where.reshape(-1)).to(self._vectors.device)]
        return x.view(*where.shape, x.shape[-1]), torch.from_numpy(real).to(x.device)

    def _make_room(self, keys: list[Key]) -> None:
        """Every one of these keys has its place."""
        weights = weights_of(self._bilm.encoder)
        # Without the library, a word's last bits depend on the words that it is computed with: none is kept then.
        # Nor is one that is only looked up: to see whether its table has changed would take longer.
        keeps = isinstance(self._bilm.encoder, CharEncoder) and path_for(*weights).native
        seen = look(weights, self._seen) if keeps else None
        if seen is None or seen is not self._seen:
            self._forget()
            self._seen = seen
        missing = [key for key in dict.fromkeys(keys) if key not in self._places]
        if not missing and self._vectors is not None:
            return
        width = self._bilm.config.lstm.width
        places = max(1024, self.room // (4 * width))
        if self._places and (
            len(self._places) + len(missing) >= places or self._characters + characters(missing) > self.room
        ):
            self._forget()  # and begin anew: the words of these sentences are the likeliest to come again
            missing = list(dict.fromkeys(keys))
        if self._vectors is None:
            vectors = weights[0].new_empty(max(places, 1 + len(missing)), width)
            vectors[0] = 0
            self._vectors = vectors  # not before its first row is zero: see ForkLock
        if missing:
            first = 1 + len(self._places)
            self._vectors[first : first + len(missing)] = self._encoded(missing)
            self._places.update(zip(missing, range(first, first + len(missing))))
            self._characters += characters(missing)

    def _encoded(self, keys: list[Key]) -> Tensor:
        ids = np.zeros((len(keys), self.mapper.width), dtype=np.int64)
        for row, key in zip(ids, keys):
            if isinstance(key, str):
                self.mapper.fill(row, key)
            else:
                row[:] = self.mapper.begin if key == BEGIN else self.mapper.end
        assert self._vectors is not None
        with certain():
            return self._bilm.encoder.encode(torch.from_numpy(ids).to(self._vectors.device))


def characters(keys: Sequence[Key]) -> int:
    return sum(len(key) for key in keys if isinstance(key, str))
