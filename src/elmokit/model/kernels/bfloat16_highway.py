"""A highway layer with its gradients, from products of bfloat16; char_encoder.py has the definition.

What is done element by element is one pass in each direction, in float32.

Shapes: N rows, F features.
"""

from __future__ import annotations

from ctypes import byref
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.model.kernels.bfloat16 import Factors, products
from elmokit.model.kernels.library import call
from elmokit.model.kernels.structs import Highway16


def highway(transform: nn.Linear, carry: nn.Linear, x: Tensor) -> Tensor:  # [N, F] -> [N, F]
    """c relu(transform(x)) + (1 - c) x, c = sigmoid(carry(x))."""
    weights = transform.weight, transform.bias, carry.weight, carry.bias
    y: Tensor = _Highway.apply(x, *weights)  # type: ignore[no-untyped-call]
    return y


class _Highway(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        x = x.contiguous()
        transform_weight, transform_bias, carry_weight, carry_bias = weights
        parts = ((transform_weight, transform_bias), (carry_weight, carry_bias))
        transform, carry = products([Factors(x, weight.T, bias) for weight, bias in parts])
        out = torch.empty_like(x)
        given = _struct(x, transform, carry)
        given.out = out.data_ptr()
        call("elmo_highway16", byref(given), torch.get_num_threads())
        ctx.save_for_backward(x, transform_weight, carry_weight)
        ctx.made = transform, carry
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.made is None:
            raise RuntimeError("a highway can run its backward pass once: its memory is used again")
        (transform, carry), ctx.made = ctx.made, None
        x, transform_weight, carry_weight = ctx.saved_tensors
        by_x, *by_weights = ctx.needs_input_grad
        gradient = gradient.contiguous()
        x_gradient = torch.empty_like(x) if by_x else None
        biases = x.new_empty(2, x.shape[1])
        given = _struct(x, transform, carry)
        given.out_gradient, given.x_gradient = (
            gradient.data_ptr(),
            None if x_gradient is None else x_gradient.data_ptr(),
        )
        given.transform_bias_gradient, given.carry_bias_gradient = (bias.data_ptr() for bias in biases)
        call("elmo_highway_backward16", byref(given), torch.get_num_threads())
        # Now transform and carry are their gradients.
        wanted = [
            (by_weights[0], Factors(transform.T, x)),
            (by_weights[2], Factors(carry.T, x)),
            (by_x, Factors(transform, transform_weight, onto=x_gradient)),
        ]
        made = iter(products([factors for there, factors in wanted if there]))
        by_transform, by_carry, _ = (next(made) if there else None for there, _ in wanted)
        if by_x:
            products([Factors(carry, carry_weight, onto=x_gradient)])
        return x_gradient, by_transform, biases[0], by_carry, biases[1]


def _struct(x: Tensor, transform: Tensor, carry: Tensor) -> Highway16:
    rows, width = x.shape
    return Highway16(
        x=x.data_ptr(), transform=transform.data_ptr(), carry=carry.data_ptr(), rows=rows, width=width
    )
