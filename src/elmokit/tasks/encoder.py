"""The bidirectional LSTM that most tasks have, over padded sentences.

Shapes: B sentences, T tokens, I inputs, H cells of a direction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """x [B, T, I], mask [B, T] -> [B, T, 2H], zero where padded; what is padded changes nothing else."""

    def __init__(self, inputs: int, cells: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            inputs, cells, layers, batch_first=True, bidirectional=True, dropout=dropout if layers > 1 else 0.0
        )
        self.width = 2 * cells
        for name, parameter in self.lstm.named_parameters():
            if "weight_hh" in name:
                for gate in parameter.data.chunk(4):
                    nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
                if "bias_ih" in name:
                    parameter.data[cells : 2 * cells] = 1.0  # the forget gate

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        # A sentence without a token is run as one of padding, and its output is zeroed with the rest.
        lengths = mask.sum(dim=1).clamp(min=1)
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.width)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        return padded * mask.unsqueeze(-1)


class SharedDropout(nn.Module):
    """One mask for all tokens of a sentence (Gal and Ghahramani 2016): x [B, T, I] -> the same."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        return x * torch.nn.functional.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.share)
