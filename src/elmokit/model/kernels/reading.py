"""Sentences through the whole model in one call of the native library: ids of new words in, layers out.

Words have places in a table of vectors. Those that are new come with their ids, and get theirs in the same call.

Shapes: B sentences, T tokens of the longest with its boundaries, M new words, C characters, L LSTM layers,
P width of a direction, P' that up to a panel's, H cells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.model.char_encoder import CharEncoder, Highway
from elmokit.model.kernels import convolution
from elmokit.model.kernels.cache import certain, on_the_side, remembered, weights_of
from elmokit.model.kernels.layers import packed
from elmokit.model.kernels.library import call
from elmokit.model.kernels.linear import packed as packed_linear
from elmokit.model.kernels.packing import up_to
from elmokit.model.kernels.structs import PANEL, Model, Reading, array_of

if TYPE_CHECKING:
    from elmokit.model.bilm import BiLM, BiLMState


class Tokens(NamedTuple):
    """Sentences between their boundaries, as places in a table of vectors."""

    table: Tensor  # [places, P']; the first is zero, for padding
    places: NDArray[np.int32]  # [B, T]
    lengths: NDArray[np.int32]  # [B]
    ids: NDArray[np.int32]  # [M, C] of words whose vectors are not in the table yet
    first: int  # place of the first of them; the others follow


class Mix(NamedTuple):
    """factor * (sum over j of weights[j] * layer numbers[j]) / divisor."""

    numbers: tuple[int, ...]
    weights: tuple[float, ...]
    factor: float = 1.0
    divisor: float = 1.0


class PackedEncoder:
    """A character encoder as the library reads it. The vectors that it makes are its own: another one, others."""

    def __init__(self, encoder: CharEncoder, tables: Sequence[Tensor]) -> None:
        counts = [count for _, count in encoder.config.filters]
        features = up_to(sum(counts), PANEL)
        layers = cast("list[Highway]", list(encoder.highway))
        highways = [part for layer in layers for part in (layer.transform, layer.carry)]
        ends = [encoder.projection] if isinstance(encoder.projection, nn.Linear) else []
        self.characters = encoder.config.characters
        self.tables = tables
        self.bias = F.pad(encoder.filter_bias().detach(), (0, features - sum(counts)))
        self.linears = [packed_linear(module, encoder.weights) for module in (*highways, *ends)]
        self.filters = array_of(convolution.filter_structs(tables, counts))
        self.highways, self.projection = (
            array_of([layer.struct for layer in part]) if part else None
            for part in (self.linears[: len(highways)], self.linears[len(highways) :])
        )
        self.fields = {
            "filters": self.filters,
            "filters_count": len(self.filters),
            "bias": self.bias.data_ptr(),
            "highways": self.highways,
            "highways_count": len(highways) // 2,
            "projection": self.projection,
            "features": features,
            "by_tanh": encoder.config.activation == "tanh",
        }
        self._widest = max(width for width, _ in encoder.config.filters)

    def check(self, ids: NDArray[np.int32]) -> None:
        """ids [M, C]: the library reads where it is told."""
        convolution.check_length(ids.shape[1], self._widest)
        convolution.check_ids(torch.from_numpy(ids), self.characters)


class PackedModel:
    """Holds what `struct` points to."""

    def __init__(self, bilm: BiLM) -> None:
        config = bilm.config.lstm
        self.encoder = _packed_encoder(bilm.encoder) if covers(bilm.encoder) else None
        self.lstms = [packed(lstm, bilm.weights) for direction in bilm.lstms() for lstm in direction]
        self.layers, self.width = bilm.config.layers, bilm.config.width
        self._layers = array_of([layer.struct for layer in self.lstms])
        self.struct = Model(
            layers=self._layers,
            layers_count=config.layers,
            cells=config.cells,
            skip=config.skip,
            **({} if self.encoder is None else self.encoder.fields),
        )


def covers(encoder: nn.Module) -> TypeGuard[CharEncoder]:
    """Is it one that the library runs as a whole? Vectors of others are for the caller to put into the table."""
    return isinstance(encoder, CharEncoder) and encoder.has_tables


def _packed_encoder(encoder: CharEncoder) -> PackedEncoder:
    def make() -> PackedEncoder:
        with certain():  # it is kept beyond what is computed now
            return PackedEncoder(encoder, encoder.tables())

    return remembered(encoder, ("encoder", encoder.weights), weights_of(encoder), make)


def packed_model(bilm: BiLM, weights: Sequence[Tensor] | None = None) -> PackedModel:
    """The model, packed; from an earlier call where its weights, given if they are at hand, are still the same."""
    if not covers(bilm.encoder):
        weights = [*weights_of(bilm.forward_lstms), *weights_of(bilm.backward_lstms)]
    elif weights is None:
        weights = weights_of(bilm)

    def make() -> PackedModel:
        with certain():
            return PackedModel(bilm)

    return remembered(bilm, ("model", bilm.weights), weights, make)


def read(
    model: PackedModel,
    tokens: Tokens,
    before: BiLMState | None = None,
    after: BiLMState | None = None,
    *,
    boundaries: bool = False,
    mix: Mix | None = None,
    threads: int | None = None,
) -> list[NDArray[np.float32]]:
    """Each sentence's N tokens, its boundaries among them if asked for: [1 + L, N, 2P], or their mix [N, 2P].

    before, after    states [2, L, B, P] and [2, L, B, H]: in which the sentences begin, None for zero; and, if it
                     is wanted, room for that in which they end.
    """
    margin = 0 if boundaries else 1
    counts = (tokens.lengths - 2 * margin).tolist()
    shape = (model.width,) if mix else (model.layers, model.width)
    arrays = [np.empty((*shape[:-1], count, shape[-1]), dtype=np.float32) for count in counts]
    out = np.array([_address(array) for array in arrays], dtype=np.uintp)
    reading = Reading(
        model=ctypes.pointer(model.struct),
        table=tokens.table.data_ptr(),
        stride=tokens.table.shape[1],
        places=_address(tokens.places),
        lengths=_address(tokens.lengths),
        rows=tokens.places.shape[0],
        steps=tokens.places.shape[1],
        margin=margin,
        out=_address(out),
        threads=threads or torch.get_num_threads(),
    )
    if len(tokens.ids):
        assert model.encoder is not None
        model.encoder.check(tokens.ids)
        reading.ids, reading.first = _address(tokens.ids), tokens.first
        reading.words, reading.length = tokens.ids.shape
    if before is not None:
        before = type(before)(*(part.contiguous() for part in before))
        reading.hidden, reading.cell = before.hidden.data_ptr(), before.cell.data_ptr()
    if after is not None:
        reading.hidden_after, reading.cell_after = after.hidden.data_ptr(), after.cell.data_ptr()
    if mix is not None:
        numbers, weights = np.array(mix.numbers, dtype=np.int32), np.array(mix.weights, dtype=np.float32)
        reading.mixed, reading.weights, reading.mixed_count = _address(numbers), _address(weights), len(numbers)
        reading.factor, reading.divisor = mix.factor, mix.divisor
    with on_the_side() as hashing:
        reading.spans, reading.spans_count, reading.digests = hashing.arguments
        call("elmo_read", reading)
    return arrays


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]  # a third of the time that array.ctypes takes
    return address
