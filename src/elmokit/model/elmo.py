"""The ELMo layer: mixes of a biLM's layers, as a module inside other people's models.

Shapes: B rows, T tokens, W ids per token, L layers, the token layer among them, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    state: BiLMState | None  # after each row's last token; None where the biLM had run before


class LayerMixes(nn.Module):
    """An ELMo layer without its biLM, for layers that are computed already.

    mixes             one for each place that ELMo enters, with weights of its own.
    keep_boundaries   keep the vectors of <S> and </S>: T + 2 vectors per row.
    """

    def __init__(self, mixes: Iterable[ScalarMix], *, dropout: float = 0.5, keep_boundaries: bool = False) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(mixes)
        if not self.mixes:
            raise UserError("places: expected 1 mix or more, found none")
        self.dropout = nn.Dropout(dropout)
        self.keep_boundaries = keep_boundaries

    def mix(
        self, layers: Tensor, mask: Tensor, *, boundaries: bool = True, state: BiLMState | None = None
    ) -> ElmoLayerOutput:
        """Layers [L, B, T, D] that the biLM has computed, also those kept in a cache.

        boundaries    whether <S> and </S> are among the T.
        """
        keep = self.keep_boundaries or not boundaries
        mixes, mask = mix_layers(self.mixes, self.dropout, layers, mask, keep_boundaries=keep)
        return ElmoLayerOutput(tuple(mixed * mask.unsqueeze(-1) for mixed in mixes), mask, state)

    def penalty(self) -> Tensor:
        """lambda * ||w||^2 over all mixes: add it to the task's loss."""
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]


class ElmoLayer(LayerMixes):
    """ids [B, T, W] of whole sentences, without boundaries -> one mix for each place that ELMo enters.

    places            number of mixes with weights of their own: 1 at a task RNN's input or output, 2 at both.
    which_layers      the layers to mix (all by default): [2] is the last only.
    layer_norm, regularizer, gamma    as ScalarMix's.
    train_bilm        also train the biLM; by default it is frozen, runs without gradients and in evaluation
                      mode, whatever the mode of the model around it.
    keep_boundaries   keep the vectors of <S> and </S>: T + 2 vectors per row.
    """

    begin: Tensor  # [W], the ids of <S>
    end: Tensor

    def __init__(
        self,
        bilm: BiLM,
        mapper: TokenMapper,
        places: int = 1,
        *,
        which_layers: Sequence[int] | None = None,
        dropout: float = 0.5,
        layer_norm: LayerNorm | None = None,
        regularizer: float = 0.0,
        gamma: float = 1.0,
        train_bilm: bool = False,
        keep_boundaries: bool = False,
    ) -> None:
        mixes = (
            ScalarMix(
                bilm.config.layers,
                which_layers=which_layers,
                gamma=gamma,
                layer_norm=layer_norm,
                regularizer=regularizer,
            )
            for _ in range(places)
        )
        super().__init__(mixes, dropout=dropout, keep_boundaries=keep_boundaries)
        self.bilm = bilm
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
        with_boundaries = add_boundaries(ids, self.begin, self.end)
        with torch.set_grad_enabled(self.train_bilm and torch.is_grad_enabled()):
            layers, mask, after = self.bilm(with_boundaries, state)
        return self.mix(layers, mask, state=after)

    def train(self, mode: bool = True) -> ElmoLayer:
        super().train(mode)
        self.bilm.train(mode and self.train_bilm)
        return self


def mix_layers(
    mixes: Iterable[nn.Module], dropout: nn.Module, layers: Tensor, mask: Tensor, *, keep_boundaries: bool
) -> tuple[list[Tensor], Tensor]:
    """Each mix of layers [L, B, T, D], after dropout, and the mask that is left; what is padded is not zero yet.

    Boundaries are taken away after the mixing: a mix that normalizes over the batch counts them, as published.
    """
    mixed = [mix(layers, mask) for mix in mixes]
    if not keep_boundaries:
        mixed, mask = [values[:, 1:-1] for values in mixed], without_boundaries(mask)
    return [dropout(values) for values in mixed], mask


def without_boundaries(mask: Tensor) -> Tensor:
    """[B, T + 2] -> [B, T]: a row of T tokens has T + 2 with its boundaries."""
    return mask[:, 2:]
