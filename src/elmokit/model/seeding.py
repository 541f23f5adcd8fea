"""Random numbers from a seed, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, torch draws from the seed; after it, as if nothing had been drawn.

    Only the generator of the CPU is seeded, and set back, so nothing else needs to be.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
