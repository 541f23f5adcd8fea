"""All layers of all tokens -> what was asked for: a layer, their mean or a mix; one vector a token or a sentence.

Shapes: L layers, B sentences, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import UserError
from elmokit.model.scalar_mix import ScalarMix

WhichLayers = int | Literal["all", "mean"] | Sequence[float] | ScalarMix
Pooling = Literal["mean", "max"]
DType = Literal["float32", "float16"] | np.dtype[Any] | type[np.floating[Any]]


def check_pooling(pooling: str | None) -> None:
    if pooling not in (None, "mean", "max"):
        raise UserError(f'pooling: expected None, "mean" or "max", found {pooling!r}')


def check_dtype(dtype: DType) -> None:
    try:
        known = np.dtype(dtype) in (np.float32, np.float16)
    except TypeError:
        known = False
    if not known:
        raise UserError(f'dtype: expected "float32" or "float16", found {dtype!r}')


def combine(layers: Tensor, which_layers: WhichLayers) -> Tensor:  # [L, B, T, D] -> the same, or [B, T, D]
    if isinstance(which_layers, ScalarMix):
        if which_layers.layer_norm == "batch":
            raise UserError('a ScalarMix with layer_norm="batch" makes vectors depend on the batch: use "token"')
        mixed: Tensor = which_layers.to(layers.device)(layers)
        return mixed
    if isinstance(which_layers, str):
        if which_layers not in ("all", "mean"):
            raise UserError(f'layers: expected "all", "mean", a number or weights, found {which_layers!r}')
        return layers if which_layers == "all" else layers.mean(dim=0)
    if isinstance(which_layers, (int, np.integer)) and not isinstance(which_layers, bool):
        if not -len(layers) <= which_layers < len(layers):
            raise UserError(f"layers: this model has layers 0 to {len(layers) - 1}, found {which_layers}")
        return layers[int(which_layers)]
    try:
        weights = np.asarray(which_layers, dtype=np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, dtype=np.float32)
    if weights.shape != (len(layers),) or not np.isfinite(weights).all():
        raise UserError(f"layers: expected {len(layers)} finite weights, one per layer, found {which_layers!r}")
    return torch.einsum("l,lbtd->btd", torch.from_numpy(weights).to(layers.device), layers)


def pool(vectors: Tensor, pooling: Pooling | None) -> Tensor:  # [..., T, D] -> [..., D]
    if pooling is None:
        return vectors
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pooling == "mean" else vectors.amax(dim=-2)
