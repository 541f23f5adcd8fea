"""x_k from given word vectors (word2vec, GloVe, fastText) instead of characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from elmokit.config import check_size
from elmokit.errors import UserError
from elmokit.model.char_encoder import MOST_ROWS
from elmokit.model.kernels.linear import linear
from elmokit.model.kernels.packing import WeightFormat
from elmokit.model.lstm import WIDEST


@dataclass(frozen=True)
class WordEncoderConfig:
    kind: Literal["words"] = "words"
    words: int = 4  # rows of the table: padding, <S>, </S>, <UNK> and the words
    embedding: int = 100
    trainable: bool = False

    def __post_init__(self) -> None:
        if self.words < 4:
            raise UserError(f"words counts padding, <S>, </S> and <UNK>: expected 4 or more, found {self.words}")
        check_size(4, MOST_ROWS, words=self.words)
        check_size(1, WIDEST, embedding=self.embedding)


class WordEncoder(nn.Module):
    """A table of vectors, and a projection where they are not P wide."""

    weights: WeightFormat = "float32"  # of the projection, as the native library reads it

    def __init__(self, config: WordEncoderConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.word_embedding = nn.Embedding(config.words, config.embedding, padding_idx=0)
        self.word_embedding.weight.requires_grad_(config.trainable)
        self.projection = nn.Identity() if config.embedding == width else nn.Linear(config.embedding, width)

    def encode(self, ids: Tensor) -> Tensor:  # [N, 1] -> x [N, P]
        return linear(self.projection, self.word_embedding(ids[..., 0]), self.weights)

    def forward(self, ids: Tensor) -> Tensor:  # [B, T, 1] -> x [B, T, P]
        return self.encode(ids.reshape(-1, ids.shape[-1])).view(*ids.shape[:-1], -1)
