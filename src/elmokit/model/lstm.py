"""One layer of one direction: an LSTM whose output is projected, and whose cell and output are clipped.

The readable definition that every faster path is tested against. State comes in and is handed back.

    i, f, g, o = W_x x_t + W_h h_{t-1} + b                       gates, in this order in the weights
    c_t = clip(sigmoid(f + forget_bias) c_{t-1} + sigmoid(i) tanh(g))
    h_t = clip(W_p (sigmoid(o) tanh(c_t)))

Shapes: B batch, T tokens, I input width, H cells, P width of the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import check_size
from elmokit.errors import UserError

# The inputs' share of the gates is one product for so many steps: a text of a million tokens fits as well.
STEPS = 256
# More than any model has: a file that asks for more is damaged or hostile.
MOST_LAYERS, WIDEST = 1000, 1 << 20


@dataclass(frozen=True)
class LSTMConfig:
    layers: int = 2
    cells: int = 4096  # H
    width: int = 512  # P
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    skip: bool = True  # from the second layer on, a layer's output adds its input
    forget_bias: float = 1.0  # added at run time, as TensorFlow does: files keep the bias without it

    def __post_init__(self) -> None:
        check_size(1, MOST_LAYERS, layers=self.layers)
        check_size(1, WIDEST, cells=self.cells, width=self.width)
        for name in ("cell_clip", "projection_clip"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"{name}: expected a positive bound or none, found {value}")


class LSTMState(NamedTuple):
    hidden: Tensor  # [B, P]
    cell: Tensor  # [B, H]


class ProjectedLSTM(nn.Module):
    def __init__(self, input_width: int, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.input_weight = nn.Parameter(torch.empty(4 * config.cells, input_width))
        self.hidden_weight = nn.Parameter(torch.empty(4 * config.cells, config.width))
        self.bias = nn.Parameter(torch.zeros(4 * config.cells))
        self.projection_weight = nn.Parameter(torch.empty(config.width, config.cells))
        for weight in (self.input_weight, self.hidden_weight, self.projection_weight):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def forward(
        self, x: Tensor, mask: Tensor, state: LSTMState, begins: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        """x [B, T, I], mask [B, T] -> h [B, T, P], zero where padded, and the state after each last token.

        begins [B, T], where given: before a step that begins something new, the state is forgotten.
        """
        hidden, cell = state
        carried = None if begins is None else (~begins).unsqueeze(-1).to(x.dtype).unbind(1)
        bias = self._run_time_bias()
        outputs: list[Tensor] = []
        for steps, reals in zip(torch.split(x, STEPS, dim=1), torch.split(mask.unsqueeze(-1), STEPS, dim=1)):
            from_input = F.linear(steps, self.input_weight, bias)  # [B, STEPS, 4H]
            for gates, real in zip(from_input.unbind(1), reals.unbind(1)):
                if carried is not None:
                    hidden, cell = hidden * carried[len(outputs)], cell * carried[len(outputs)]
                new_hidden, new_cell = self._step(gates, hidden, cell)
                hidden = torch.where(real, new_hidden, hidden)  # padding changes no state
                cell = torch.where(real, new_cell, cell)
                outputs.append(new_hidden * real)
        return torch.stack(outputs, dim=1), LSTMState(hidden, cell)

    def _step(self, from_input: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        gates = from_input + F.linear(hidden, self.hidden_weight)  # [B, 4H]
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        cell = _clip(cell, self.config.cell_clip)
        hidden = F.linear(torch.sigmoid(o) * torch.tanh(cell), self.projection_weight)
        return _clip(hidden, self.config.projection_clip), cell

    def _run_time_bias(self) -> Tensor:
        i, f, g, o = self.bias.chunk(4)
        return torch.cat([i, f + self.config.forget_bias, g, o])


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)
