"""How pretraining goes: one kind of event for reading the text, training, measuring and comparing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from elmokit.model.lstm import LSTMConfig
    from elmokit.pretrain.optimizer import OptimizerConfig
    from elmokit.pretrain.perplexity import Perplexity
    from elmokit.pretrain.run_config import Budget
    from elmokit.pretrain.step import TrainConfig

Stage = Literal["reading", "training", "measuring", "comparing"]


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


class Progress(NamedTuple):
    """Where the work stands. What is not known at a stage, or not measured yet, is None."""

    stage: Stage
    fraction: float | None  # reading: of the text; training and measuring: of the budget
    tokens: int = 0  # read, or trained on
    step: int = 0
    tokens_per_second: float | None = None
    seconds_left: float | None = None  # of training
    loss: float | None = None  # nats per token, mean of both directions
    perplexity: Perplexity | None = None  # measuring: of the held-out text
    message: str | None = None  # what somebody should know: a full disk, a step that was left out
    plan: Plan | None = None  # training, once, before the first step


OnProgress = Callable[[Progress], None]
Stop = Callable[[], bool]


def unheard(progress: Progress) -> None:
    """Where nobody listens."""


def never() -> bool:
    """Where nobody stops the work."""
    return False
