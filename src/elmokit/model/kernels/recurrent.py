"""The LSTMs by the native library: the whole time loop of a layer, both directions at the same time.

`stack` runs all layers, without gradients. `layer` runs one layer of both directions, with gradients: the backward
pass through time is in the library too; the weights' gradients are one large product each, after it.

Shapes: B rows, T steps, N tokens (the sum of the lengths), I input width, H cells, P width; H' as in layers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.errors import UserError
from elmokit.model.kernels import bfloat16, bfloat16_layer
from elmokit.model.kernels.buffers import BUFFERS
from elmokit.model.kernels.cache import on_the_side, optimistic
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.layers import PackedLayer, by_gate, packed
from elmokit.model.kernels.library import call
from elmokit.model.kernels.packing import WeightFormat
from elmokit.model.kernels.structs import Pass, array_of
from elmokit.model.lstm import LSTMState, ProjectedLSTM

DIRECTIONS = 2


class StackOutput(NamedTuple):
    layers: Tensor  # [1 + L, B, T, 2P], as BiLMOutput's
    hidden: Tensor  # [2, L, B, P]
    cell: Tensor  # [2, L, B, H]


def stack(
    lstms: Sequence[Sequence[ProjectedLSTM]],
    x: Tensor,
    lengths: Tensor,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    *,
    weights: WeightFormat = "float32",
    ends: bool = True,
    threads: int | None = None,
) -> StackOutput:
    """lstms [2][L], x [B, T, P], lengths [B]; hidden [2, L, B, P] and cell [2, L, B, H], where they are not zero.

    Without `ends`, no direction runs the last token that it would come to: forward leaves out a row's last,
    backward its first, and the states are those before them.
    """
    config = lstms[0][0].config
    places = (DIRECTIONS, len(lstms[0]), len(x))
    _expect(("x", x, (*x.shape[:2], config.width)), ("lengths", lengths, (len(x),)))
    if hidden is not None and cell is not None:
        _expect(("hidden", hidden, (*places, config.width)), ("cell", cell, (*places, config.cells)))
    order = longest_first(lengths)
    if order is not None:
        x, lengths = x[order], lengths[order]
        hidden, cell = (None if part is None else part[:, :, order] for part in (hidden, cell))
    count = threads or torch.get_num_threads()
    out = optimistic(lambda: _stack(lstms, x, lengths, hidden, cell, weights, ends, count))
    if order is None:
        return out
    restored = torch.argsort(order)
    return StackOutput(out.layers[:, restored], out.hidden[:, :, restored], out.cell[:, :, restored])


def _stack(
    lstms: Sequence[Sequence[ProjectedLSTM]],
    x: Tensor,
    lengths: Tensor,
    before_hidden: Tensor | None,
    before_cell: Tensor | None,
    weights: WeightFormat,
    ends: bool,
    threads: int,
) -> StackOutput:
    """The longest rows first."""
    config = lstms[0][0].config
    rows, steps, width = x.shape
    layers = [packed(lstm, weights) for direction in lstms for lstm in direction]
    count = len(lstms[0])
    # By NumPy: after an operation of torch's, its threads go on spinning for a while on the cores that ours need.
    out = _zeros(1 + count, rows, steps, 2 * width)
    real = np.arange(steps) < lengths.numpy()[:, None]
    out.numpy()[0, real, :width] = out.numpy()[0, real, width:] = x.detach().numpy()[real]
    hidden = _zeros(DIRECTIONS, count, rows, width)
    cell = _zeros(DIRECTIONS, count, rows, layers[0].cells)
    if before_hidden is not None and before_cell is not None:
        hidden.numpy()[:] = before_hidden.detach().numpy()
        cell.numpy()[..., : config.cells] = before_cell.detach().numpy()
    counted = lengths.to(torch.int32).contiguous()
    passes = [
        Pass(
            rows=rows,
            steps=steps,
            lengths=counted.data_ptr(),
            backwards=direction,
            skip=config.skip and layer > 0,
            spared=not ends,
            x=out[layer, :, :, direction * width :].data_ptr(),
            x_row=out.stride(1),
            x_token=out.stride(2),
            out=out[layer + 1, :, :, direction * width :].data_ptr(),
            out_row=out.stride(1),
            out_token=out.stride(2),
            hidden=hidden[direction, layer].data_ptr(),
            cell=cell[direction, layer].data_ptr(),
        )
        for direction in range(DIRECTIONS)
        for layer in range(count)
    ]
    with on_the_side() as hashing:
        _call("elmo_forward", layers, passes, count, threads, *hashing.arguments)
    return StackOutput(out, hidden, cell[..., : config.cells])


def _zeros(*shape: int) -> Tensor:
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))


class Repeated(NamedTuple):
    """x [B, T, I] of which each distinct vector is held once."""

    values: Tensor  # [M, I]
    places: Tensor  # [B, T]

    def whole(self) -> Tensor:
        return self.values[self.places]


def layer(
    lstms: Sequence[ProjectedLSTM],
    xs: Sequence[Tensor],
    lengths: Tensor,
    states: Sequence[LSTMState],
    begins: Tensor | None = None,
) -> list[tuple[Tensor, LSTMState]]:
    """One layer of both directions: each one's x [B, T, I] as it reads it -> h [B, T, P] and the state after.

    As ProjectedLSTM.forward, of which this is the fast path; begins [B, T] as there.
    """
    rows, steps, _ = xs[0].shape
    _expect(("lengths", lengths, (rows,)))
    for lstm, x, state in zip(lstms, xs, states):
        _expect(("x", x, (rows, steps, lstm.input_weight.shape[1])))
        _expect(
            ("hidden", state.hidden, (rows, lstm.config.width)), ("cell", state.cell, (rows, lstm.config.cells))
        )
    if begins is not None:
        _expect(("begins", begins, (rows, steps)))
    order = longest_first(lengths)
    if order is not None:
        xs, lengths = [x[order] for x in xs], lengths[order]
        states = [LSTMState(state.hidden[order], state.cell[order]) for state in states]
        begins = None if begins is None else begins[order]
    inputs = [(x, *state, *_weights(lstm)) for lstm, x, state in zip(lstms, xs, states)]
    if path_for(*inputs[0], *inputs[1], training=True) is Path.BFLOAT16_TRAINING:
        places = [None] * DIRECTIONS
        results = bfloat16_layer.Layer.apply(lstms, lengths, begins, places, *inputs[0], *inputs[1])  # type: ignore[no-untyped-call]
    else:
        results = _Layer.apply(lstms, lengths, begins, *inputs[0], *inputs[1])  # type: ignore[no-untyped-call]
    if order is not None:
        restored = torch.argsort(order)
        results = tuple(result[restored] for result in results)
    return [(results[i], LSTMState(results[i + 1], results[i + 2])) for i in (0, 3)]


def repeats(
    xs: Sequence[Tensor | Repeated], lstms: Sequence[ProjectedLSTM], lengths: Tensor
) -> TypeGuard[Sequence[Repeated]]:
    """Is this for `layer_of_repeated`? Where each x is given once, and products are of bfloat16."""
    weights = (weight for lstm in lstms for weight in _weights(lstm))
    return (
        all(isinstance(x, Repeated) for x in xs)
        and path_for(*(x[0] for x in xs), *weights, training=True) is Path.BFLOAT16_TRAINING
        and longest_first(lengths) is None
    )


def layer_of_repeated(
    lstms: Sequence[ProjectedLSTM],
    xs: Sequence[Repeated],
    lengths: Tensor,
    states: Sequence[LSTMState],
    begins: Tensor | None = None,
) -> list[tuple[Tensor, LSTMState]]:
    """As `layer` of the whole xs, the longest rows first: each distinct x is multiplied once."""
    rows, steps = xs[0].places.shape
    _expect(("lengths", lengths, (rows,)))
    inputs: list[Tensor] = []
    for lstm, x, state in zip(lstms, xs, states):
        config = lstm.config
        _expect(("x", x.values, (len(x.values), lstm.input_weight.shape[1])), ("places", x.places, (rows, steps)))
        _expect(("hidden", state.hidden, (rows, config.width)), ("cell", state.cell, (rows, config.cells)))
        shares = bfloat16.linear(x.values, lstm.input_weight, None)  # [M, 4H]
        _, *weights = _weights(lstm)
        inputs += [shares, *state, lstm.input_weight.detach()[:, :0], *weights]
    if begins is not None:
        _expect(("begins", begins, (rows, steps)))
    places = [x.places for x in xs]
    results = bfloat16_layer.Layer.apply(lstms, lengths, begins, places, *inputs)  # type: ignore[no-untyped-call]
    return [(results[i], LSTMState(results[i + 1], results[i + 2])) for i in (0, 3)]


def _expect(*given: tuple[str, Tensor, tuple[int, ...]]) -> None:
    """The library reads where it is told: a tensor of another shape must not come so far."""
    for name, tensor, shape in given:
        if tensor.shape != shape:
            raise UserError(f"{name}: expected {shape}, found {tuple(tensor.shape)}")


def longest_first(lengths: Tensor) -> Tensor | None:
    """An order of the rows in which the longest come first; None where they do already."""
    if len(lengths) < 2 or bool((lengths[1:] <= lengths[:-1]).all()):
        return None
    return torch.argsort(lengths, descending=True, stable=True)


def _weights(lstm: ProjectedLSTM) -> tuple[Tensor, ...]:
    return lstm.input_weight, lstm.hidden_weight, lstm.bias, lstm.projection_weight


GIVEN = 7  # tensors of a direction: x, hidden, cell and the weights


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, lstms: Sequence[ProjectedLSTM], lengths: Tensor, begins: Tensor | None, *given: Tensor
    ) -> tuple[Tensor, ...]:
        config = lstms[0].config
        layers = [packed(lstm, gradients=True) for lstm in lstms]
        cells = layers[0].cells
        counted = lengths.to(torch.int32).contiguous()
        begun = None if begins is None else begins.to(torch.uint8).contiguous()
        tokens = int(lengths.sum())
        runs, passes, results = [], [], []
        for direction in range(DIRECTIONS):
            x, hidden, cell = given[direction * GIVEN : direction * GIVEN + 3]
            x = x.contiguous()
            start = F.pad(cell, (0, cells - config.cells)).contiguous()
            out = (x.new_empty if int(lengths.min()) == x.shape[1] else x.new_zeros)(*x.shape[:2], config.width)
            after_hidden = hidden.clone(memory_format=torch.contiguous_format)
            after_cell = start.clone()
            columns = (4 * cells, cells, cells, config.width)
            gates, every_cell, activated, projected = (BUFFERS.acquire(tokens, count) for count in columns)
            passes.append(
                Pass(
                    rows=x.shape[0],
                    steps=x.shape[1],
                    lengths=counted.data_ptr(),
                    x=x.data_ptr(),
                    x_row=x.stride(0),
                    x_token=x.stride(1),
                    out=out.data_ptr(),
                    out_row=out.stride(0),
                    out_token=out.stride(1),
                    begins=None if begun is None else begun.data_ptr(),
                    hidden=after_hidden.data_ptr(),
                    cell=after_cell.data_ptr(),
                    gates=gates.data_ptr(),
                    cells=every_cell.data_ptr(),
                    activated=activated.data_ptr(),
                    projected=projected.data_ptr(),
                    start_cell=start.data_ptr(),
                )
            )
            runs.append((x, hidden, start, gates, every_cell, activated, projected))
            results += [out, after_hidden, after_cell[:, : config.cells]]
        _call("elmo_forward", layers, passes, 1, torch.get_num_threads(), None, 0, None)
        ctx.lstms, ctx.layers, ctx.passes, ctx.runs = lstms, layers, passes, runs
        ctx.counted, ctx.begun = counted, begun
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.runs is None:
            raise RuntimeError("an LSTM layer can run its backward pass once: its gates are overwritten")
        config, layers = ctx.lstms[0].config, ctx.layers
        cells = layers[0].cells
        works = []
        for direction, (passed, run) in enumerate(zip(ctx.passes, ctx.runs)):
            projected = run[-1]
            out, hidden, cell = gradients[3 * direction : 3 * direction + 3]
            out = out.contiguous()
            hidden = hidden.clone(memory_format=torch.contiguous_format)
            cell = F.pad(cell, (0, cells - config.cells)).clone(memory_format=torch.contiguous_format)
            projected_gradient = torch.empty_like(projected)
            # The same struct for the backward pass: its state is now a gradient.
            passed.hidden, passed.cell = hidden.data_ptr(), cell.data_ptr()
            passed.out_gradient, passed.gradient_row, passed.gradient_token = out.data_ptr(), *out.stride()[:2]
            passed.projected_gradient = projected_gradient.data_ptr()
            works.append((out, hidden, cell, projected_gradient))
        _call("elmo_backward", layers, ctx.passes, torch.get_num_threads())
        results: list[Tensor | None] = [None, None, None]
        for layer, run, work in zip(layers, ctx.runs, works):
            results += _layer_gradients(config.cells, layer, ctx.counted, ctx.begun, run, work)
        BUFFERS.release(tensor for run in ctx.runs for tensor in run[3:])
        ctx.runs = None
        return tuple(results)


def _layer_gradients(
    cells: int, layer: PackedLayer, counted: Tensor, begun: Tensor | None, run: tuple[Tensor, ...], work: Any
) -> list[Tensor]:
    """By x, hidden, cell, input_weight, hidden_weight, bias and projection_weight, from those of the gates."""
    x, hidden, _, gates, _, activated, projected = run
    _, hidden_gradient, cell_gradient, projected_gradient = work
    order = step_order(counted, x.shape[1])  # [N] places in [B, T]
    rows, steps, _ = x.shape
    # What each step's gates came from, in the order of the steps: the input, and h of the step before.
    before = x.new_zeros(rows, steps, projected.shape[1])
    before.view(rows * steps, -1)[order] = projected
    before = torch.cat([hidden.unsqueeze(1), before[:, :-1]], dim=1)
    if begun is not None:
        before = before * (begun == 0).unsqueeze(-1)
    inputs = torch.cat([x, before], dim=-1).view(rows * steps, -1)[order]  # [N, I + P]
    by_weight = by_gate(gates.T @ inputs, cells)  # [4H, I + P]
    by_x = (
        x.new_zeros(rows * steps, x.shape[2]) if len(order) < rows * steps else x.new_empty(len(order), x.shape[2])
    )
    by_x[order] = gates @ layer.input_weight
    return [
        by_x.view_as(x),
        hidden_gradient,
        cell_gradient[:, :cells],
        by_weight[:, : x.shape[2]].contiguous(),
        by_weight[:, x.shape[2] :].contiguous(),
        by_gate(gates.sum(dim=0).unsqueeze(1), cells).squeeze(1),
        (projected_gradient.T @ activated)[:, :cells],
    ]


def step_order(lengths: Tensor, steps: int) -> Tensor:
    """lengths [B], the longest first -> [N]: for each token, step by step, its place in [B, T] laid out flat."""
    real = torch.arange(steps).unsqueeze(1) < lengths.unsqueeze(0)  # [T, B]
    step, row = real.nonzero(as_tuple=True)
    return row * steps + step


def _call(function: str, layers: Sequence[PackedLayer], passes: Sequence[Pass], *others: object) -> None:
    call(function, array_of([layer.struct for layer in layers]), array_of(passes), DIRECTIONS, *others)
