"""Variational dropout (Gal and Ghahramani 2016): one mask for all tokens of a sentence.

Shapes: B sentences, T tokens, I inputs.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout


class VariationalDropout(nn.Module):
    """x [B, T, I] -> the same."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return x * dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)
