"""The deep interleaved LSTM with highway connections of He et al. 2017, *Deep semantic role labeling*.

Layers alternate: the first reads from left to right, the second what the first made from right to left, and so
on. Each has its input beside it (sections 2.1 and 2.2 of the paper):

    r = sigmoid(W_r [x ; h_before])        h = z * (r * o * tanh(c) + (1 - r) * W x)

z is one dropout mask per sentence, for all its tokens (Gal and Ghahramani 2016); h with its mask is what the next
step and the next layer see.

Tokens are packed: all first ones, all second ones ... of sentences sorted by length, the longest first. The
input's products are one GEMM per layer without padding, and a step runs only the sentences that have a token
there.

Shapes: B sentences, T tokens, N tokens of all sentences, I inputs, H cells.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, pad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from elmokit.config import check_dropout, check_positive

GATES = 5  # in, forget, out, highway, then the candidate: what has a sigmoid is side by side
FORGET = 1


class HighwayLayer(nn.Module):
    """One direction. x [N, I] packed -> [N, H] packed."""

    def __init__(self, inputs: int, cells: int, p: float, *, backward: bool) -> None:
        super().__init__()
        self.cells, self.p, self.backward_in_time = cells, p, backward
        self.input_weight = nn.Parameter(torch.empty((GATES + 1) * cells, inputs))  # the last H rows: W of W x
        self.state_weight = nn.Parameter(torch.empty(GATES * cells, cells))
        self.bias = nn.Parameter(torch.zeros(GATES * cells))
        for block in (*torch.split(self.input_weight.data, cells), *torch.split(self.state_weight.data, cells)):
            nn.init.orthogonal_(block)
        self.bias.data[FORGET * cells : (FORGET + 1) * cells] = 1.0

    def forward(self, x: Tensor, sizes: list[int]) -> Tensor:
        """sizes: the T numbers of sentences that have a t-th token, falling."""
        cells = self.cells
        to_gates, carried = torch.split(linear(x, self.input_weight), [GATES * cells, cells], dim=1)
        gates_at, carried_at = torch.split(to_gates + self.bias, sizes), torch.split(carried, sizes)
        mask = None
        if self.training and self.p:
            mask = dropout(x.new_ones(sizes[0], cells), self.p)  # [B, H]
        weight = self.state_weight.t()
        steps = range(len(sizes))
        h = c = x.new_zeros(0, cells)
        outputs: list[Tensor] = []
        for t in reversed(steps) if self.backward_in_time else steps:
            h, c = resized(h, sizes[t]), resized(c, sizes[t])
            gates = torch.addmm(gates_at[t], h, weight)  # [n, 5H]
            squashed, candidate = torch.split(gates, [(GATES - 1) * cells, cells], dim=1)
            enter, keep, leave, transform = squashed.sigmoid().chunk(GATES - 1, dim=1)
            c = keep * c + enter * candidate.tanh()
            h = torch.lerp(carried_at[t], leave * c.tanh(), transform)  # r * new + (1 - r) * W x
            if mask is not None:
                h = h * mask[: sizes[t]]
            outputs.append(h)
        return torch.cat(outputs[::-1] if self.backward_in_time else outputs)


def resized(state: Tensor, count: int) -> Tensor:
    """[n, H] -> [count, H]: sentences that have ended are dropped, those that begin here begin with zeros."""
    return state[:count] if count <= len(state) else pad(state, (0, 0, 0, count - len(state)))


class HighwayLSTM(nn.Module):
    """x [B, T, I], mask [B, T] -> [B, T, H], zero where padded; what is padded changes nothing else."""

    def __init__(self, inputs: int, cells: int, layers: int, p: float = 0.0) -> None:
        super().__init__()
        check_positive(layers=layers)
        check_dropout(dropout=p)
        self.width = cells
        self.layers = nn.ModuleList(
            HighwayLayer(cells if number else inputs, cells, p, backward=number % 2 == 1)
            for number in range(layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.width)
        # A sentence without a token is run as one of padding, and its output is zeroed with the rest.
        lengths = mask.sum(dim=1).clamp(min=1)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        data, sizes = packed.data, packed.batch_sizes.tolist()
        for layer in self.layers:
            data = layer(data, sizes)
        output = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        return padded * mask.unsqueeze(-1)
