"""Muon: the momentum of a matrix with its singular values made equal (Jordan et al. 2024).

A step then changes a matrix about equally in every direction that its gradients point to, not mostly in the few
strongest. It is for matrices that multiply, not for tables that are looked up.

Shapes: K blocks of matrices, all of one shape, M rows, N columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.model.kernels import bfloat16

# x (a + b x^2 + c x^4), one after the other: what lies in [0.003, 1] comes to lie in [0.8, 1.2], as near to 1 as
# four of them can bring it (Amsel et al. 2025: each has the least largest error on what the one before left).
# Jordan et al. repeat one polynomial five times, and end in [0.68, 1.13].
COEFFICIENTS = (
    (8.3837, -24.7659, 18.3571),
    (4.0434, -3.0114, 0.5695),
    (3.5056, -2.6267, 0.5257),
    (2.4901, -1.8343, 0.4368),
)
# An update's root mean square, as a share of the rate: that of AdamW's (Liu et al. 2025), so that rates compare.
RMS = 0.2
# What is made equal costs the cube of a matrix's smaller side: a larger one is cut into blocks, each on its own.
BLOCK = 256
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

    @torch.no_grad()
    def step(self, rate: float) -> None:
        rate *= self.every
        turn = int(self.steps) % self.every
        due: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)  # blocks and what they move along
        for i, (matrix, momentum) in enumerate(zip(self.matrices, self.momenta)):
            if matrix.grad is None:
                continue
            momentum.lerp_(matrix.grad, 1 - self.momentum)
            if i % self.every == turn:
                ahead = matrix.grad.lerp(momentum, self.momentum)  # Nesterov's: the momentum of the next step
                for block, direction in zip(blocks_of(matrix.detach()), blocks_of(ahead)):
                    due[block.shape].append((block, direction))
        for shape, pairs in due.items():
            updates = orthogonalize(torch.stack([direction for _, direction in pairs]))
            scale = rate * RMS * max(shape) ** 0.5
            for (block, _), update in zip(pairs, updates):
                block.mul_(1 - rate * self.weight_decay).sub_(update, alpha=scale)
        self.steps += 1


def blocks_of(matrix: Tensor) -> Sequence[Tensor]:
    """Views of the matrix, cut along its smaller side so that none is more than BLOCK there."""
    side = 0 if matrix.shape[0] <= matrix.shape[1] else 1
    return torch.tensor_split(matrix, -(-matrix.shape[side] // BLOCK), dim=side)


def orthogonalize(matrices: Tensor) -> Tensor:  # [K, M, N] -> [K, M, N]
    """The same singular vectors, all singular values about 1, but those below a hundredth of the largest.

    The polynomials are worked out on G = X X', of the smaller side, and X is multiplied once at the end: with
    X' = P(G) X, the next G is P(G) G P(G). For the gates of an LSTM (1 to 8) that is a third of the products.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalize(matrices.mT).mT
    gram = _product(matrices, matrices.mT)  # [K, M, M]
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
    return _product(product * norm.rsqrt(), matrices)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Of operands in bfloat16 where training multiplies so: the sums, and what is iterated, stay float32."""
    if not bfloat16.multiplies(a, b):
        return a @ b
    return torch.stack([bfloat16.product(one, other) for one, other in zip(a, b)])
