"""How a run of a task stands: one kind of report, from the reading of its files to its last epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Epoch(NamedTuple):
    epoch: int  # from 1
    loss: float  # mean over the examples, dropout and all
    scores: dict[str, float]  # on dev
    seconds: float


class Progress(NamedTuple):
    stage: str  # what is being done, in words to be shown
    done: int = 0  # sentences that the biLM has read, or examples of this epoch
    total: int = 0  # 0 where there is nothing to count
    loss: float | None = None  # while training: of this epoch so far
    epoch: Epoch | None = None  # one that has been measured just now


OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """For whoever does not watch."""
