"""A part of the examples, chosen by a seed: the one thing in the analyses that is random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from elmokit.errors import UserError

Item = TypeVar("Item")


def sample(items: Sequence[Item], limit: int | None, seed: int) -> list[Item]:
    """No more than `limit` of them, chosen by the seed, in their order; None is no limit."""
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more examples, found {limit}")
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i] for i in sorted(random.Random(seed).sample(range(len(items)), limit))]
