"""The bidirectional language model: a token encoder and two stacks of LSTMs. Returns every layer.

Shapes: B batch, T tokens, W ids a token, L LSTM layers, P width of a direction, D = 2P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.model.char_encoder import CharEncoder, CharEncoderConfig
from elmokit.model.kernels import recurrent, steps
from elmokit.model.kernels.cache import weights_of
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.forking import prepare_for_forks
from elmokit.model.kernels.packing import WeightFormat
from elmokit.model.kernels.recurrent import Repeated
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
    private = (
        False  # nobody but the reader that made it has it, so nobody edits it: what was packed need no hashing
    )

    def __init__(self, config: BiLMConfig) -> None:
        super().__init__()
        prepare_for_forks()
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

    @property
    def weights(self) -> WeightFormat:
        """The format of the weights that the native library computes with where there are no gradients."""
        return self.encoder.weights

    @weights.setter
    def weights(self, weights: WeightFormat) -> None:
        self.encoder.weights = weights

    def forward(self, ids: Tensor, state: BiLMState | None = None) -> BiLMOutput:
        """ids [B, T, W] as they are: sentence boundaries are the caller's (see `add_boundaries`)."""
        mask = token_mask(ids)
        x = self.encoder(whole_rows(ids))[: len(ids)]
        return self.contextualize(x, mask, state)

    def contextualize(
        self, x: Tensor, mask: Tensor, state: BiLMState | None = None, *, ends: bool = True
    ) -> BiLMOutput:
        """The layers over given token vectors x [B, T, P], padded on the right.

        Without `ends`, nobody needs the vectors of a row's first and last token or the state after it: a direction
        may leave out the last token that it would come to.
        """
        if state is not None and state.hidden.shape[2] != x.shape[0]:
            raise UserError(f"expected a state of {x.shape[0]} rows, found {state.hidden.shape[2]}")
        lengths = mask.sum(dim=1)
        weights = [
            parameter for lstm in (*self.forward_lstms, *self.backward_lstms) for parameter in weights_of(lstm)
        ]
        path = path_for(x, *(state or ()), *weights)
        if path is Path.NATIVE_INFERENCE:
            before = state or (None, None)
            layers, *after = recurrent.stack(self.lstms(), x, lengths, *before, weights=self.weights, ends=ends)
            return BiLMOutput(layers, mask, BiLMState(*after))
        state = state if state is not None else self.zero_state(x.shape[0])
        x = x * mask.unsqueeze(-1)
        if path is Path.TORCH_INFERENCE:
            layers, *after = steps.stack(self.lstms(), x, lengths, *state)
            return BiLMOutput(layers, mask, BiLMState(*after))
        rows = len(x)
        x, mask, lengths = whole_rows(x), whole_rows(mask), whole_rows(lengths)
        state = BiLMState(whole_rows(state.hidden, dim=2), whole_rows(state.cell, dim=2))
        (forward, backward), after_all = self.run((x, reverse(x, lengths)), mask, state)
        both = [torch.cat([x, x], dim=-1)]
        both += [torch.cat([left, reverse(right, lengths)], dim=-1) for left, right in zip(forward, backward)]
        return BiLMOutput(torch.stack(both)[:, :rows], mask[:rows], after_all.rows(0, rows))

    def lstms(self) -> list[list[ProjectedLSTM]]:  # [2][L]
        return [cast("list[ProjectedLSTM]", list(lstms)) for lstms in (self.forward_lstms, self.backward_lstms)]

    def zero_state(self, rows: int) -> BiLMState:
        lstm = self.config.lstm
        like = weights_of(self.forward_lstms)[0]
        return BiLMState(
            like.new_zeros(2, lstm.layers, rows, lstm.width), like.new_zeros(2, lstm.layers, rows, lstm.cells)
        )

    def run(
        self,
        xs: Sequence[Tensor | Repeated],
        mask: Tensor,
        state: BiLMState,
        *,
        begins: Tensor | None = None,
        dropout: Callable[[Tensor, int, int], Tensor] = lambda x, direction, layer: x,
    ) -> tuple[list[list[Tensor]], BiLMState]:
        """Both directions over x [B, T, P], each as it reads it: every layer of each, and the state after.

        `dropout` is applied to what goes into each layer, a Repeated x excepted; `begins` as in ProjectedLSTM.
        """
        outputs: list[list[Tensor]] = [[], []]
        states: list[list[LSTMState]] = [[], []]
        for layer, lstms in enumerate(zip(*self.lstms())):
            inputs = [
                x if isinstance(x, Repeated) else dropout(x, direction, layer) for direction, x in enumerate(xs)
            ]
            before = [
                LSTMState(state.hidden[direction, layer], state.cell[direction, layer]) for direction in (0, 1)
            ]
            results = run_layer(lstms, inputs, mask, before, begins)
            # The skip connection is added to what the next layer reads, not to what the LSTM remembers.
            skips = self.config.lstm.skip and layer > 0
            above = [h + x if skips and isinstance(x, Tensor) else h for (h, _), x in zip(results, xs)]
            for direction, (_, after) in enumerate(results):
                outputs[direction].append(above[direction])
                states[direction].append(after)
            xs = above
        return outputs, stack_states(states)


def run_layer(
    lstms: Sequence[ProjectedLSTM],
    xs: Sequence[Tensor | Repeated],
    mask: Tensor,
    states: Sequence[LSTMState],
    begins: Tensor | None,
) -> list[tuple[Tensor, LSTMState]]:
    """One layer of both directions: both at once by the native library, or one after the other."""
    plain = all(isinstance(lstm, ProjectedLSTM) for lstm in lstms)
    lengths = mask.sum(dim=1)
    if plain and recurrent.repeats(xs, lstms, lengths):
        return recurrent.layer_of_repeated(lstms, xs, lengths, states, begins)
    whole = [x.whole() if isinstance(x, Repeated) else x for x in xs]
    weights = [parameter for lstm in lstms for parameter in weights_of(lstm)]
    parts = [part for state in states for part in state]
    if plain and path_for(*whole, *parts, *weights, training=True).native:
        return recurrent.layer(lstms, whole, lengths, states, begins)
    return [lstm(x, mask, state, begins) for lstm, x, state in zip(lstms, whole, states)]


def token_mask(ids: Tensor) -> Tensor:
    """ids [B, T, W] -> [B, T], true where there is a token; tokens must come before padding."""
    mask = (ids > 0).any(dim=-1)
    if mask.shape[1] > 1 and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise UserError(
            "expected each row's tokens first and its padding after them, found padding between tokens"
        )
    return mask


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """x [B, T, P] with each row's first `length` steps in reverse order, its padding where it was."""
    steps = torch.arange(x.shape[1], device=x.device)
    reversed_steps = lengths.unsqueeze(1) - 1 - steps  # [B, T]
    order = torch.where(reversed_steps >= 0, reversed_steps, steps)
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
