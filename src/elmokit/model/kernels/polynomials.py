"""Muon's polynomials of symmetric matrices in one call: half of each product is computed, the other copied.

All is float32, whatever training multiplies in; but the sums are in another order than torch's, so training in
float32, whose bits stay, does without it.

Shapes: K matrices, M rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.model.kernels.library import call


def polynomials(grams: Tensor, coefficients: Sequence[tuple[float, float, float]]) -> Tensor:
    """[K, M, M] -> the product of all P(G) = a + b G + c G^2 [K, M, M], where after each G becomes G P(G)^2."""
    grams, rows = grams.contiguous(), torch.tensor(coefficients, dtype=torch.float32)
    out = torch.empty_like(grams)
    size = grams.shape[-1]
    given = grams.data_ptr(), len(grams), size, rows.data_ptr(), len(rows), out.data_ptr()
    call("elmo_polynomials", *given, torch.get_num_threads())
    return out
