"""Rows of a matrix product, in whole groups, so that a row's result does not depend on how many there are."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

# MKL and oneDNN sum in another order for the rows left over after groups of four: up to 2e-6 of difference
# for the same sentence in another batch, which the recurrence then carries on. Measured in docs/decisions.md.
TOGETHER = 4


def whole_rows(x: Tensor, dim: int = 0) -> Tensor:
    """x with zeros after its rows along `dim`, up to a multiple of TOGETHER."""
    missing = -x.shape[dim] % TOGETHER
    if not missing:
        return x
    return F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing))
