"""Linear maps and highway layers without gradients: a row's bits do not depend on the rows beside it.

Shapes: N rows, I inputs, O outputs; I' and O' are those up to whole panels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.model.kernels import bfloat16
from elmokit.model.kernels.cache import remembered, weights_of
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.library import call
from elmokit.model.kernels.packing import WEIGHT_FORMATS, PackedMatrix, WeightFormat, padded, up_to
from elmokit.model.kernels.structs import PANEL, Linear
from elmokit.model.rows import whole_rows


class PackedLinear:
    """Holds the tensors that `struct` points to."""

    def __init__(self, linear: nn.Linear, weights: WeightFormat) -> None:
        outputs, inputs = (up_to(size, PANEL) for size in linear.weight.shape)
        self.weight = PackedMatrix(padded(linear.weight.detach(), outputs, inputs), weights)
        bias = linear.bias.detach() if linear.bias is not None else linear.weight.new_zeros(linear.out_features)
        self.bias = F.pad(bias, (0, outputs - len(bias)))
        self.struct = Linear(
            weight=self.weight.struct,
            bias=self.bias.data_ptr(),
            inputs=inputs,
            outputs=outputs,
            format=WEIGHT_FORMATS[weights],
        )


def linear(module: nn.Module, x: Tensor, weights: WeightFormat = "float32") -> Tensor:  # [N, I] -> [N, O]
    """module(x), by the library where it is a linear map that the library can do, from weights of this format."""
    if not (isinstance(module, nn.Linear) and path_for(x, *weights_of(module)) is Path.NATIVE_INFERENCE):
        return applied(module, x) if torch.is_grad_enabled() else applied(module, whole_rows(x))[: len(x)]
    layer = packed(module, weights)
    x = _wide(x)
    out = x.new_empty(len(x), layer.struct.outputs)
    call("elmo_linear", layer.struct, x.data_ptr(), out.data_ptr(), len(x), torch.get_num_threads())
    return out[:, : module.out_features]


def applied(module: nn.Module, x: Tensor) -> Tensor:  # [N, I] -> [N, O]
    """module(x), with gradients; from bfloat16 where that is asked for."""
    if isinstance(module, nn.Linear) and path_for(x, *weights_of(module), training=True) is Path.BFLOAT16_TRAINING:
        return bfloat16.linear(x, module.weight, module.bias)
    y: Tensor = module(x)
    return y


def highway(
    transform: nn.Linear, carry: nn.Linear, x: Tensor, weights: WeightFormat = "float32"
) -> Tensor:  # [N, I] -> [N, I]
    """x + c (relu(transform(x)) - x), c = sigmoid(carry(x))."""
    layers = packed(transform, weights), packed(carry, weights)
    wide = _wide(x)
    out = torch.empty_like(wide)
    pointers = wide.data_ptr(), out.data_ptr()
    call("elmo_highway", layers[0].struct, layers[1].struct, *pointers, len(x), torch.get_num_threads())
    return out[:, : x.shape[1]]


def tanh_(x: Tensor) -> Tensor:
    """In place; torch's own differs, in a bit, for the last few of a tensor."""
    call("elmo_tanh", x.data_ptr(), x.data_ptr(), x.numel())
    return x


def packed(module: nn.Linear, weights: WeightFormat) -> PackedLinear:
    """The map, packed; from an earlier call where its weights are still the same."""
    return remembered(module, ("linear", weights), weights_of(module), lambda: PackedLinear(module, weights))


def _wide(x: Tensor) -> Tensor:
    return F.pad(x, (0, -x.shape[1] % PANEL)).contiguous()
