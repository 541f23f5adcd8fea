"""Character filters by tables: what a character gives to a filter at an offset is known before any word is read.

    table[offset, character, filter] = sum over e of embedding[character, e] * weight[filter, e, offset]

A filter over a window is then a sum of as many table rows as it is wide. The tables are made by PyTorch, which so
carries gradients on from them to embedding and weights.

Shapes: N words, C characters a word, E character embedding, A characters that a table knows, F filters in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.errors import UserError
from elmokit.model.kernels.cache import Seen, look
from elmokit.model.kernels.library import call
from elmokit.model.kernels.structs import PANEL, Filters, Words, array_of

# Tables for all of a lexicon's thousands of characters would take more memory than the model does. Beyond this,
# they are made for the characters of some words at a time: milliseconds, where the definition takes a second.
MOST_BYTES = 64 << 20
# Rows of a table come in groups, as in rows.py; of eight, as PyTorch sums products of under 400 terms otherwise.
WHOLE = 8
# The window that a gradient goes to is kept as a byte.
MOST_CHARACTERS = 256


def table_bytes(characters: int, filters: Sequence[tuple[int, int]]) -> int:
    return 4 * characters * sum(width * -(-count // PANEL) * PANEL for width, count in filters)


def make_tables(embedding: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """embedding [A, E], weights [count, E, width] -> [panels, width, A, PANEL] of each."""
    tables = []
    for weight in weights:
        count, size, width = weight.shape
        panels = F.pad(weight, (0, 0, 0, 0, 0, -count % PANEL)).view(-1, PANEL, size, width)
        panels = panels.permute(0, 3, 2, 1).reshape(-1, size, PANEL)  # [panels * width, E, PANEL]
        # `@` would copy the embedding for every product.
        table = torch.bmm(embedding.expand(len(panels), *embedding.shape), panels)
        tables.append(table.view(-1, width, len(embedding), PANEL))
    return tables


class TableCache:
    """The tables of the weights last seen, as long as those are the same."""

    def __init__(self) -> None:
        # Replaced as a whole, never changed: threads see the one or the other.
        self._held: tuple[Seen, list[Tensor]] | None = None

    def __reduce__(self) -> tuple[type[TableCache], tuple[()]]:
        return TableCache, ()  # a copy of a module makes its own

    def get(self, embedding: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        held = self._held
        seen = look([embedding, *weights], held[0] if held else None)
        if held is None or seen is not held[0]:
            with torch.inference_mode(False), torch.no_grad():
                copies = [tensor.detach().clone() for tensor in (embedding, *weights)]
                held = seen, make_tables(copies[0], copies[1:])
            self._held = held
        return held[1]


def used_characters(ids: Tensor, characters: int) -> tuple[Tensor, Tensor]:
    """ids [N, C] -> the characters in them [A], with 0 after them; and ids [N, C] of those."""
    present = torch.zeros(characters, dtype=torch.bool)
    present[ids] = True
    numbers = present.cumsum(0) - 1
    used = present.nonzero()[:, 0]
    return F.pad(used, (0, -len(used) % WHOLE)), numbers[ids]


def check_length(characters: int, widest: int) -> None:
    """Characters of a token, and the width of the widest filter."""
    if characters < widest:
        raise UserError(f"filters of width {widest} need {widest} characters a token, found {characters}")


def check_ids(ids: Tensor, characters: int) -> None:
    """The library reads where it is told: an id that is none of the table's must not come so far."""
    if ids.numel():
        least, most = (int(end) for end in torch.aminmax(ids))
        if least < 0 or most >= characters:
            found = least if least < 0 else most
            raise IndexError(f"expected character ids from 0 to {characters - 1}, found {found}")


def convolve(tables: Sequence[Tensor], counts: Sequence[int], ids: Tensor) -> Tensor:
    """ids [N, C] of characters that the tables know -> [N, F], the largest over the windows, without bias."""
    ids = ids.to(torch.int32).contiguous()
    if torch.is_grad_enabled() and any(table.requires_grad for table in tables):
        features: Tensor = _Convolve.apply(ids, tuple(counts), *tables)[0]  # type: ignore[no-untyped-call]
        return features
    return _forward(ids, counts, [table.contiguous() for table in tables], None)


def _forward(ids: Tensor, counts: Sequence[int], tables: Sequence[Tensor], where: Tensor | None) -> Tensor:
    features = torch.empty(len(ids), sum(counts))
    words = _words(ids, features.shape[1])
    words.features = features.data_ptr()
    words.where = None if where is None else where.data_ptr()
    _call("elmo_convolve", filter_structs(tables, counts), words)
    return features


def _words(ids: Tensor, features: int) -> Words:
    return Words(ids=ids.data_ptr(), words=ids.shape[0], length=ids.shape[1], stride=features)


def filter_structs(tables: Sequence[Tensor], counts: Sequence[int]) -> list[Filters]:
    filters, column = [], 0
    for table, count in zip(tables, counts):
        panels, width, characters, _ = table.shape
        filters.append(
            Filters(
                table=table.data_ptr(),
                width=width,
                filters=panels * PANEL,
                characters=characters,
                column=column,
                real=count,
            )
        )
        column += count
    return filters


def _call(function: str, filters: list[Filters], words: Words) -> None:
    call(function, array_of(filters), len(filters), words, torch.get_num_threads())


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ids: Tensor, counts: tuple[int, ...], *tables: Tensor) -> tuple[Tensor, Tensor]:
        where = torch.empty(len(ids), sum(counts), dtype=torch.uint8)
        return _forward(ids, counts, [table.contiguous() for table in tables], where), where

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ids, ctx.counts, *tables = inputs
        ctx.shapes = [table.shape for table in tables]
        ctx.save_for_backward(ids, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        ids, where = ctx.saved_tensors
        gradient = gradient.contiguous()
        gradients = [torch.zeros(shape) for shape in ctx.shapes]
        filters = filter_structs(gradients, ctx.counts)
        for part, table in zip(filters, gradients):
            part.table, part.table_gradient = None, table.data_ptr()
        words = _words(ids, where.shape[1])
        words.where, words.features_gradient = where.data_ptr(), gradient.data_ptr()
        _call("elmo_convolve_backward", filters, words)
        return None, None, *gradients
