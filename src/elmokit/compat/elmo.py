"""AllenNLP's `Elmo`: our ELMo layer, called and saved as theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from elmokit.compat.elmo_bilm import ElmoBiLm
from elmokit.compat.indexer import batch_to_ids
from elmokit.compat.scalar_mix import ScalarMix
from elmokit.errors import UserError
from elmokit.model.elmo import mix_layers

__all__ = ["Elmo", "ElmoOutput", "batch_to_ids"]


class ElmoOutput(TypedDict):
    elmo_representations: list[Tensor]  # [..., T, D] each
    mask: Tensor  # [..., T]


class Elmo(nn.Module):
    """The biLM and `num_output_representations` mixes of its layers, `scalar_mix_0` and on.

    options_file, weight_file    the published pair, by paths or URLs (published.py says where their files are);
                                 or a folder of ours or a bundled model's name, and None.
    requires_grad                also train the biLM.
    do_layer_norm                normalize each layer over the whole batch before it is mixed.
    vocab_to_cache               words whose token vectors are computed once, here; `forward` then looks up
                                 `word_inputs`, numbered as this list is. Number 0 is padding.
    scalar_mix_parameters        weights of the layers before softmax, the same for every mix; not trained.
    module                       runs instead of the biLM (give None for both files): it has `num_layers` and
                                 `get_output_dim()` and returns {"activations", "mask"}, boundaries included.
    stateful                     each row of a batch begins where that row of the last batch ended, as AllenNLP's
                                 did. False: a sentence's vectors depend on nothing but the sentence.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise UserError(f"expected 1 or more output representations, found {num_output_representations}")
        if module is not None and (options_file is not None or weight_file is not None):
            raise UserError("module takes the place of options_file and weight_file: give None for both")
        if module is None:
            module = ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache, stateful=stateful)
        bilm: Any = module  # or what behaves like one
        self._elmo_lstm = bilm
        trainable = scalar_mix_parameters is None
        self._scalar_mixes = [
            ScalarMix(bilm.num_layers, do_layer_norm, scalar_mix_parameters, trainable)
            for _ in range(num_output_representations)
        ]
        for k, mix in enumerate(self._scalar_mixes):
            self.add_module(f"scalar_mix_{k}", mix)
        self._dropout = nn.Dropout(dropout)
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._has_cached_vocab = vocab_to_cache is not None

    def get_output_dim(self) -> int:
        return int(self._elmo_lstm.get_output_dim())

    def reset_states(self) -> None:
        """Forget what was read: the next call begins from nothing."""
        if hasattr(self._elmo_lstm, "reset_states"):
            self._elmo_lstm.reset_states()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoOutput:
        """inputs [..., T, 50]; word_inputs [..., T], looked up where there is a cache; then also inputs [B, T]."""
        if self._has_cached_vocab and inputs.dim() == 2 and word_inputs is None:  # as AllenNLP 0.5 had it
            output = self._elmo_lstm(None, inputs)
            outer = inputs.shape[:-1]
        else:
            if inputs.dim() < 3:
                raise UserError(f"expected ids [B, T, 50] as batch_to_ids makes them, found {list(inputs.shape)}")
            outer = inputs.shape[:-2] if word_inputs is None else word_inputs.shape[:-1]
            words = None if word_inputs is None else word_inputs.flatten(0, -2)
            output = self._elmo_lstm(inputs.flatten(0, -3), words)
        layers = output["activations"]
        layers = layers if isinstance(layers, Tensor) else torch.stack(layers)
        own = [getattr(self, f"scalar_mix_{k}") for k in range(len(self._scalar_mixes))]
        keep = self._keep_sentence_boundaries
        mixes, mask = mix_layers(own, self._dropout, layers, output["mask"], keep_boundaries=keep)
        if not keep:  # AllenNLP left what layer norm makes of padding where boundaries are kept
            mixes = [mix * mask.unsqueeze(-1) for mix in mixes]
        return {
            "elmo_representations": [mix.reshape(outer + mix.shape[1:]) for mix in mixes],
            "mask": mask.reshape(outer + mask.shape[1:]),
        }
