"""AllenNLP's `ScalarMix`: its parameters, one per layer, and the names that they are saved by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.model.scalar_mix import normalize_batch


class ScalarMix(nn.Module):
    """Tensors [..., D] of `mixture_size` layers -> gamma * sum_j softmax(scalar_parameters)_j * tensor_j.

    do_layer_norm    normalize each layer over all real tokens first; `forward` then needs the mask [...].
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        initial = [0.0] * mixture_size if initial_scalar_parameters is None else initial_scalar_parameters
        if len(initial) != mixture_size:
            raise UserError(f"expected {mixture_size} weights, one per mixed layer, found {len(initial)}")
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(value)]), requires_grad=trainable) for value in initial
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)
        self.register_load_state_dict_pre_hook(_rename)  # type: ignore[no-untyped-call]

    def forward(self, tensors: Sequence[Tensor] | Tensor, mask: Tensor | None = None) -> Tensor:
        if len(tensors) != self.mixture_size:
            raise UserError(f"expected {self.mixture_size} layers, found {len(tensors)}")
        if self.do_layer_norm:
            if mask is None:
                raise UserError("do_layer_norm needs the mask: padding must not count")
            tensors = [normalize_batch(tensor, mask) for tensor in tensors]
        shares = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)
        layers = tensors if isinstance(tensors, Tensor) else torch.stack(list(tensors))
        return self.gamma * torch.einsum("l,l...->...", shares, layers)


def _rename(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """elmokit.compat once kept one parameter, `weights`, and a gamma without dimensions: both load still."""
    if f"{prefix}weights" in state:
        for layer, weight in enumerate(state.pop(f"{prefix}weights")):
            state[f"{prefix}scalar_parameters.{layer}"] = weight.reshape(1)
    if f"{prefix}gamma" in state:
        state[f"{prefix}gamma"] = state[f"{prefix}gamma"].reshape(1)
