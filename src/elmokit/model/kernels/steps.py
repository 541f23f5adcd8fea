"""The LSTMs without gradients by torch's operations: on any device, in any precision.

As the definition, ProjectedLSTM, but only rows that still have tokens are computed, in memory that is used again.
The directions run one after the other: two Python threads were no faster (two cores, but busy with other work).

Shapes: B rows, T steps, I input width, H cells, P width. M tokens as they are laid out here: step by step, the
longest rows first, each step's rows up to whole groups (see rows.py); one row of zeros follows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.model.kernels.recurrent import DIRECTIONS, StackOutput
from elmokit.model.lstm import LSTMState, ProjectedLSTM
from elmokit.model.rows import TOGETHER, whole_rows

# The inputs' share of the gates is one product for so many tokens: enough for its speed, little for the memory.
TOKENS = 512

Layers = list[tuple[Tensor, LSTMState]]  # of one direction: each layer's tokens, and its state after


@torch.no_grad()
def stack(
    lstms: Sequence[Sequence[ProjectedLSTM]],
    x: Tensor,
    lengths: Tensor,
    hidden: Tensor,
    cell: Tensor,
    *,
    tokens: int = TOKENS,
) -> StackOutput:
    """As recurrent.stack; weights are used as they are. tokens: whose inputs' share is one product, at most."""
    width = x.shape[2]
    plan = _Plan.of(lengths, x.shape[1])
    ordered = plan.order.to(x.device)
    hidden_in, cell_in = (whole_rows(part[:, :, ordered], dim=2) for part in (hidden, cell))
    runs = []
    for direction in range(DIRECTIONS):
        read = x.reshape(-1, width)[plan.sources[direction].to(x.device)]  # [M, P]
        runs.append(_direction(lstms[direction], read, plan, hidden_in[direction], cell_in[direction], tokens))
    out = x.new_empty(1 + len(lstms[0]), *x.shape[:2], 2 * width)
    out[0, :, :, :width] = x
    out[0, :, :, width:] = x
    for direction, results in enumerate(runs):
        places = plan.places[direction].to(x.device)
        for layer, (h, _) in enumerate(results):
            out[1 + layer, :, :, direction * width : (direction + 1) * width] = h[places]
    restored = torch.argsort(plan.order).to(x.device)
    after = [
        torch.stack([torch.stack([state[part] for _, state in results]) for results in runs])[:, :, restored]
        for part in (0, 1)
    ]
    return StackOutput(out, *after)


class _Plan(NamedTuple):
    """What is where, on the CPU: the same for all layers."""

    order: Tensor  # [B], rows, the longest first
    real: list[int]  # rows that have a token, step by step, up to the longest row's last
    held: list[int]  # those, up to whole groups; their sum is M
    sources: list[Tensor]  # [2][M], where each token is in [B, T] laid out flat, as each direction reads
    places: list[Tensor]  # [2][B, T], where each token of a row is in [M]; M, the zeros, where padded
    last: Tensor  # [B], where each row's last step is in [M], in the order of `order`; M where there is none

    @staticmethod
    def of(lengths: Tensor, steps: int) -> _Plan:
        # The meta device knows no lengths: there, every row is a full one.
        counts = torch.full((len(lengths),), steps) if lengths.is_meta else lengths.cpu().long()
        order = torch.argsort(counts, descending=True, stable=True)
        ordered = counts[order]
        real = torch.bincount(counts, minlength=steps + 1).flip(0).cumsum(0).flip(0)[1:]  # [T]
        real = real[real > 0]
        held = (real + TOGETHER - 1) // TOGETHER * TOGETHER
        begin = held.cumsum(0) - held  # where each step begins in [M]
        total = int(held.sum())
        # Rows that only fill a group read anything: their results are not used.
        step = torch.repeat_interleave(held)  # [M]
        row = (torch.arange(total) - begin[step]).clamp(max=max(len(order) - 1, 0))
        against = (ordered[row] - 1 - step).clamp(min=0)
        sources = [order[row] * steps + at for at in (step, against)]
        begin = torch.cat([begin, torch.tensor([total])])
        rank = torch.argsort(order).unsqueeze(1)  # [B, 1]
        at = torch.arange(steps).unsqueeze(0)  # [1, T]
        inside, reversed_at = at < counts.unsqueeze(1), counts.unsqueeze(1) - 1 - at
        places = [torch.where(inside, begin[n.clamp(0, len(real))] + rank, total) for n in (at, reversed_at)]
        last = torch.where(ordered > 0, begin[(ordered - 1).clamp(min=0)] + torch.arange(len(order)), total)
        return _Plan(order, real.tolist(), held.tolist(), sources, places, last)


