"""What the LSTMs remember when a batch begins: nothing, the batch before, or a text read to warm up.

The original ELMo is stateful: a sentence's vectors depend on whatever was embedded before it. Here that is a
choice, made in the open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch

from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMState

StateName = Literal["zero", "carry", "warm"]


class StatePolicy(ABC):
    state: BiLMState | None = None  # what is remembered
    carries = False  # does `after` take note of anything?

    @abstractmethod
    def before(self, rows: int) -> BiLMState | None:
        """The state in which a batch of so many rows begins; None is zero."""

    def after(self, state: BiLMState) -> None:  # noqa: B027 - not every policy has something to note
        """Take note of the state in which the batch ended."""

    def reset(self) -> None:  # noqa: B027
        """Forget what was carried."""


class ZeroState(StatePolicy):
    """Every sentence begins from nothing: its vectors depend on no batch and on no other sentence."""

    def before(self, rows: int) -> BiLMState | None:
        return None


class CarryState(StatePolicy):
    """As the original: row k of a batch resumes from where row k of the batch before it ended.

    A batch of fewer rows leaves the others' state as it is; a row that never ran begins from zero.
    """

    carries = True

    def __init__(self, bilm: BiLM, state: BiLMState | None = None) -> None:
        self._bilm, self.state = bilm, state

    def before(self, rows: int) -> BiLMState | None:
        held = 0 if self.state is None else self.state.hidden.shape[2]
        more = self._bilm.zero_state(max(0, rows - held))
        if self.state is not None:  # the model may have moved to another device or type since
            more = _join(BiLMState(*(part.to(more.cell) for part in self.state)), more)
        self.state = more
        return more.rows(0, rows)

    def after(self, state: BiLMState) -> None:
        assert self.state is not None
        rows, held = state.hidden.shape[2], self.state.hidden.shape[2]
        # Detached: as in truncated backpropagation, no gradient flows into an earlier batch.
        self.state = _join(BiLMState(*(part.detach() for part in state)), self.state.rows(rows, held))

    def reset(self) -> None:
        self.state = None


class WarmState(StatePolicy):
    """Every sentence begins as if it followed the same given text; like zero, no batch matters."""

    def __init__(self, state: BiLMState) -> None:
        self.state: BiLMState = state  # of one row

    def before(self, rows: int) -> BiLMState | None:
        return BiLMState(*(part.expand(-1, -1, rows, -1) for part in self.state))


def state_policy(name: str, bilm: BiLM, state: BiLMState | None = None) -> StatePolicy:
    """A policy by its name, remembering this."""
    if name == "zero":
        return ZeroState()
    if name == "carry":
        return CarryState(bilm, state)
    if name == "warm" and state is not None:
        return WarmState(state)
    raise UserError(f'state: expected "zero", "carry" or "warm", found {name!r}')


def _join(left: BiLMState, right: BiLMState) -> BiLMState:
    return BiLMState(torch.cat([left.hidden, right.hidden], dim=2), torch.cat([left.cell, right.cell], dim=2))
