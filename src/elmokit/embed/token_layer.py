"""Tokens -> places in a table of x_k, without gradients: a token that was met before has its vector there already.

A token's vector depends on its characters alone, and, if the native library computes it, not in a bit on the batch
that it is computed in: what is kept is what would be computed. Where the weights change, all is forgotten.

Shapes: B sentences, T tokens of the longest with its boundaries, P width of x_k, P' that up to a panel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.kernels.cache import Seen, certain, look, weights_of
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.forking import ForkLock
from elmokit.model.kernels.packing import up_to
from elmokit.model.kernels.reading import PackedEncoder, Tokens, packed_model, read
from elmokit.model.kernels.structs import PANEL
from elmokit.text.characters import TokenMapper

BYTES = 64 << 20  # of vectors; as many characters of tokens at most
BEGIN, END = 0, 1  # keys that no token is
Key = str | int


class _Table:
    """Vectors, and whose they are."""

    def __init__(self, made_by: object, vectors: Tensor) -> None:
        vectors[0] = 0  # for padding
        self.made_by = made_by  # what the vectors were made by, and what was seen of its weights
        self.vectors = vectors  # [places, P']
        self.places: dict[Key, int] = {}
        self.taken = 1  # places; those of tokens that are being computed have no key yet
        self.characters = 0  # of the tokens


class TokenLayer:
    """Safe from several threads at once: each computes what is missing for it, and then all know it."""

    def __init__(self, bilm: BiLM, mapper: TokenMapper, room: int = BYTES) -> None:
        self._bilm, self.mapper, self.room = bilm, mapper, room
        self._lock = ForkLock()
        # Of an encoder that is not packed: the weights of what is kept, and their format.
        self._seen: Seen | None = None
        self._format = bilm.weights
        self._table: _Table | None = None  # replaced as a whole: whoever reads from an old one goes on

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table.places)

    def __call__(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """x [B, T, P] and mask [B, T] of the sentences between their boundaries; zero where padded."""
        native = path_for(*weights_of(self._bilm)) is Path.NATIVE_INFERENCE
        model = packed_model(self._bilm) if native else None
        with self.placed(sentences, model.encoder if model else None) as tokens:
            if model is not None:
                read(model, tokens._replace(places=tokens.places[:0], lengths=tokens.lengths[:0]))
        where = torch.from_numpy(tokens.places.astype(np.int64)).to(tokens.table.device)
        return tokens.table[:, : self._bilm.config.lstm.width][where], where > 0

    @contextmanager
    def placed(self, sentences: Sequence[Sequence[str]], encoder: PackedEncoder | None = None) -> Iterator[Tokens]:
        """The sentences between their boundaries.

        What is new is for the block to compute by this encoder, and known when the block has ended; without one,
        it is in the table already.
        """
        lengths = np.array([len(sentence) + 2 for sentence in sentences], dtype=np.int32)
        keys: list[Key] = []
        for sentence in sentences:
            keys += (BEGIN, *sentence, END)
        places = np.zeros((len(lengths), max(lengths, default=0)), dtype=np.int32)
        with self._lock:
            table, new = self._reserve(keys, encoder)
            ids = self._ids(list(new))
            if encoder is None and new:
                self._encode(table, ids, table.taken - len(new))
                table.places.update(new)
                ids = ids[:0]
            known = table.places
            numbers = [known[key] if key in known else new[key] for key in keys]
            first = table.taken - len(new)
        places[np.arange(places.shape[1]) < lengths[:, None]] = numbers
        yield Tokens(table.vectors, places, lengths, ids.astype(np.int32), first)
        if len(ids):
            with self._lock:
                table.places.update(new)

    def _reserve(self, keys: list[Key], encoder: PackedEncoder | None) -> tuple[_Table, dict[Key, int]]:
        """The table for these keys, and those that are not in it with places of their own."""
        table = self._table
        made_by = encoder or self._unpacked()
        if table is not None and table.made_by is not made_by:
            table = None
        missing = list(dict.fromkeys(key for key in keys if table is None or key not in table.places))
        if table is not None and missing and not self._fits(table, missing):
            table = None  # and begin anew: the words of these sentences are the likeliest to come again
            missing = list(dict.fromkeys(keys))
        if table is None:
            places = self._most_places() if made_by is not None else 0
            like = weights_of(self._bilm.forward_lstms)[0]
            width = up_to(self._bilm.config.lstm.width, PANEL)
            table = _Table(made_by, like.new_empty(max(places, 1 + len(missing)), width))
            self._table = None if made_by is None else table
        first = table.taken
        table.taken += len(missing)
        table.characters += characters(missing)
        return table, dict(zip(missing, range(first, table.taken)))

    def _unpacked(self) -> Seen | None:
        """What is kept of an encoder that the library does not know as a whole; None where nothing is."""
        # Without the library, a word's last bits depend on the words that it is computed with: none is kept then.
        # Nor is one that is only looked up: to see whether its table has changed would take longer.
        weights = weights_of(self._bilm.encoder)
        keeps = isinstance(self._bilm.encoder, CharEncoder) and path_for(*weights).native
        if not keeps or self._format != self._bilm.weights:
            self._seen, self._format = None, self._bilm.weights
        if keeps:
            self._seen = look(weights, self._seen)
        return self._seen

    def _most_places(self) -> int:
        return max(1024, self.room // (4 * self._bilm.config.lstm.width))

    def _fits(self, table: _Table, keys: Sequence[Key]) -> bool:
        places = table.taken + len(keys)
        return places <= self._most_places() and table.characters + characters(keys) <= self.room

    def _ids(self, keys: Sequence[Key]) -> NDArray[np.int64]:  # [N, W]
        ids = np.zeros((len(keys), self.mapper.width), dtype=np.int64)
        for row, key in zip(ids, keys):
            if isinstance(key, str):
                self.mapper.fill(row, key)
            else:
                row[:] = self.mapper.begin if key == BEGIN else self.mapper.end
        return ids

    def _encode(self, table: _Table, ids: NDArray[np.int64], first: int) -> None:
        width = self._bilm.config.lstm.width
        with certain():
            x = self._bilm.encoder.encode(torch.from_numpy(ids).to(table.vectors.device))
        table.vectors[first : first + len(ids), :width] = x
        table.vectors[first : first + len(ids), width:] = 0


def characters(keys: Sequence[Key]) -> int:
    return sum(len(key) for key in keys if isinstance(key, str))
