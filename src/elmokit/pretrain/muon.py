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
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.polynomials import polynomials

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
        blocks: list[Tensor] = []
        directions: list[Tensor] = []
        for i, (matrix, momentum) in enumerate(zip(self.matrices, self.momenta)):
            if matrix.grad is None:
                continue
            momentum.lerp_(matrix.grad, 1 - self.momentum)
            if i % self.every == turn:
                blocks += blocks_of(matrix.detach())
                directions += blocks_of(matrix.grad.lerp(momentum, self.momentum))  # Nesterov's: one step ahead
        for block, update in zip(blocks, orthogonalize(directions)):
            scale = rate * RMS * max(block.shape) ** 0.5
            block.mul_(1 - rate * self.weight_decay).sub_(update, alpha=scale)
        self.steps += 1


def blocks_of(matrix: Tensor) -> Sequence[Tensor]:
    """Views of the matrix, cut along its smaller side so that none is more than BLOCK there."""
    side = 0 if _is_wide(matrix) else 1
    return torch.tensor_split(matrix, -(-matrix.shape[side] // BLOCK), dim=side)


def orthogonalize(matrices: Sequence[Tensor]) -> list[Tensor]:
    """The same singular vectors, and all singular values about 1, but those below 0.003 of the largest.

    The polynomials are worked out on the Gram matrix of the smaller side, G = X X' (or X' X), and X is multiplied
    once at the end: with X' = P(G) X, the next G is P(G) G P(G). For the gates of an LSTM that is a third of the
    products. All G of one size are one batch. Rounding errors grow by the square of what small singular values do:
    up to a tenth in float32 where a matrix lacks rank, far too much in bfloat16.
    """
    sizes: dict[int, list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        sizes[min(matrix.shape)].append(i)
    equal = list(matrices)
    for places in sizes.values():
        some = [matrices[i] for i in places]
        roots = inverse_roots(torch.stack(_grams(some)))
        pairs = [(root, x) if _is_wide(x) else (x, root) for x, root in zip(some, roots)]
        for i, made in zip(places, _products(pairs)):
            equal[i] = made
    return equal


def inverse_roots(grams: Tensor) -> Tensor:  # [K, M, M] -> [K, M, M], about G ** -1/2
    # Its Frobenius norm bounds the largest eigenvalue, more closely than that of X does; a hundredth for rounding.
    norm: Tensor = (1.01 * torch.linalg.matrix_norm(grams, keepdim=True)).clamp(min=TINY)
    grams = grams / norm
    if path_for(grams, training=True) is Path.BFLOAT16_TRAINING:
        return polynomials(grams, COEFFICIENTS) * norm.rsqrt()
    root: Tensor | None = None  # the product of the polynomials so far
    for i, (a, b, c) in enumerate(COEFFICIENTS):
        polynomial = torch.baddbmm(grams, grams, grams, beta=b, alpha=c)
        polynomial.diagonal(dim1=1, dim2=2).add_(a)
        root = polynomial if root is None else polynomial @ root
        if i < len(COEFFICIENTS) - 1:
            grams = grams @ polynomial @ polynomial
    assert root is not None
    return root * norm.rsqrt()


def _is_wide(x: Tensor) -> bool:
    return x.shape[0] <= x.shape[1]


def _grams(matrices: Sequence[Tensor]) -> list[Tensor]:
    return _products([(x, x.T) if _is_wide(x) else (x.T, x) for x in matrices], symmetric=True)


def _products(pairs: Sequence[tuple[Tensor, Tensor]], symmetric: bool = False) -> list[Tensor]:
    """In bfloat16 where training multiplies so; what is iterated stays float32."""
    if path_for(*(matrix for pair in pairs for matrix in pair), training=True) is not Path.BFLOAT16_TRAINING:
        return [a @ b for a, b in pairs]
    return bfloat16.products([bfloat16.Factors(a, b, symmetric=symmetric) for a, b in pairs])
