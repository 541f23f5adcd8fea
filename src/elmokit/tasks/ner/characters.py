"""What the spelling of a token says: a convolution over its bytes (Ma and Hovy 2016).

Shapes: B sentences, T tokens, N distinct tokens, C characters, F filters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.text.characters import BYTE_CHARACTERS, MASK_SHIFT, PAD, ByteMapper


class CharacterFeatures(nn.Module):
    """Tokens -> [B, T, F]: a convolution over the bytes of each, its maximum over time; zeros where padded.

    Windows end with the word: how much padding comes after it makes no difference.
    """

    def __init__(self, characters: int, width: int, filters: int, filter_width: int) -> None:
        """
        characters   bytes of a token that are read, its two ends among them.
        width        of a byte's vector.
        """
        super().__init__()
        self.mapper = ByteMapper(max_characters_per_token=characters)
        self.padding = PAD + MASK_SHIFT
        self.embedding = nn.Embedding(BYTE_CHARACTERS, width, padding_idx=self.padding)
        bound = (3 / width) ** 0.5  # as Ma and Hovy begin
        with torch.no_grad():
            self.embedding.weight.uniform_(-bound, bound)[self.padding] = 0
        self.convolution = nn.Conv1d(width, filters, filter_width, padding=filter_width // 2)

    def forward(self, sentences: Sequence[Sequence[str]], length: int) -> Tensor:
        rows: dict[str, int] = {}  # of the distinct tokens; row 0 is for what is padded
        places = torch.zeros(len(sentences), length, dtype=torch.int64)
        for place, tokens in zip(places, sentences):
            numbers = [rows.setdefault(token, len(rows) + 1) for token in tokens]
            place[: len(tokens)] = torch.tensor(numbers, dtype=torch.int64)
        features = self._features(list(rows))
        return torch.cat([features.new_zeros(1, features.shape[1]), features])[places.to(features.device)]

    def _features(self, tokens: list[str]) -> Tensor:  # [N, F]
        if not tokens:
            return self.embedding.weight.new_zeros(0, self.convolution.out_channels)
        spelled = np.zeros((len(tokens), self.mapper.width), dtype=np.int64)
        for row, token in zip(spelled, tokens):
            self.mapper.fill(row, token)
        longest = int((spelled != self.padding).sum(axis=1).max())
        ids = torch.from_numpy(spelled[:, :longest]).to(self.embedding.weight.device)  # [N, C]
        windows = self.convolution(self.embedding(ids).transpose(1, 2))  # [N, F, C]
        windows = windows.masked_fill((ids == self.padding).unsqueeze(1), -torch.inf)
        return torch.relu(windows.amax(dim=2))
