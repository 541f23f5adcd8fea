"""ELMo_k = gamma * sum_j s_j h_kj with s = softmax(w): one vector per token from all layers, learned with a task.

Shapes: L layers, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.errors import UserError

LayerNorm = Literal["batch", "token"]


class ScalarMix(nn.Module):
    """
    num_layers    number of layers that `forward` is given.
    which_layers  those of them to mix (all by default); the others are left out altogether.
    weights       initial w, one for each mixed layer; zeros (the plain average) by default.
    layer_norm    "batch", as published: one mean and variance over all real tokens and dimensions of a batch
                  together, so a sentence's vectors depend on its batch; "token": each token's own.
    regularizer   lambda: `penalty()` is lambda * sum(w^2), to be added to the task's loss. 1 keeps close to
                  the average of the layers, 0.001 lets the weights vary.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        which_layers: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        layer_norm: LayerNorm | None = None,
        regularizer: float = 0.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        self.num_layers = num_layers
        numbers = range(num_layers)
        self.which_layers = list(numbers) if which_layers is None else [numbers[i] for i in which_layers]
        if not self.which_layers or len(set(self.which_layers)) != len(self.which_layers):
            raise UserError(
                f"which_layers: expected different layers of 0..{num_layers - 1}, found {which_layers}"
            )
        mixed = len(self.which_layers)
        if weights is not None and len(weights) != mixed:
            raise UserError(f"expected {mixed} weights, one per mixed layer, found {len(weights)}")
        if layer_norm not in (None, "batch", "token"):
            raise UserError(f'layer_norm: expected None, "batch" or "token", found {layer_norm!r}')
        self.layer_norm = layer_norm
        self.regularizer = regularizer
        initial = torch.zeros(mixed) if weights is None else torch.tensor(weights, dtype=torch.float32)
        self.weights = nn.Parameter(initial, requires_grad=trainable)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """layers [L, B, T, D], also as a list; mask [B, T] (needed by layer_norm "batch") -> [B, T, D]"""
        layers = layers if isinstance(layers, Tensor) else torch.stack(list(layers))
        if len(layers) != self.num_layers:
            raise UserError(f"expected {self.num_layers} layers, found {len(layers)}")
        chosen = layers if self.which_layers == list(range(self.num_layers)) else layers[self.which_layers]
        if self.layer_norm == "token":
            chosen = nn.functional.layer_norm(chosen, chosen.shape[-1:], eps=1e-12)
        elif self.layer_norm == "batch":
            if mask is None:
                raise UserError('layer_norm="batch" needs the mask: padding must not count')
            chosen = torch.stack([normalize_batch(layer, mask) for layer in chosen])
        return self.gamma * torch.einsum("l,lbtd->btd", self.shares(), chosen)

    def shares(self) -> Tensor:
        """s, the share of each mixed layer; they sum to 1."""
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        return self.regularizer * self.weights.square().sum()


def normalize_batch(layer: Tensor, mask: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
    real = mask.unsqueeze(-1)
    count = real.sum() * layer.shape[-1]
    mean = (layer * real).sum() / count
    variance = ((layer - mean) * real).square().sum() / count
    return (layer - mean) / torch.sqrt(variance + 1e-12)
