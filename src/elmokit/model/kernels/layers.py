"""The weights of an LSTM layer as the native library reads them: panels of 32 columns, contiguous along the sum.

Packed when first needed, and again when the weights have changed. H' is H up to a multiple of eight: a panel holds
four gates of eight units. P' is P up to whole panels.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from elmokit.model.kernels.cache import remembered, weights_of
from elmokit.model.kernels.packing import (
    WEIGHT_FORMATS,
    PackedMatrix,
    WeightFormat,
    blocks,
    padded,
    panels,
    up_to,
)
from elmokit.model.kernels.structs import PANEL, Layer
from elmokit.model.lstm import ProjectedLSTM

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
        self.matrices = {
            "input": PackedMatrix(self.input_weight, weights),
            "hidden": PackedMatrix(hidden, weights),
            "projection": PackedMatrix(projection, weights, block),
        }
        for name, matrix in self.matrices.items():
            setattr(self.struct, name, matrix.struct)
        self.held: list[Tensor] = []
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
