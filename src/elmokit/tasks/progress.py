"""How a run of a task stands: one kind of report, from the reading of its files to its last epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.progress import Progress


class Epoch(NamedTuple):
    epoch: int  # from 1
    loss: float  # mean over the examples, dropout and all
    scores: dict[str, float]  # on dev
    seconds: float


@dataclass(frozen=True)
class TaskProgress(Progress):
    """Done are sentences that the biLM has read, or examples of this epoch."""

    loss: float | None = None  # while training: of this epoch so far
    epoch: Epoch | None = None  # one that has been measured just now


OnTaskProgress = Callable[[TaskProgress], None]
