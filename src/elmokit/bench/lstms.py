"""The LSTMs alone: ours by format of weights, the loop that defines them, AllenNLP's loop and torch's nn.LSTM.

Shapes: B rows, T steps, P width of a direction, D = 2P, L layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elmokit.model.bilm import BiLM, BiLMState, reverse
from elmokit.model.kernels import use
from elmokit.model.kernels.cache import optimistic
from elmokit.model.kernels.packing import WeightFormat
from elmokit.model.lstm import LSTMState, ProjectedLSTM

NO_WARNING = "LSTM with projections is not supported with oneDNN"  # what torch says of nn.LSTM(proj_size=...)


class TorchLSTM(nn.Module):
    """torch's own projected LSTM with the weights, and the call, of ours."""

    def __init__(self, ours: ProjectedLSTM) -> None:
        super().__init__()
        config = ours.config
        self.lstm = nn.LSTM(ours.input_weight.shape[1], config.cells, proj_size=config.width, batch_first=True)
        gates = torch.tensor([0.0, config.forget_bias, 0.0, 0.0]).repeat_interleave(config.cells)
        values = {
            "weight_ih_l0": ours.input_weight,
            "weight_hh_l0": ours.hidden_weight,
            "weight_hr_l0": ours.projection_weight,
            "bias_ih_l0": ours.bias + gates,
            "bias_hh_l0": torch.zeros_like(ours.bias),
        }
        with torch.no_grad():
            for name, parameter in self.lstm.named_parameters():
                parameter.copy_(values[name])

    # It knows neither padding nor beginnings: windows of a carried stream have none.
    def forward(self, x: Tensor, mask: Tensor, state: LSTMState, begins: None) -> tuple[Tensor, LSTMState]:
        h, (hidden, cell) = self.lstm(x, (state.hidden.unsqueeze(0), state.cell.unsqueeze(0)))
        return h, LSTMState(hidden[0], cell[0])


class StepByStep(nn.Module):
    """The loop of AllenNLP's LstmCellWithProjection: two linear maps a step, of its input and of its state."""

    def __init__(self, ours: ProjectedLSTM) -> None:
        super().__init__()
        self.ours = ours

    def forward(self, x: Tensor, mask: Tensor, state: LSTMState, begins: Tensor | None = None) -> Any:
        outputs, now = [], state
        for step, real in zip(x.unbind(1), mask.unbind(1)):
            h, now = self.ours(step.unsqueeze(1), real.unsqueeze(1), now)
            outputs.append(h)
        return torch.cat(outputs, dim=1), now


def with_lstms(kind: Callable[[ProjectedLSTM], nn.Module], bilm: BiLM) -> BiLM:
    """The same biLM, whose LSTMs are now of another kind."""
    for name in ("forward_lstms", "backward_lstms"):
        setattr(bilm, name, nn.ModuleList(kind(lstm) for lstm in getattr(bilm, name)))
    return bilm


class Batch(NamedTuple):
    x: Tensor  # [B, T, P], zero where padded
    mask: Tensor  # [B, T]
    state: BiLMState

    @classmethod
    def make(cls, bilm: BiLM, lengths: Sequence[int]) -> Batch:  # the longest first
        mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
        x = torch.randn(*mask.shape, bilm.config.lstm.width, generator=torch.Generator().manual_seed(0))
        return cls(x * mask.unsqueeze(-1), mask, bilm.zero_state(len(lengths)))


Run = Callable[[Batch], Tensor]  # -> [L, B, T, D]


def ours(bilm: BiLM, weights: WeightFormat) -> Run:
    """As a reader runs them: by the native library, or by torch where there is none."""
    bilm = shell(bilm)
    bilm.weights = weights
    return lambda batch: optimistic(lambda: bilm.contextualize(*batch), private=True).layers[1:]


def definition(bilm: BiLM) -> Run:
    """The loop over time that defines them; all inputs of a layer by one product."""
    return partial(by_modules, bilm)


def step_by_step(bilm: BiLM) -> Run:
    return partial(by_modules, with_lstms(StepByStep, copy.deepcopy(bilm)))


def torch_padded(bilm: BiLM) -> Run:
    return partial(by_modules, with_lstms(TorchLSTM, copy.deepcopy(bilm)))


def torch_packed(bilm: BiLM) -> Run:
    """torch's LSTMs without computing padding."""
    return partial(by_packed, with_lstms(TorchLSTM, copy.deepcopy(bilm)))


def shell(bilm: BiLM) -> BiLM:
    """Another biLM of the same weights: their format, which its encoder keeps, is its own."""
    made = copy.copy(bilm)
    made._modules = dict(bilm._modules)
    made.encoder = copy.copy(bilm.encoder)
    return made


def by_modules(bilm: BiLM, batch: Batch) -> Tensor:
    """Whatever LSTM modules the biLM has, one after the other."""
    lengths = batch.mask.sum(dim=1)
    with use("definition"):
        (left, right), _ = bilm.run((batch.x, reverse(batch.x, lengths)), batch.mask, batch.state)
    return torch.stack([torch.cat([a, reverse(b, lengths)], dim=-1) for a, b in zip(left, right)])


def by_packed(bilm: BiLM, batch: Batch) -> Tensor:
    lengths, sides = batch.mask.sum(dim=1), []
    inputs = (batch.x, reverse(batch.x, lengths))
    for x, lstms in zip(inputs, (bilm.forward_lstms, bilm.backward_lstms)):
        now, side = pack_padded_sequence(x, lengths, batch_first=True), []
        for layer, module in enumerate(lstms):
            assert isinstance(module, TorchLSTM)
            h, _ = module.lstm(now)
            skips = bilm.config.lstm.skip and layer > 0
            now = PackedSequence(h.data + now.data, h.batch_sizes) if skips else h
            side.append(pad_packed_sequence(now, batch_first=True)[0])
        sides.append(side)
    return torch.stack([torch.cat([a, reverse(b, lengths)], dim=-1) for a, b in zip(*sides)])


class Apart(NamedTuple):
    difference: float  # the largest of a value
    cosine: float  # the lowest of a token's vectors

    @classmethod
    def of(cls, found: Tensor, expected: Tensor) -> Apart:  # [..., D]
        cosine = F.cosine_similarity(found.double(), expected.double(), dim=-1)
        return cls(float((found - expected).abs().max()), float(cosine.min()))
