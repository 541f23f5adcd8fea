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
from elmokit.model.kernels.reading import Mix
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


def layer_mix(which_layers: WhichLayers, layers: int) -> Mix | None:
    """What is asked for, of so many layers, as a sum; None where it is all of them, or normalized first."""
    if isinstance(which_layers, ScalarMix):
        if which_layers.layer_norm == "batch":
            raise UserError('a ScalarMix with layer_norm="batch" makes vectors depend on the batch: use "token"')
        if which_layers.num_layers != layers:
            raise UserError(f"expected {which_layers.num_layers} layers, found {layers}")
        if which_layers.layer_norm is not None:
            return None
        shares = which_layers.shares().tolist()
        return Mix(tuple(which_layers.which_layers), tuple(shares), factor=which_layers.gamma.item())
    if isinstance(which_layers, str):
        if which_layers not in ("all", "mean"):
            raise UserError(f'layers: expected "all", "mean", a number or weights, found {which_layers!r}')
        return None if which_layers == "all" else Mix(tuple(range(layers)), (1.0,) * layers, divisor=layers)
    if isinstance(which_layers, (int, np.integer)) and not isinstance(which_layers, bool):
        if not -layers <= which_layers < layers:
            raise UserError(f"layers: this model has layers 0 to {layers - 1}, found {which_layers}")
        return Mix((range(layers)[which_layers],), (1.0,))
    try:
        weights = np.asarray(which_layers, dtype=np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, dtype=np.float32)
    if weights.shape != (layers,) or not np.isfinite(weights).all():
        raise UserError(f"layers: expected {layers} finite weights, one per layer, found {which_layers!r}")
    return Mix(tuple(range(layers)), tuple(weights.tolist()))


def combine(layers: Tensor, which_layers: WhichLayers) -> Tensor:  # [L, B, T, D] -> the same, or [B, T, D]
    mix = layer_mix(which_layers, len(layers))
    if isinstance(which_layers, ScalarMix):
        mixed: Tensor = which_layers.to(layers.device)(layers)
        return mixed
    if mix is None:
        return layers
    if len(mix.numbers) == 1:
        return layers[mix.numbers[0]]
    if mix.divisor != 1:
        return layers.mean(dim=0)
    return torch.einsum("l,lbtd->btd", torch.tensor(mix.weights, dtype=torch.float32).to(layers.device), layers)


def pool(vectors: Tensor, pooling: Pooling | None) -> Tensor:  # [..., T, D] -> [..., D]
    if pooling is None:
        return vectors
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pooling == "mean" else vectors.amax(dim=-2)
