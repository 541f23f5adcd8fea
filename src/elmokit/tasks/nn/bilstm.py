"""The bidirectional LSTM that most tasks have, over padded sentences.

Shapes: B sentences, T tokens, I inputs, H cells of a direction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiLSTM(nn.Module):
    """x [B, T, I], mask [B, T] -> [B, T, 2H], zero where padded; what is padded changes nothing else.

    The second direction reads each sentence in reverse, its padding still last: torch's packed sequences, whose
    backward pass is slow on a CPU, take twice as long and more.
    """

    def __init__(self, inputs: int, cells: int, layers: int = 1, p: float = 0.0) -> None:
        super().__init__()
        self.width = 2 * cells
        widths = [inputs] + [self.width] * (layers - 1)
        self.forwards, self.backwards = (
            nn.ModuleList(nn.LSTM(width, cells, batch_first=True) for width in widths) for _ in range(2)
        )
        self.dropout = nn.Dropout(p)  # between layers
        for name, parameter in self.named_parameters():
            if "weight_hh" in name:
                for gate in torch.split(parameter.data, cells):
                    nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
                if "bias_ih" in name:
                    parameter.data[cells : 2 * cells] = 1.0  # the forget gate

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not x.shape[1]:
            return x.new_zeros(len(x), 0, self.width)
        positions = reversed_positions(mask).unsqueeze(-1)  # [B, T, 1]
        for layer, (forwards, backwards) in enumerate(zip(self.forwards, self.backwards)):
            x = self.dropout(x) if layer else x
            left, _ = forwards(x)
            right, _ = backwards(x.gather(1, positions.expand_as(x)))
            x = torch.cat([left, right.gather(1, positions.expand_as(right))], dim=-1) * mask.unsqueeze(-1)
        return x


def reversed_positions(mask: Tensor) -> Tensor:
    """mask [B, T], tokens first -> [B, T]: the positions of a row with its tokens in reverse order."""
    positions = torch.arange(mask.shape[1])
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - positions, positions)