def _direction(
    lstms: Sequence[ProjectedLSTM], x: Tensor, plan: _Plan, hidden: Tensor, cell: Tensor, tokens: int
) -> Layers:
    """x [M, P] -> each layer [M + 1, P] and its state after, of B rows; hidden [L, B', P], cell [L, B', H]."""
    results: Layers = []
    last = plan.last.to(x.device)
    for layer, lstm in enumerate(lstms):
        h, after_cell = _layer(lstm, x, plan, hidden[layer], cell[layer], tokens)
        rows = len(last)
        after_hidden = torch.where((last < len(x)).unsqueeze(1), h[last], hidden[layer, :rows])
        results.append((h, LSTMState(after_hidden, after_cell[:rows])))
        if lstm.config.skip and layer > 0:
            h[: len(x)] += x  # to what the next layer reads, not to what the LSTM remembers
        x = h[: len(x)]
    return results


def _layer(
    lstm: ProjectedLSTM, x: Tensor, plan: _Plan, hidden: Tensor, cell: Tensor, tokens: int
) -> tuple[Tensor, Tensor]:
    """x [M, I], hidden [B', P], cell [B', H] -> h [M + 1, P] and the cell after each row's last token [B', H]."""
    config = lstm.config
    n = config.cells
    bias = lstm.bias.detach().clone()
    bias[n : 2 * n] += config.forget_bias
    by_input, by_hidden, projection = lstm.input_weight.t(), lstm.hidden_weight.t(), lstm.projection_weight.t()
    out = x.new_zeros(len(x) + 1, config.width)
    after, cell = cell.clone(), cell.clone()
    room = x.new_empty(max((size for *_, size in _chunks(plan.held, tokens)), default=0), 4 * n)
    activated = torch.empty_like(cell)
    done = 0  # tokens
    for first, stop, size in _chunks(plan.held, tokens):
        chunk = torch.addmm(bias, x[done : done + size], by_input, out=room[:size])
        for step in range(first, stop):
            rows, real = plan.held[step], plan.real[step]
            gates, chunk = chunk[:rows], chunk[rows:]  # [rows, 4H]
            gates.addmm_(hidden[:rows], by_hidden)
            gates[:, : 2 * n].sigmoid_()
            gates[:, 2 * n : 3 * n].tanh_()
            gates[:, 3 * n :].sigmoid_()
            i, f, g, o = gates.chunk(4, dim=1)
            c = cell[:rows].mul_(f).addcmul_(i, g)
            if config.cell_clip is not None:
                c.clamp_(-config.cell_clip, config.cell_clip)
            torch.tanh(c, out=activated[:rows]).mul_(o)
            hidden = torch.mm(activated[:rows], projection, out=out[done : done + rows])
            if config.projection_clip is not None:
                hidden.clamp_(-config.projection_clip, config.projection_clip)
            left = plan.real[step + 1] if step + 1 < len(plan.real) else 0
            if left < real:  # the others have read their last token
                after[left:real] = cell[left:real]
            done += rows
    return out, after


def _chunks(held: Sequence[int], tokens: int) -> Iterator[tuple[int, int, int]]:
    """(first step, the step after the last, tokens) of runs of steps: so many tokens at most, or a single step."""
    first, size = 0, 0
    for step, rows in enumerate(held):
        if size and size + rows > tokens:
            yield first, step, size
            first, size = step, 0
        size += rows
    if size:
        yield first, len(held), size
