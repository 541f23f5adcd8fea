"""Rows of a matrix product, in whole groups, so that a row's result does not depend on how many there are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# MKL and oneDNN sum in another order for the rows left over after groups of four: up to 2e-6 of difference
# for the same sentence in another batch, which the recurrence then carries on. Measured in docs/decisions.md.
TOGETHER = 4


def whole_rows(x: Tensor, dim: int = 0) -> Tensor:
    """x with zeros after its rows along `dim`, up to a multiple of TOGETHER."""
    return _padded(x, dim, -x.shape[dim] % TOGETHER)


def row_chunks(x: Tensor, most: int) -> tuple[Tensor, ...]:
    """x in chunks of `most` rows, the last one padded with zeros to a power of two.

    Few different sizes: oneDNN compiles a convolution for every size that it meets and keeps up to 1,024 of
    them, which looks like a leak (60 MB over 30,000 sentences) and takes longer than the zeros do.
    """
    rest = len(x) % most
    size = TOGETHER
    while size < rest:
        size *= 2
    return torch.split(_padded(x, 0, min(size, most) - rest if rest else 0), most)


def _padded(x: Tensor, dim: int, rows: int) -> Tensor:
    return F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, rows)) if rows else x
