"""One LSTM layer of both directions with its gradients, as recurrent.py's, from products of bfloat16.

Here the weights' gradients are the library's work too: what they are made of stays in bfloat16 from step to step.
Where each distinct x is multiplied once, outside, the layer is given its share of the gates, and where it stands.

Shapes: B rows, T steps, N tokens (the sum of the lengths), I input width, H cells, P width. I' and P' are those up
to whole panels, H' is H up to eight, H'' up to a panel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.model.kernels.buffers import BUFFERS
from elmokit.model.kernels.layers import UNITS, bound
from elmokit.model.kernels.library import call
from elmokit.model.kernels.packing import up_to
from elmokit.model.kernels.structs import PANEL, Layer16, Pass, Pass16, array_of
from elmokit.model.lstm import LSTMConfig, ProjectedLSTM

DIRECTIONS = 2
GIVEN = 7  # tensors of a direction: x, hidden, cell, input_weight, hidden_weight, bias and projection_weight


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        lstms: Sequence[ProjectedLSTM],
        lengths: Tensor,
        begins: Tensor | None,
        places: Sequence[Tensor | None],
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        """places of each direction [B, T]: then its x is shares of gates [M, 4H], and it has no input_weight."""
        counted = lengths.to(torch.int32).contiguous()
        begun = None if begins is None else begins.to(torch.uint8).contiguous()
        runs = [
            _Run(lstms[0].config, counted, begun, where, given[direction * GIVEN : (direction + 1) * GIVEN])
            for direction, where in enumerate(places)
        ]
        _call("elmo_forward16", runs)
        ctx.runs = runs
        return tuple(result for run in runs for result in run.results())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.runs is None:
            raise RuntimeError("an LSTM layer can run its backward pass once: its memory is used again")
        for direction, run in enumerate(ctx.runs):
            run.prepare_backward(*gradients[3 * direction : 3 * direction + 3])
        _call("elmo_backward16", ctx.runs)
        _call("elmo_weights16", ctx.runs)
        results = [gradient for run in ctx.runs for gradient in run.gradients()]
        for run in ctx.runs:
            BUFFERS.release(run.buffers)
        ctx.runs = None
        return (None, None, None, None, *results)


class _Run:
    """One direction, forward and backward pass: the tensors that its structs point to."""

    def __init__(
        self,
        config: LSTMConfig,
        counted: Tensor,
        begun: Tensor | None,
        places: Tensor | None,
        given: Sequence[Tensor],
    ) -> None:
        x, hidden, cell, *weights = (tensor.detach().contiguous() for tensor in given)
        places = None if places is None else places.contiguous()
        self.config, self.held = config, (counted, begun, places)
        self.x, self.weights = x, weights
        self.cells = up_to(config.cells, UNITS)  # H'
        self.inputs, self.width, self.wide = (  # I', P', H''
            up_to(count, PANEL) for count in (weights[0].shape[1], config.width, config.cells)
        )
        rows, steps = x.shape[:2] if places is None else places.shape
        self.tokens = int(counted.sum())
        self.whole = self.tokens == rows * steps
        self.buffers: list[Tensor] = []
        self.start = F.pad(cell, (0, self.cells - config.cells)).contiguous()
        self.out = (x.new_empty if self.whole else x.new_zeros)(rows, steps, config.width)
        self.hidden, self.cell = hidden.clone(), self.start.clone()
        gates, cells, projected = (
            self._buffer(self.tokens, count, dtype=torch.float32).data_ptr()
            for count in (4 * self.cells, self.cells, config.width)
        )
        joined = self.inputs + self.width
        inputs, activated = self._pieces(self.tokens * joined, self.tokens * self.cells)
        self.layer = self._layer(joined)
        self.run = Pass16(
            run=Pass(
                rows=rows,
                steps=steps,
                lengths=counted.data_ptr(),
                x=None if places is not None else x.data_ptr(),
                x_row=steps * weights[0].shape[1],
                x_token=weights[0].shape[1],
                out=self.out.data_ptr(),
                out_row=self.out.stride(0),
                out_token=self.out.stride(1),
                begins=None if begun is None else begun.data_ptr(),
                hidden=self.hidden.data_ptr(),
                cell=self.cell.data_ptr(),
                gates=gates,
                cells=cells,
                projected=projected,
                start_cell=self.start.data_ptr(),
            ),
            tokens=self.tokens,
            inputs=inputs,
            activated=activated,
        )
        if places is not None:
            self.run.places, self.run.distinct, self.run.shares = places.data_ptr(), len(x), x.data_ptr()

    def _layer(self, joined: int) -> Layer16:
        config = self.config
        input_weight, hidden_weight, bias, projection_weight = (weight.data_ptr() for weight in self.weights)
        start = self._buffer(4 * self.cells, dtype=torch.float32)
        gates, projection, projection_transposed, gates_transposed = self._pieces(
            4 * self.cells * joined, self.width * self.cells, self.wide * self.width, joined * 4 * self.cells
        )
        return Layer16(
            input_weight=input_weight,
            hidden_weight=hidden_weight,
            bias=bias,
            projection_weight=projection_weight,
            start=start.data_ptr(),
            gates=gates,
            projection=projection,
            projection_transposed=projection_transposed,
            gates_transposed=gates_transposed,
            inputs=self.weights[0].shape[1],
            cells=config.cells,
            width=config.width,
            forget_bias=config.forget_bias,
            cell_clip=bound(config.cell_clip),
            projection_clip=bound(config.projection_clip),
        )

    def _buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        self.buffers.append(BUFFERS.acquire(*shape, dtype=dtype))
        return self.buffers[-1]

    def _pieces(self, *counts: int) -> list[int]:
        """Where in one tensor of bfloat16 so many of them begin, each piece on a cache line's border."""
        counts = tuple(up_to(count, PANEL) for count in counts)
        first = self._buffer(sum(counts), dtype=torch.bfloat16).data_ptr()
        return [first + 2 * sum(counts[:i]) for i in range(len(counts))]

    def results(self) -> tuple[Tensor, ...]:
        return self.out, self.hidden, self.cell[:, : self.config.cells]

    def prepare_backward(self, out: Tensor, hidden: Tensor, cell: Tensor) -> None:
        """The same structs for the backward pass: the state is now a gradient."""
        config, run, pairs = self.config, self.run, up_to(self.tokens, 2)
        self.out = out.contiguous()
        self.hidden = hidden.clone(memory_format=torch.contiguous_format)
        padded = F.pad(cell, (0, self.cells - config.cells))
        self.cell = padded.clone(memory_format=torch.contiguous_format)
        run.run.hidden, run.run.cell = self.hidden.data_ptr(), self.cell.data_ptr()
        run.run.out_gradient = self.out.data_ptr()
        run.run.gradient_row, run.run.gradient_token = self.out.stride()[:2]
        run.gates_gradient, run.projected_gradient, run.inputs_packed, run.activated_packed = self._pieces(
            self.tokens * 4 * self.cells,
            self.tokens * self.width,
            pairs * (self.inputs + self.width),
            pairs * self.wide,
        )
        by_places = run.places is not None
        self.by_x = torch.empty_like(self.x) if self.whole or by_places else torch.zeros_like(self.x)
        self.by_weights = [torch.empty_like(weight) for weight in self.weights]
        run.x_gradient, run.shares_gradient = (
            (None, self.by_x.data_ptr()) if by_places else (self.by_x.data_ptr(), None)
        )
        (
            run.input_weight_gradient,
            run.hidden_weight_gradient,
            run.bias_gradient,
            run.projection_weight_gradient,
        ) = (gradient.data_ptr() for gradient in self.by_weights)

    def gradients(self) -> tuple[Tensor, ...]:
        """By x, hidden, cell and the weights, in the order in which they were given."""
        return self.by_x, self.hidden, self.cell[:, : self.config.cells], *self.by_weights


def _call(function: str, runs: Sequence[_Run]) -> None:
    layers, passes = array_of([run.layer for run in runs]), array_of([run.run for run in runs])
    call(function, layers, passes, DIRECTIONS, torch.get_num_threads())
