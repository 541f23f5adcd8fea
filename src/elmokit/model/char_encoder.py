"""x_k from the characters of a token: embedding, convolutions, highway, projection (Kim et al. 2015).

Shapes: N tokens, C characters, E character embedding, F filters in all, P width of x_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import check_size, shown
from elmokit.errors import UserError
from elmokit.model.kernels import bfloat16_highway, convolution, linear
from elmokit.model.kernels.cache import weights_of
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.packing import WeightFormat
from elmokit.model.lstm import MOST_LAYERS, WIDEST
from elmokit.model.rows import row_chunks, whole_rows
from elmokit.text.characters import BYTE_CHARACTERS, MOST_CHARACTERS

# Tokens convolved at one time: bounds memory (the widest published filter bank takes 200 kB a token).
ROWS_AT_ONCE = 512
# With tables (kernels/convolution.py) a token takes its features and little more.
FAST_ROWS_AT_ONCE = 4096
# Words are cut to a multiple of so many characters: few sizes, for the reason that row_chunks gives.
LENGTHS = 8
# Of a table of characters or words: more than any model has.
MOST_ROWS = 1 << 31


@dataclass(frozen=True)
class CharEncoderConfig:
    kind: Literal["characters"] = "characters"
    characters: int = BYTE_CHARACTERS  # ids, the 0 of padded tokens among them
    embedding: int = 16
    filters: tuple[tuple[int, int], ...] = (
        (1, 32),
        (2, 32),
        (3, 64),
        (4, 128),
        (5, 256),
        (6, 512),
        (7, 1024),
    )
    highway: int = 2
    activation: Literal["relu", "tanh"] = "relu"
    projection: bool = True  # bilm-tf leaves it out where the filters make P already
    words: int = 0  # ids of a word table beside the characters, as in ELMoForManyLangs; 0 for none
    word_embedding: int = 0

    def __post_init__(self) -> None:
        if not self.filters and not self.words:
            raise UserError("a token encoder needs filters over characters, a word table or both; found neither")
        if any(width < 1 or count < 1 for width, count in self.filters):
            raise UserError(f"filters are (width, count) of at least 1, found {shown(self.filters)}")
        check_size(0, MOST_LAYERS, filters=len(self.filters), highway=self.highway)
        check_size(0, MOST_ROWS, words=self.words)
        check_size(1 if self.words else 0, WIDEST, word_embedding=self.word_embedding)
        if self.filters:
            check_size(1, MOST_ROWS, characters=self.characters)
            check_size(1, WIDEST, embedding=self.embedding, features=self.features)
            check_size(1, MOST_CHARACTERS, filters=max(width for width, _ in self.filters))

    @property
    def features(self) -> int:
        """What goes into the projection: F, and the word's own vector where there is one."""
        return sum(count for _, count in self.filters) + self.word_embedding


