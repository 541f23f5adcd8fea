"""Muon: the momentum of a matrix with its singular values made equal (Jordan et al. 2024).

A step then changes a matrix about equally in every direction that its gradients point to, not mostly in the few
strongest. It is for matrices that multiply, not for tables that are looked up.

Shapes: K matrices of one shape, M rows, N columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

# x (a + b x^2 + c x^4), one after the other: what lies in [0.01, 1] comes to lie in [0.73, 1.27], as near to 1 as
# three of them can bring it (Amsel et al. 2025: each has the least largest error on what the one before left).
# Jordan et al. repeat one polynomial five times, and end in [0.68, 1.13].
COEFFICIENTS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
# An update's root mean square, as a share of the rate: that of AdamW's (Liu et al. 2025), so that rates compare.
RMS = 0.2
TINY = 1e-30  # below it, a matrix has no direction


class Muon:
    """Updates `matrices`, each in every `every`-th step, then by `every` times the rate.

    The momentum takes in every gradient. What costs is making singular values equal, and since the momentum
    changes slowly, doing it for half of the matrices in turn is about as good and half as dear.
    """

    def __init__(self, matrices: Sequence[nn.Parameter], momentum: float, weight_decay: float, every: int) -> None:
        self.matrices, self.momentum, self.weight_decay, self.every = matrices, momentum, weight_decay, every
        self.momenta = [torch.zeros_like(matrix.detach()) for matrix in matrices]
        self.steps = torch.zeros((), dtype=torch.int64)
        self._shapes: dict[torch.Size, list[int]] = defaultdict(list)
        for i, matrix in enumerate(matrices):
            self._shapes[matrix.shape].append(i)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        rate *= self.every
        for places in self._shapes.values():
            for i in places:
                gradient = self.matrices[i].grad
                if gradient is not None:
                    self.momenta[i].lerp_(gradient, 1 - self.momentum)
            due = list(self._due(places))
            if not due:
                continue
            updates = orthogonalize(torch.stack([update for _, update in due]))
            scale = rate * RMS * max(updates.shape[1:]) ** 0.5
            for (matrix, _), update in zip(due, updates):
                matrix.mul_(1 - rate * self.weight_decay).sub_(update, alpha=scale)
        self.steps += 1

    def _due(self, places: Sequence[int]) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Whose turn it is, and its momentum one step ahead (Nesterov)."""
        turn = int(self.steps) % self.every
        for i in places[turn :: self.every]:
            gradient = self.matrices[i].grad
            if gradient is not None:
                yield self.matrices[i], gradient.lerp(self.momenta[i], self.momentum)


def orthogonalize(matrices: Tensor) -> Tensor:  # [K, M, N] -> [K, M, N]
    """The same singular vectors, all singular values about 1, but those below a hundredth of the largest.

    The polynomials are worked out on G = X X', of the smaller side, and X is multiplied once at the end: with
    X' = P(G) X, the next G is P(G) G P(G). For the gates of an LSTM (1 to 8) that is a third of the products.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalize(matrices.mT).mT
    gram = matrices @ matrices.mT  # [K, M, M]
    # Its Frobenius norm bounds its largest eigenvalue; much closer than that of X does. The hundredth is rounding.
    norm: Tensor = (1.01 * torch.linalg.matrix_norm(gram, keepdim=True)).clamp(min=TINY)
    gram /= norm
    product: Tensor | None = None  # of the polynomials so far
    for i, (a, b, c) in enumerate(COEFFICIENTS):
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        polynomial.diagonal(dim1=1, dim2=2).add_(a)
        product = polynomial if product is None else polynomial @ product
        if i < len(COEFFICIENTS) - 1:
            gram = gram @ polynomial @ polynomial
    assert product is not None
    equal: Tensor = (product * norm.rsqrt()) @ matrices
    return equal
