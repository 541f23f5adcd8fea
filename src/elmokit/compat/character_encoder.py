"""AllenNLP's `_ElmoCharacterEncoder`: character ids -> token vectors, sentence boundaries added.

Shapes: B rows, T tokens, P width of a token vector.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from elmokit.compat.published import load_bilm
from elmokit.errors import UserError
from elmokit.model.bilm import add_boundaries, token_mask
from elmokit.model.char_encoder import CharEncoder
from elmokit.text.characters import ByteMapper


class CharacterVectors(nn.Module):
    """ids [B, T, 50] -> {"mask": [B, T + 2], "token_embedding": [B, T + 2, P]}."""

    def __init__(self, encoder: CharEncoder, mapper: ByteMapper) -> None:
        super().__init__()
        self.encoder = encoder
        self.mapper = mapper
        self.output_dim = encoder.width
        self._beginning_of_sentence_characters = torch.from_numpy(mapper.begin)
        self._end_of_sentence_characters = torch.from_numpy(mapper.end)

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        if inputs.shape[-1] != self.mapper.width:
            raise UserError(f"expected {self.mapper.width} ids a token, found {inputs.shape[-1]}")
        begin, end = self._beginning_of_sentence_characters, self._end_of_sentence_characters
        ids = add_boundaries(inputs, begin.to(inputs.device), end.to(inputs.device))
        return {"mask": token_mask(ids), "token_embedding": self.encoder(ids)}

    @property
    def _char_embedding_weights(self) -> Tensor:
        return self.encoder.character_embedding.weight

    @property
    def _convolutions(self) -> list[nn.Module]:
        return list(self.encoder.convolutions)

    @property
    def _highways(self) -> nn.Module:
        return self.encoder.highway

    @property
    def _projection(self) -> nn.Module:
        return self.encoder.projection


class ElmoCharacterEncoder(CharacterVectors):
    """The same, read from a model's files."""

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
    ) -> None:
        bilm, mapper = load_bilm(options_file, weight_file)
        assert isinstance(bilm.encoder, CharEncoder)
        super().__init__(bilm.encoder, mapper)
        self.requires_grad_(requires_grad)
