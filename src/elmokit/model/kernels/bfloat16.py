"""Products of bfloat16 operands, summed in float32: for training, where the processor does them in hardware.

    with products_in("bfloat16"):
        y = linear(x, weight, bias)

Weights, states, losses and all that is done element by element stay float32, and so do results. Elsewhere than in
such a block, and on a processor that cannot, everything is float32: dispatch.py decides.

Shapes: M, N rows and columns of a result, K what is summed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmokit.errors import UserError
from elmokit.model.kernels.library import call, units
from elmokit.model.kernels.structs import Operand, Product, array_of

Precision = Literal["float32", "bfloat16"]

_precision: ContextVar[Precision] = ContextVar("precision", default="float32")


def available() -> bool:
    """Does this processor multiply bfloat16 (AVX512_BF16), and is the library there to let it?"""
    return "bfloat16" in units()


def possible(asked: Precision) -> Precision:
    """What products are computed in where this is asked for: that, or float32 where it cannot be had."""
    return asked if asked == "float32" or available() else "float32"


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    before = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(before)


def asked_for() -> bool:
    """Is this within a block of products in bfloat16?"""
    return _precision.get() == "bfloat16"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [M, K], [N, K], [N] -> [M, N]
    """F.linear, its gradients by products of bfloat16 too."""
    y: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:  # [M, K], [K, N] -> [M, N]
    """a @ b + bias from operands rounded to bfloat16; either may be the transposed view of a matrix."""
    return products([Factors(a, b, bias)])[0]


class Factors(NamedTuple):
    """Of one product: a [M, K], b [K, N], and what is added, a bias [N] or, in place, `onto` [M, N]."""

    a: Tensor
    b: Tensor
    bias: Tensor | None = None
    onto: Tensor | None = None
    symmetric: bool = False  # b is a.T: half of the result is computed, the same bits


def products(given: Sequence[Factors]) -> list[Tensor]:
    """Each as `product`; together they keep all threads busy. No two may be added onto the same matrix."""
    held: list[Tensor | None] = []  # until the call is over: the structs hold addresses alone
    structs, results = [], []
    for a, b, bias, onto, symmetric in given:
        if (
            a.dim() != 2
            or b.dim() != 2
            or a.shape[1] != b.shape[0]
            or (bias is not None and len(bias) != b.shape[1])
        ):
            raise UserError(f"expected matrices that fit, found {tuple(a.shape)} and {tuple(b.shape)}")
        if onto is not None and (
            bias is not None or not onto.is_contiguous() or onto.shape != (len(a), b.shape[1])
        ):
            raise UserError(f"expected no bias and a matrix to add to, found {tuple(onto.shape)}")
        a, b = _with_strides(a), _with_strides(b)
        bias = None if bias is None else bias.contiguous()
        c = a.new_empty(len(a), b.shape[1]) if onto is None else onto
        held += [a, b, bias]
        structs.append(
            Product(
                a=_operand(a),
                b=_operand(b),
                bias=None if bias is None else bias.data_ptr(),
                c=c.data_ptr(),
                stride=b.shape[1],
                added=onto is not None,
                symmetric=symmetric,
            )
        )
        results.append(c)
    if structs:
        call("elmo_products16", array_of(structs), len(structs), torch.get_num_threads())
    return results


def _with_strides(matrix: Tensor) -> Tensor:
    """One of its strides must be 1; of a matrix of one row or column, the one that the library goes by."""
    return matrix if 1 in matrix.stride() and 1 not in matrix.shape else matrix.contiguous()


def _operand(matrix: Tensor) -> Operand:
    (rows, columns), (row, column) = matrix.shape, matrix.stride()
    return Operand(values=matrix.data_ptr(), rows=rows, columns=columns, row=row, column=column)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight.T, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        by_x, by_weight, by_bias = ctx.needs_input_grad
        gradient = gradient.contiguous()
        wanted = [(by_x, Factors(gradient, weight)), (by_weight, Factors(gradient.T, x))]
        made = iter(products([factors for there, factors in wanted if there]))
        return (
            *(next(made) if there else None for there, _ in wanted),
            gradient.sum(dim=0) if by_bias else None,
        )
