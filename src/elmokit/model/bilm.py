"""The bidirectional language model: a token encoder and two stacks of LSTMs. Returns every layer.

Shapes: B batch, T tokens, W ids a token, L LSTM layers, P width of a direction, D = 2P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.model.char_encoder import CharEncoder, CharEncoderConfig
from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM
from elmokit.model.rows import whole_rows
from elmokit.model.word_encoder import WordEncoder, WordEncoderConfig


@dataclass(frozen=True)
class BiLMConfig:
    encoder: CharEncoderConfig | WordEncoderConfig = field(default_factory=CharEncoderConfig)
    lstm: LSTMConfig = field(default_factory=LSTMConfig)

    @property
    def layers(self) -> int:
        """The representations of a token: the token layer and the LSTM layers."""
        return 1 + self.lstm.layers

    @property
    def width(self) -> int:
        """D, the width of every layer."""
        return 2 * self.lstm.width


class BiLMState(NamedTuple):
    """What every layer of both directions remembers after the last real token of each row."""

    hidden: Tensor  # [2, L, B, P]; [0] forward, [1] backward
    cell: Tensor  # [2, L, B, H]

    def rows(self, start: int, stop: int) -> BiLMState:
        return BiLMState(self.hidden[:, :, start:stop], self.cell[:, :, start:stop])


class BiLMOutput(NamedTuple):
    layers: Tensor  # [1 + L, B, T, D]; layer 0 is [x ; x], the others [forward ; backward]; 0 where padded
    mask: Tensor  # [B, T], true where there is a token
    state: BiLMState


class BiLM(nn.Module):
    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        self.config = config
        width = config.lstm.width
        self.encoder: CharEncoder | WordEncoder = (
            CharEncoder(config.encoder, width)
            if isinstance(config.encoder, CharEncoderConfig)
            else WordEncoder(config.encoder, width)
        )
        # Input and output of a layer are both P wide: x_k is, and so is every projection.
        self.forward_lstms = nn.ModuleList(ProjectedLSTM(width, config.lstm) for _ in range(config.lstm.layers))
        self.backward_lstms = nn.ModuleList(ProjectedLSTM(width, config.lstm) for _ in range(config.lstm.layers))

    def forward(self, ids: Tensor, state: BiLMState | None = None) -> BiLMOutput:
        """ids [B, T, W] as they are: sentence boundaries are the caller's (see `add_boundaries`)."""
        mask = token_mask(ids)
        x = self.encoder(whole_rows(ids))[: len(ids)]
        return self.contextualise(x, mask, state)

    def contextualise(self, x: Tensor, mask: Tensor, state: BiLMState | None = None) -> BiLMOutput:
        """The layers over given token vectors x [B, T, P], padded on the right."""
        state = state if state is not None else self.zero_state(x.shape[0])
        if state.hidden.shape[2] != x.shape[0]:
            raise ValueError(f"expected a state of {x.shape[0]} rows, found {state.hidden.shape[2]}")
        rows = len(x)
        x, mask = whole_rows(x * mask.unsqueeze(-1)), whole_rows(mask)
        state = BiLMState(whole_rows(state.hidden, dim=2), whole_rows(state.cell, dim=2))
        lengths = mask.sum(dim=1)
        forward, forward_state = self.run(0, x, mask, state)
        backward, backward_state = self.run(1, reverse(x, lengths), mask, state)
        layers = [torch.cat([x, x], dim=-1)]
        layers += [torch.cat([left, reverse(right, lengths)], dim=-1) for left, right in zip(forward, backward)]
        after = stack_states([forward_state, backward_state])
        return BiLMOutput(torch.stack(layers)[:, :rows], mask[:rows], after.rows(0, rows))

    def zero_state(self, rows: int) -> BiLMState:
        lstm = self.config.lstm
        like = next(self.forward_lstms.parameters())
        return BiLMState(
            like.new_zeros(2, lstm.layers, rows, lstm.width), like.new_zeros(2, lstm.layers, rows, lstm.cells)
        )

    def run(
        self,
        direction: int,
        x: Tensor,
        mask: Tensor,
        state: BiLMState,
        *,
        begins: Tensor | None = None,
        dropout: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> tuple[list[Tensor], list[LSTMState]]:
        """One direction (0 forward, 1 backward) over x [B, T, P] as that direction reads it: every layer.

        `dropout` is applied to what goes into each layer; `begins` as in ProjectedLSTM.
        """
        outputs, states = [], []
        for layer, lstm in enumerate((self.forward_lstms, self.backward_lstms)[direction]):
            before = LSTMState(state.hidden[direction, layer], state.cell[direction, layer])
            h, after = lstm(dropout(x), mask, before, begins)  # [B, T, P]
            # The skip connection is added to what goes on, not to what the LSTM remembers.
            x = h + x if self.config.lstm.skip and layer > 0 else h
            outputs.append(x)
            states.append(after)
        return outputs, states


def token_mask(ids: Tensor) -> Tensor:
    """ids [B, T, W] -> [B, T], true where there is a token; tokens must come before padding."""
    mask = (ids > 0).any(dim=-1)
    if mask.shape[1] > 1 and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError(
            "expected each row's tokens first and its padding after them, found padding between tokens"
        )
    return mask


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """x [B, T, P] with each row's first `length` steps in reverse order, its padding where it was."""
    steps = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - steps  # [B, T]
    order = torch.where(back >= 0, back, steps)
    return x.gather(1, order.unsqueeze(-1).expand_as(x))


def add_boundaries(ids: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """ids [B, T, W] -> [B, T + 2, W] with <S> before each row's tokens and </S> after its last."""
    lengths = token_mask(ids).sum(dim=1)
    with_boundaries = torch.nn.functional.pad(ids, (0, 0, 1, 1))
    with_boundaries[:, 0] = begin
    with_boundaries[torch.arange(len(ids), device=ids.device), lengths + 1] = end
    return with_boundaries


def stack_states(directions: list[list[LSTMState]]) -> BiLMState:
    return BiLMState(
        torch.stack([torch.stack([state.hidden for state in states]) for states in directions]),
        torch.stack([torch.stack([state.cell for state in states]) for states in directions]),
    )
