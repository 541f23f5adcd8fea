"""Sentences -> batches of similar length within a token budget -> padded ids. The order can be restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UserError
from elmokit.text.characters import TokenMapper

T = TypeVar("T")


def pad(mapper: TokenMapper, sentences: Sequence[Sequence[str]], boundaries: bool) -> NDArray[np.int64]:
    """Rows of ids [B, T, W], zeros where a sentence has ended; with <S> and </S> around it if `boundaries`."""
    extra = 2 if boundaries else 0
    longest = max((len(sentence) for sentence in sentences), default=0) + extra
    ids = np.zeros((len(sentences), longest, mapper.width), dtype=np.int64)
    for rows, sentence in zip(ids, sentences):
        for row, token in zip(rows[extra // 2 :], sentence):
            mapper.fill(row, token)
        if boundaries:
            rows[0] = mapper.begin
            rows[len(sentence) + 1] = mapper.end
    return ids


def windows(items: Iterable[T], tokens: int, length: Callable[[T], int] = len) -> Iterator[list[T]]:  # type: ignore[assignment]
    """Consecutive sentences of about `tokens` tokens together: what is held in memory at one time."""
    window: list[T] = []
    held = 0
    for item in items:
        window.append(item)
        held += length(item) + 2  # an empty sentence is also held, and costs its boundaries
        if held >= tokens:
            yield window
            window, held = [], 0
    if window:
        yield window


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of sentences, grouped so that rows x longest row stays within `budget` tokens.

    The longest come first: a budget that is too large for memory shows at once. A sentence longer than the
    budget has a batch of its own. Equal lengths keep their order, so the grouping is reproducible.
    """
    if budget < 1:
        raise UserError(f"a batch needs a budget of at least 1 token, found {budget}")
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * max(1, lengths[batch[0]]) > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
