"""Weights as the native library reads them: panels of 32 columns, contiguous along the sum."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from elmokit.model.kernels.structs import PANEL


def up_to(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def padded(weight: Tensor, rows: int, columns: int) -> Tensor:
    return F.pad(weight, (0, columns - weight.shape[1], 0, rows - weight.shape[0]))


def panels(weight: Tensor) -> Tensor:  # [N, K], N whole panels -> [N / 32, K, 32]
    return weight.reshape(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()
