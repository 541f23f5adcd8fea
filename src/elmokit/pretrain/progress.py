"""How pretraining goes: one kind of event for reading the text, training, measuring and comparing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from elmokit.progress import Progress

if TYPE_CHECKING:
    from elmokit.model.lstm import LSTMConfig
    from elmokit.pretrain.optimizer import OptimizerConfig
    from elmokit.pretrain.perplexity import Perplexity
    from elmokit.pretrain.run_config import Budget
    from elmokit.pretrain.step import TrainConfig


class Plan(NamedTuple):
    """What a run is about to do."""

    tokens: int  # of the text, as are the next two
    sentences: int
    types: int
    held_out: int  # sentences
    words: int  # that are predicted
    sampled: bool  # whether the softmax is
    softmax_width: int | None  # where a linear map stands before the softmax
    parameters: int  # of the biLM
    lstm: LSTMConfig
    train: TrainConfig
    optimizer: OptimizerConfig
    precision: str  # of products, as this machine can
    processes: int
    budget: Budget


@dataclass(frozen=True)
class TrainingProgress(Progress):
    """Stages are reading, training, measuring and comparing; the fraction is of the text, or of the budget.

    What is not known at a stage, or not measured yet, is None.
    """

    tokens: int = 0  # read, or trained on
    step: int = 0
    tokens_per_second: float | None = None
    seconds_left: float | None = None  # of training
    loss: float | None = None  # nats per token, mean of both directions
    perplexity: Perplexity | None = None  # measuring: of the held-out text
    message: str | None = None  # what somebody should know: a full disk, a step that was left out
    plan: Plan | None = None  # training, once, before the first step


OnTrainingProgress = Callable[[TrainingProgress], None]
Stop = Callable[[], bool]


def never() -> bool:
    """Where nobody stops the work."""
    return False
