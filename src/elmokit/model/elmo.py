"""The ELMo layer: a biLM and mixes of its layers, as a module inside other people's models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMState, add_boundaries
from elmokit.model.scalar_mix import LayerNorm, ScalarMix
from elmokit.text.characters import TokenMapper


class ElmoLayerOutput(NamedTuple):
    mixes: tuple[Tensor, ...]  # [B, T, D] each, after dropout; one for each place in the task model
    mask: Tensor  # [B, T]
    state: BiLMState


class ElmoLayer(nn.Module):
    """ids [B, T, W] of whole sentences, without boundaries -> one mix for each place that ELMo enters.

    places            how many mixes with weights of their own: 1 at a task RNN's input or output, 2 at both.
    select            the layers to mix (all by default): [2] is the last only.
    layer_norm, regularizer, gamma    as ScalarMix's.
    train_bilm        also train the biLM; by default it is frozen, runs without gradients and in evaluation
                      mode, whatever the mode of the model around it.
    keep_boundaries   keep the vectors of <S> and </S>: T + 2 vectors a row.
    """

    def __init__(
        self,
        bilm: BiLM,
        mapper: TokenMapper,
        places: int = 1,
        *,
        select: list[int] | None = None,
        dropout: float = 0.5,
        layer_norm: LayerNorm | None = None,
        regularizer: float = 0.0,
        gamma: float = 1.0,
        train_bilm: bool = False,
        keep_boundaries: bool = False,
    ) -> None:
        super().__init__()
        if places < 1:
            raise UserError(f"places: expected 1 or more, found {places}")
        self.bilm = bilm
        self.mixes = nn.ModuleList(
            ScalarMix(
                bilm.config.layers, select=select, gamma=gamma, layer_norm=layer_norm, regularizer=regularizer
            )
            for _ in range(places)
        )
        self.dropout = nn.Dropout(dropout)
        self.keep_boundaries = keep_boundaries
        self.train_bilm = train_bilm
        bilm.requires_grad_(train_bilm)
        self.register_buffer("begin", torch.from_numpy(mapper.begin), persistent=False)
        self.register_buffer("end", torch.from_numpy(mapper.end), persistent=False)
        self.train(self.training)

    @property
    def width(self) -> int:
        """D, the size of each output vector."""
        return self.bilm.config.width

    def forward(self, ids: Tensor, state: BiLMState | None = None) -> ElmoLayerOutput:
        assert isinstance(self.begin, Tensor)
        assert isinstance(self.end, Tensor)
        ids = add_boundaries(ids, self.begin, self.end)
        with torch.set_grad_enabled(self.train_bilm and torch.is_grad_enabled()):
            layers, mask, state = self.bilm(ids, state)
        return self.mix(layers, mask, state)

    def mix(self, layers: Tensor, mask: Tensor, state: BiLMState) -> ElmoLayerOutput:
        """Mix the biLM's layers [1 + L, B, T + 2, D], of sentences with their boundaries."""
        inner = mask[:, 2:]  # a row of T tokens has T + 2 with its boundaries
        mixes = []
        for mix in self.mixes:
            mixed = mix(layers, mask) * mask.unsqueeze(-1)
            if not self.keep_boundaries:
                mixed = mixed[:, 1:-1] * inner.unsqueeze(-1)
            mixes.append(self.dropout(mixed))
        return ElmoLayerOutput(tuple(mixes), mask if self.keep_boundaries else inner, state)

    def penalty(self) -> Tensor:
        """lambda * ||w||^2 over all mixes: add it to the task's loss."""
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]

    def train(self, mode: bool = True) -> ElmoLayer:
        super().train(mode)
        self.bilm.train(mode and self.train_bilm)
        return self
