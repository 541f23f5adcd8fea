"""Examples -> batches of like length, and the order in which an epoch trains on them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from elmokit.tasks.task import Task, TrainConfig

BUCKETS = 50  # batches whose examples are sorted by length together: like lengths, and still a random order


def batches(
    task: Task[Any], examples: Sequence[Any], most: int, tokens: int, order: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """Indices of examples of like length: at most `most`, within `tokens` padded tokens, one at least.

    order    the sequence to cut into batches; by default from the longest to the shortest.
    """
    sizes = _sizes(task, examples)
    chosen = sorted(range(len(examples)), key=lambda i: -sizes[i]) if order is None else order
    batch: list[int] = []
    longest = 0
    for i in chosen:
        if batch and (len(batch) >= most or max(longest, sizes[i]) * (len(batch) + 1) > tokens):
            yield batch
            batch, longest = [], 0
        batch.append(i)
        longest = max(longest, sizes[i])
    if batch:
        yield batch


def epoch_batches(
    task: Task[Any], examples: Sequence[Any], config: TrainConfig, epoch: int
) -> Iterator[list[int]]:
    """In a random order, which the seed and the epoch's number say, but batches of like lengths."""
    chance = random.Random(f"{config.seed} {epoch}")
    order = list(range(len(examples)))
    chance.shuffle(order)
    sizes = _sizes(task, examples)
    together = BUCKETS * config.examples
    sorted_order = [
        i
        for start in range(0, len(order), together)
        for i in sorted(order[start : start + together], key=lambda i: -sizes[i])
    ]
    all_batches = list(batches(task, examples, config.examples, config.batch_tokens, sorted_order))
    chance.shuffle(all_batches)
    return iter(all_batches)


def _sizes(task: Task[Any], examples: Sequence[Any]) -> list[int]:
    return [task.cost(example) for example in examples]
