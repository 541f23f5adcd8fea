"""Softmax, attention and pools over padded sentences.

What is padded counts for nothing, and the pool or the attention of a sentence without a token is zero, not NaN.

Shapes: B sentences, T and S tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """The least finite number where `mask` is False: no maximum and no softmax finds it beside another."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Over the last dimension; `mask` is as long there."""
    return masked(scores, mask).softmax(dim=-1) * mask


def attend(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """What each x [B, T, D] finds in y [B, S, D] by dot product; mask [B, S] is y's. -> [B, T, D]"""
    return masked_softmax(x @ y.transpose(1, 2), mask.unsqueeze(1)) @ y


def masked_max(x: Tensor, mask: Tensor) -> Tensor:  # [B, T, D], [B, T] -> [B, D]
    if not x.shape[1]:
        return x.new_zeros(len(x), x.shape[2])
    greatest = masked(x, mask.unsqueeze(-1)).amax(dim=1)
    return greatest.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:  # [B, T, D], [B, T] -> [B, D]
    return (x * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)
