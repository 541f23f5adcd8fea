"""A bidirectional GRU (Cho et al. 2014; torch's variant) over padded sentences, written for training on a CPU.

    r, z = sigmoid(W x + U h_before + b)    n = tanh(W x + b + r * (U h_before + c))    h = (1 - z) n + z h_before

torch has no fused GRU for a CPU: a dozen small operations per step and direction, each with a node of autograd,
and weights' gradients added up step by step. Here a step of both directions is five operations, and three in the
backward pass: all that does not wait for the step before - products of the input, derivatives of the gates,
gradients of the weights - is done for all steps at once.

Shapes: B sentences, T tokens, I inputs, H cells of a direction. Gates are side by side: r, z, n.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.tasks.nn.bilstm import reversed_positions

GATES = 3
DIRECTIONS = 2


class BiGRU(nn.Module):
    """x [B, T, I], mask [B, T] -> [B, T, 2H], zero where padded; what is padded changes nothing else.

    The second direction reads each sentence in reverse, its padding still last.
    """

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        self.width = DIRECTIONS * cells
        self.input_weight = nn.Parameter(torch.empty(DIRECTIONS, GATES * cells, inputs))
        self.state_weight = nn.Parameter(torch.empty(DIRECTIONS, GATES * cells, cells))
        self.bias = nn.Parameter(torch.zeros(DIRECTIONS, GATES * cells))
        self.state_bias = nn.Parameter(torch.zeros(DIRECTIONS, cells))  # c: of n alone, inside its product with r
        for to_input, to_state in zip(self.input_weight.data, self.state_weight.data):
            nn.init.xavier_uniform_(to_input)
            for gate in torch.split(to_state, cells):
                nn.init.orthogonal_(gate)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = (self.input_weight, self.state_weight, self.bias, self.state_bias)
        output: Tensor = _Recurrence.apply(x, mask, *weights)  # type: ignore[no-untyped-call]
        return output


def orders(mask: Tensor) -> tuple[Tensor, Tensor]:
    """mask [B, T] -> two [2BT], each the inverse of the other: where in [B, T, 2] each of the steps [T, 2, B] is,
    those of the second direction in reverse, and where in the steps each of [B, T, 2] is."""
    size, count = mask.shape
    row, direction = torch.arange(size).view(-1, 1, 1), torch.arange(DIRECTIONS)
    in_order = torch.arange(count).expand(size, count)
    positions = torch.stack([in_order, reversed_positions(mask)], dim=-1)  # [B, T, 2]
    to_steps = (row * count + positions) * DIRECTIONS + direction
    to_tokens = (positions * DIRECTIONS + direction) * size + row
    return to_steps.permute(1, 2, 0).flatten(), to_tokens.flatten()


class _Recurrence(torch.autograd.Function):
    """x, mask and weights -> h [B, T, 2H]. Padding, which is last in both directions, is read like tokens; then
    it is zeroed, in the backward pass before anything else.

    Views of all steps are made at once: one by one they would cost as much as the arithmetic.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mask: Tensor,
        input_weight: Tensor,
        state_weight: Tensor,
        bias: Tensor,
        state_bias: Tensor,
    ) -> Tensor:
        size, count, _ = x.shape
        cells = state_bias.shape[1]
        to_steps, to_tokens = orders(mask)
        kept = mask.to(x.dtype).unsqueeze(-1)  # [B, T, 1]
        products = torch.addmm(bias.flatten(), x.flatten(0, 1), input_weight.flatten(0, 1).t())  # [BT, 2 * 3H]
        gates = products.view(-1, GATES * cells).index_select(0, to_steps)
        gates = gates.view(count, DIRECTIONS, size, GATES * cells)
        n = gates[..., 2 * cells :].clone()  # the input's part; that of the state is on its own, to meet r
        gates[..., 2 * cells :] = state_bias.unsqueeze(1)
        h = x.new_empty(count + 1, DIRECTIONS, size, cells)  # the first is what is before a sentence
        h[0] = 0.0
        weight = state_weight.transpose(1, 2).contiguous()  # [2, H, 3H]
        r, z, hidden = (part.unbind() for part in gates.chunk(GATES, dim=-1))
        squashed = gates[..., : 2 * cells].unbind()
        gates_at, n_at, h_at = gates.unbind(), n.unbind(), h.unbind()
        for t in range(count):
            gates_at[t].baddbmm_(h_at[t], weight)
            squashed[t].sigmoid_()
            n_at[t].addcmul_(r[t], hidden[t]).tanh_()
            torch.lerp(n_at[t], h_at[t], z[t], out=h_at[t + 1])
        ctx.save_for_backward(x, kept, input_weight, state_weight, gates, n, h, to_steps, to_tokens)
        return h[1:].view(-1, cells).index_select(0, to_tokens).view(size, count, DIRECTIONS * cells).mul_(kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, kept, input_weight, state_weight, gates, n, h, to_steps, to_tokens = ctx.saved_tensors
        cells = n.shape[-1]
        dh = gradient.reshape(-1, cells).index_select(0, to_steps).view_as(n)  # the loop adds what comes later
        dh.mul_(kept.transpose(0, 1).unsqueeze(1))
        d, through_n = derivatives(gates, n, h[:-1])
        apart = d.view(*n.shape[:-1], GATES, cells)  # [T, 2, B, 3, H]
        apart_at, beside, d_at, dh_at = (part.unbind() for part in (apart, dh.unsqueeze(-2), d, dh))
        z = gates[..., cells : 2 * cells].unbind()
        for t in reversed(range(len(n))):
            apart_at[t].mul_(beside[t])
            if t:
                dh_at[t - 1].addcmul_(dh_at[t], z[t]).baddbmm_(d_at[t], state_weight)
        # All steps as one product a direction: [2, 3H, TB] @ [2, TB, H].
        d_state_weight = d.transpose(0, 1).flatten(1, 2).transpose(1, 2) @ h[:-1].transpose(0, 1).flatten(1, 2)
        d_state_bias = d[..., 2 * cells :].sum(dim=2).sum(dim=0)
        torch.mul(dh, through_n, out=d[..., 2 * cells :])  # of n, by the input's part
        products = d.view(-1, GATES * cells).index_select(0, to_tokens).view(-1, DIRECTIONS * GATES * cells)
        d_x = (products @ input_weight.flatten(0, 1)).view_as(x) if ctx.needs_input_grad[0] else None
        d_input_weight = (products.t() @ x.flatten(0, 1)).view_as(input_weight)
        d_bias = products.sum(dim=0).view(DIRECTIONS, GATES * cells)
        return d_x, None, d_input_weight, d_state_weight, d_bias, d_state_bias


def derivatives(gates: Tensor, n: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """h by the arguments of its gates, [T, 2, B, 3H], that of n by the state's part of it, U h + c; and
    [T, 2, B, H], by the input's part. In place where it can be: fresh memory costs more than the arithmetic."""
    r, z, hidden = gates.chunk(GATES, dim=-1)
    d = torch.empty_like(gates)
    to_r, to_z, to_hidden = d.chunk(GATES, dim=-1)
    through_n = (n * n).neg_().add_(1.0)
    torch.sub(before, n, out=to_z).mul_(z)
    kept = 1 - z
    to_z.mul_(kept)
    through_n.mul_(kept)
    torch.mul(through_n, r, out=to_hidden)
    torch.mul(to_hidden, hidden, out=to_r).mul_(torch.sub(1, r, out=kept))
    return d, through_n
