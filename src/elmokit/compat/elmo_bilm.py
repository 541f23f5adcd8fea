"""AllenNLP's `_ElmoBiLm`: it adds the boundaries, remembers the state, and may know words by number.

Shapes: B rows, T tokens, L layers, the token layer among them, D width, P = D / 2, V cached words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.compat.boundaries import add_sentence_boundary_token_ids
from elmokit.compat.character_encoder import CharacterVectors
from elmokit.compat.elmo_lstm import ElmoLstm
from elmokit.compat.indexer import ids_of
from elmokit.compat.names import rename_bilm
from elmokit.compat.published import load_bilm
from elmokit.errors import UserError
from elmokit.model.bilm import token_mask
from elmokit.model.char_encoder import CharEncoder


class ElmoBiLm(nn.Module):
    """ids [B, T, 50] -> {"activations": [L, B, T + 2, D], "mask": [B, T + 2]}, boundaries included.

    `_token_embedder` and `_elmo_lstm` are its halves as AllenNLP named them: views, whose weights are `bilm`'s.
    Another module that is called as they are may take their place.
    """

    _token_embedder: Any
    _elmo_lstm: Any

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self.bilm, self.mapper = load_bilm(options_file, weight_file)
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.layers
        assert isinstance(self.bilm.encoder, CharEncoder)
        encoder = CharacterVectors(self.bilm.encoder, self.mapper)
        # Past nn.Module: the weights keep one name. A module that is put in their place later is registered.
        self.__dict__ |= {"_token_embedder": encoder, "_elmo_lstm": ElmoLstm(self.bilm, stateful=stateful)}
        self._word_embedding: nn.Embedding | None = None
        self._bos_embedding: Tensor | None = None
        self._eos_embedding: Tensor | None = None
        self._requires_grad = requires_grad
        self.register_load_state_dict_pre_hook(rename_bilm)  # type: ignore[no-untyped-call]
        if vocab_to_cache:
            self.create_cached_cnn_embeddings(vocab_to_cache)

    @property
    def _has_cached_vocab(self) -> bool:
        return self._word_embedding is not None

    @property
    def device(self) -> torch.device:
        return next(self.bilm.parameters()).device

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Compute the token vectors of these words now; `forward` then looks up their numbers in this list."""
        rows = ids_of(self.mapper, [tokens]).to(self.device)  # [1, V, 50]
        with torch.no_grad():
            vectors = self._token_embedder(rows)["token_embedding"][0]  # [V + 2, P]
        self._bos_embedding, words, self._eos_embedding = vectors[0], vectors[1:-1], vectors[-1]
        self._word_embedding = nn.Embedding(len(words), words.shape[1], 0, _weight=words.clone())
        self._word_embedding.requires_grad_(self._requires_grad)

    def get_output_dim(self) -> int:
        return self.bilm.config.width

    def reset_states(self) -> None:
        self._elmo_lstm.reset_states()

    def forward(self, inputs: Tensor | None, word_inputs: Tensor | None = None) -> dict[str, Tensor]:
        """inputs [B, T, 50]; or word_inputs [B, T], numbers of cached words, and `inputs` for all others."""
        table = self._word_embedding
        if table is not None and word_inputs is not None and bool((word_inputs < table.num_embeddings).all()):
            mask = token_mask(word_inputs[..., None])
            begin, end = self._bos_embedding, self._eos_embedding
            vectors, _ = add_sentence_boundary_token_ids(table(word_inputs), mask, begin, end)
            mask = nn.functional.pad(mask, (2, 0), value=True)  # tokens come first, so two more of them do
        elif inputs is None:
            raise UserError("expected the numbers of cached words, found one past their list and no characters")
        else:
            read = self._token_embedder(inputs)
            mask, vectors = read["mask"], read["token_embedding"]
        return {"activations": self._layers(vectors, mask), "mask": mask}

    def _layers(self, vectors: Tensor, mask: Tensor) -> Tensor:
        if isinstance(self._elmo_lstm, ElmoLstm):
            return self._elmo_lstm.all_layers(vectors, mask)
        token_layer = torch.cat([vectors, vectors], dim=-1) * mask.unsqueeze(-1)
        return torch.cat([token_layer.unsqueeze(0), self._elmo_lstm(vectors, mask)])
