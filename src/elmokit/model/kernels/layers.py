"""The weights of an LSTM layer as the native library reads them: panels of 32 columns, contiguous along the sum.

Packed when first needed, and again when the weights have changed. H' is H up to a multiple of eight: a panel holds
four gates of eight units. P' is P up to whole panels.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.kernels.cache import remembered, weights_of
from elmokit.model.kernels.packing import padded, panels, up_to
from elmokit.model.kernels.structs import PANEL, Layer, Packed
from elmokit.model.lstm import ProjectedLSTM

WeightFormat = Literal["float32", "float16", "int8"]  # of weights in memory; arithmetic is that of float32
WEIGHT_FORMATS: dict[WeightFormat, int] = {"float32": 0, "float16": 1, "int8": 2}  # as in native/kernels.h
GATES, UNITS = 4, PANEL // 4
DEEPEST = 128  # of a block of the long sums


class PackedLayer:
    """Holds the tensors that `struct` points to."""

    def __init__(self, lstm: ProjectedLSTM, weights: WeightFormat, gradients: bool) -> None:
        config = lstm.config
        self.cells = up_to(config.cells, UNITS)  # H'
        width = up_to(config.width, PANEL)  # P'
        bias = lstm.bias.detach().clone()
        bias[config.cells : 2 * config.cells] += config.forget_bias
        self.bias = interleaved(bias.unsqueeze(1)).squeeze(1)  # [4H']
        self.input_weight = interleaved(lstm.input_weight.detach())  # [4H', I]
        hidden = interleaved(lstm.hidden_weight.detach())  # [4H', P]
        projection = padded(lstm.projection_weight.detach(), width, self.cells)  # [P', H']
        block, transposed_block = block_size(self.cells), block_size(GATES * self.cells)
        self.struct = Layer(
            inputs=self.input_weight.shape[1],
            cells=self.cells,
            width=config.width,
            block=block,
            transposed_block=transposed_block,
            cell_clip=bound(config.cell_clip),
            projection_clip=bound(config.projection_clip),
            format=WEIGHT_FORMATS[weights],
            bias=self.bias.data_ptr(),
        )
        self.held: list[Tensor] = []
        for name, weight in (("input", self.input_weight), ("hidden", hidden), ("projection", projection)):
            values, scale = in_format(weight, weights)
            values = blocks(values, block) if name == "projection" else panels(values)
            self.held += [values] if scale is None else [values, scale]
            packed = Packed(values=values.data_ptr(), scale=None if scale is None else scale.data_ptr())
            setattr(self.struct, name, packed)
        if gradients:
            by_unit = padded(projection.T, up_to(self.cells, PANEL), width)[:, : config.width]
            self._hold("projection_transposed", panels(by_unit))  # [H' / 32, P, 32]
            by_width = padded(hidden.T, width, GATES * self.cells)
            self._hold("hidden_transposed", blocks(by_width, transposed_block))

    def _hold(self, name: str, tensor: Tensor) -> None:
        self.held.append(tensor)
        setattr(self.struct, name, tensor.data_ptr())


def interleaved(weight: Tensor) -> Tensor:
    """[4H, K], gate by gate -> [4H', K]: eight units of each gate in turn; what is added is zero."""
    columns = weight.shape[1]
    by_gate = weight.reshape(GATES, -1, columns)
    by_gate = F.pad(by_gate, (0, 0, 0, -by_gate.shape[1] % UNITS))
    return by_gate.view(GATES, -1, UNITS, columns).transpose(0, 1).reshape(-1, columns)


def by_gate(weight: Tensor, cells: int) -> Tensor:
    """What `interleaved` did, undone: [4H', K] -> [4H, K]."""
    columns = weight.shape[1]
    gates = weight.view(-1, GATES, UNITS, columns).transpose(0, 1).reshape(GATES, -1, columns)
    return gates[:, :cells].reshape(-1, columns)


def blocks(weight: Tensor, block: int) -> Tensor:  # [N, K] -> [K / block, N / 32, block, 32]
    rows, columns = weight.shape
    return weight.reshape(rows // PANEL, PANEL, columns // block, block).permute(2, 0, 3, 1).contiguous()


def in_format(weight: Tensor, weights: WeightFormat) -> tuple[Tensor, Tensor | None]:
    """[N, K] -> the same, smaller, and what its rows are to be multiplied by."""
    if weights == "float16":
        return weight.clamp(-65504, 65504).half(), None
    if weights == "int8":
        scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        return (weight / scale.unsqueeze(1)).round().to(torch.int8), scale
    return weight, None


def block_size(depth: int) -> int:
    return max(size for size in range(UNITS, DEEPEST + 1, UNITS) if depth % size == 0)


def bound(clip: float | None) -> float:
    return math.inf if clip is None else clip


def packed(lstm: ProjectedLSTM, weights: WeightFormat = "float32", gradients: bool = False) -> PackedLayer:
    """The layer, packed; from an earlier call where the weights are still the same."""
    return remembered(
        lstm,
        (weights, gradients),
        weights_of(lstm),
        lambda: PackedLayer(lstm, weights, gradients),
        changing=gradients,
    )