class Highway(nn.Module):
    """c * relu(W_t x + b_t) + (1 - c) * x, with the carry gate c = sigmoid(W_c x + b_c)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.carry = nn.Linear(width, width)
        for part, bias in ((self.transform, 0.0), (self.carry, -2.0)):  # -2: at first, mostly carry x on
            nn.init.normal_(part.weight, std=width**-0.5)
            nn.init.constant_(part.bias, bias)

    def forward(self, x: Tensor, weights: WeightFormat = "float32") -> Tensor:  # [N, F] -> [N, F]
        path = path_for(x, *weights_of(self))
        if path is Path.NATIVE_INFERENCE:
            return linear.highway(self.transform, self.carry, x, weights)
        if path is Path.BFLOAT16_TRAINING:
            return bfloat16_highway.highway(self.transform, self.carry, x)
        carry = torch.sigmoid(linear.applied(self.carry, x))
        return carry * F.relu(linear.applied(self.transform, x)) + (1 - carry) * x


class CharEncoder(nn.Module):
    weights: WeightFormat = "float32"  # of highway and projection, as the native library reads them

    def __init__(self, config: CharEncoderConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width
        if not config.projection and config.features != width:
            raise UserError(f"without a projection the features must be x_k: {config.features} is not {width}")
        if config.filters:
            filters = sum(count for _, count in config.filters)
            self.character_embedding = nn.Embedding(config.characters, config.embedding, padding_idx=0)
            self.convolutions = nn.ModuleList(
                nn.Conv1d(config.embedding, count, kernel_size=width) for width, count in config.filters
            )
            self.highway = nn.ModuleList(Highway(filters) for _ in range(config.highway))
        if config.words:
            self.word_embedding = nn.Embedding(config.words, config.word_embedding, padding_idx=0)
        self.projection = nn.Linear(config.features, width) if config.projection else nn.Identity()
        self._cache = convolution.TableCache()
        self._initialize()

    def _initialize(self) -> None:
        """As bilm-tf; the padding rows stay zero."""
        with torch.no_grad():
            if self.config.filters:
                self.character_embedding.weight[1:].uniform_(-1, 1)
                for convolution in self.convolutions:
                    assert isinstance(convolution, nn.Conv1d)
                    if self.config.activation == "relu":
                        nn.init.uniform_(convolution.weight, -0.05, 0.05)
                    else:
                        nn.init.normal_(convolution.weight, std=convolution.weight[0].numel() ** -0.5)
                    assert convolution.bias is not None
                    nn.init.zeros_(convolution.bias)
            if isinstance(self.projection, nn.Linear):
                nn.init.normal_(self.projection.weight, std=self.config.features**-0.5)
                nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor) -> Tensor:  # [B, T, W] -> x [B, T, P], also for padded tokens
        # A token's vector depends on nothing but the token, so each distinct one is computed once.
        flat = ids.reshape(ids.shape[:-1].numel(), ids.shape[-1])
        if not len(flat):  # torch.unique refuses an empty batch
            return self._encode(flat).view(*ids.shape[:-1], self.width)
        distinct, where = distinct_rows(flat)
        return self.encode(distinct)[where].view(*ids.shape[:-1], self.width)

    def encode(self, ids: Tensor) -> Tensor:  # [N, W] -> x [N, P], row by row, for tokens that are distinct
        if self._by_tables(ids):
            return self._encode_by_tables(ids)
        # Short words convolve with short words: a chunk is as long as its longest.
        order = torch.argsort(_lengths(self._characters(ids)), stable=True)
        x = torch.cat([self._encode(rows) for rows in row_chunks(ids[order], ROWS_AT_ONCE)])
        return x[torch.argsort(order)]

    def _characters(self, ids: Tensor) -> Tensor:  # [N, W] -> [N, C]
        return ids[:, :-1] if self.config.words else ids

    def _encode(self, ids: Tensor) -> Tensor:  # [N, W] -> [N, P]
        return self._project(ids, self._convolve(self._characters(ids)) if self.config.filters else None)

    def _project(self, ids: Tensor, pooled: Tensor | None) -> Tensor:  # [N, W], [N, F] -> [N, P]
        features = []
        if self.config.words:
            features.append(self.word_embedding(ids[:, -1]))
        if pooled is not None:
            for highway in self.highway:
                pooled = highway(pooled, self.weights)
            features.append(pooled)
        joined = torch.cat(features, dim=-1) if len(features) > 1 else features[0]
        return linear.linear(self.projection, joined, self.weights)

    def _convolve(self, ids: Tensor) -> Tensor:  # [N, C] -> [N, F]
        widest = self._check_length(ids)
        activation = F.relu if self.config.activation == "relu" else torch.tanh
        # Windows of nothing but PAD count too, as they did in training; but they are all alike, so one is enough.
        longest = int(_lengths(ids).max()) + widest if len(ids) else widest
        ids = ids[:, : -(-longest // LENGTHS) * LENGTHS]
        characters = self.character_embedding(ids).transpose(1, 2)  # [N, E, C or less]
        pooled = [activation(convolve(characters).max(dim=-1).values) for convolve in self.convolutions]
        return torch.cat(pooled, dim=-1)

    def _check_length(self, ids: Tensor) -> int:
        """ids [N, C] -> the width of the widest filter, which must not be wider than C."""
        widest = max(width for width, _ in self.config.filters)
        convolution.check_length(ids.shape[-1], widest)
        return widest

    def _table_weights(self) -> list[Tensor]:
        """What tables are made of: the embedding [A, E], then the filters of each width [count, E, width]."""
        return [self.character_embedding.weight, *(part.weight for part in self._filters())]

    @property
    def has_tables(self) -> bool:
        """Is a token nothing but its characters, and is there memory for tables of all of them?"""
        filters = self.config.filters
        few = convolution.table_bytes(self.config.characters, filters) <= convolution.MOST_BYTES
        return bool(filters) and not self.config.words and few

    def tables(self) -> list[Tensor]:
        """What every character gives to every filter, where there is memory for it."""
        embedding, *weights = self._table_weights()
        return self._cache.get(embedding, weights)

    def filter_bias(self) -> Tensor:  # [F]
        return torch.cat([cast(Tensor, part.bias) for part in self._filters()])

    def _filters(self) -> list[nn.Conv1d]:
        return cast("list[nn.Conv1d]", list(self.convolutions))

    def _learns(self) -> bool:
        return torch.is_grad_enabled() and any(weight.requires_grad for weight in self._table_weights())

    def _by_tables(self, ids: Tensor) -> bool:  # [N, W]
        """Can tables do what `_convolve` defines?"""
        return (
            bool(self.config.filters)
            and len(ids) > 0
            and ids.device.type == "cpu"
            and path_for(*self._table_weights()).native
            and (self._characters(ids).shape[1] <= convolution.MOST_CHARACTERS or not self._learns())
        )

    def _encode_by_tables(self, ids: Tensor) -> Tensor:  # [N, W] -> [N, P], as `_encode` of all rows
        spelling = self._characters(ids)  # [N, C]
        self._check_length(spelling)
        embedding, *weights = self._table_weights()
        bias, filters = self.filter_bias(), self.config.filters
        convolution.check_ids(spelling, len(embedding))
        if not self._learns() and convolution.table_bytes(len(embedding), filters) <= convolution.MOST_BYTES:
            tables = self.tables()
        else:  # made anew every time, for the characters that there are
            used, spelling = convolution.used_characters(spelling, len(embedding))
            if convolution.table_bytes(len(used), filters) > convolution.MOST_BYTES and len(ids) > 1:
                return torch.cat([self._encode_by_tables(half) for half in torch.tensor_split(ids, 2)])
            tables = convolution.make_tables(self.character_embedding(used), weights)
        tanh_ = torch.tanh_ if torch.is_grad_enabled() else linear.tanh_
        activation = torch.relu_ if self.config.activation == "relu" else tanh_
        chunks = []
        for rows, words in zip(*(torch.split(each, FAST_ROWS_AT_ONCE) for each in (ids, spelling))):
            pooled = convolution.convolve(tables, [count for _, count in filters], whole_rows(words))
            chunks.append(self._project(whole_rows(rows), activation(pooled.add_(bias))))
        return torch.cat(chunks)[: len(ids)]


def distinct_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids [N, W], N > 0 -> the distinct rows, and where among them each row is: [N]."""
    if ids.device.type == "cpu":
        # By a number for each row: sorting whole rows takes ten times as long. Rows that share one are found out.
        rows = ids.numpy()
        _, first, where = np.unique(rows @ _factors(rows.shape[1]), return_index=True, return_inverse=True)
        distinct = rows[first]
        if np.array_equal(distinct[where], rows):
            return torch.from_numpy(distinct), torch.from_numpy(where)
    distinct_, where_ = torch.unique(ids, dim=0, return_inverse=True)
    return distinct_, where_


@cache
def _factors(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-(2**63), 2**63 - 1, count)


def _lengths(ids: Tensor) -> Tensor:
    """ids [N, C] -> [N], how many characters come before the run of equal ones at the end: before the padding."""
    if not ids.shape[1]:  # a model without characters
        return ids.new_zeros(len(ids))
    other = ids != ids[:, -1:]
    last = ids.shape[1] - other.flip(1).to(torch.uint8).argmax(dim=1)
    return torch.where(other.any(dim=1), last, 0)
