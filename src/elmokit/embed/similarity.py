"""How near vectors are: matrices with a vector in each row -> their cosines.

Shapes: N and M vectors, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import UserError

Matrix = NDArray[np.float32]


def are_vectors(given: Any) -> bool:
    """A vector, a matrix or a list of vectors, as arrays or tensors; else it is text."""
    if isinstance(given, (list, tuple)) and given:
        given = given[0]
    return isinstance(given, Tensor) or getattr(getattr(given, "dtype", None), "kind", "") in ("f", "i", "u")


def as_matrix(vectors: Any) -> Matrix:  # [D] -> [1, D]; [N, D] as it is
    if isinstance(vectors, (list, tuple)):
        vectors = np.stack([np.asarray(vector) for vector in vectors])
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().cpu().numpy()
    matrix = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    if matrix.ndim != 2:
        raise UserError(f"expected a matrix with a vector in each row, found an array of shape {matrix.shape}")
    return matrix


def unit_rows(matrix: Matrix) -> Matrix:
    """Each row of length 1; zeros, which point nowhere, stay zeros."""
    lengths: Matrix = np.linalg.norm(matrix, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    units: Matrix = matrix / lengths
    return units


def cosines(a: Matrix, b: Matrix) -> Matrix:  # [N, D], [M, D] -> [N, M]
    if a.shape[1] != b.shape[1]:
        raise UserError(f"expected vectors of one width, found {a.shape[1]} and {b.shape[1]}")
    nearness: Matrix = unit_rows(a) @ unit_rows(b).T
    return nearness
