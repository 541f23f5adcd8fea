"""Tokens -> the vectors that a task's network reads: [word vector ; ELMo], with ELMo at its input, output or both.

The frozen biLM has run already where its layers are cached; only the mixes are learned then.

Shapes: B sentences, T tokens, L layers, D width of a layer, E width of a word vector, W ids a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.model.bilm import add_boundaries
from elmokit.model.scalar_mix import ScalarMix

Place = Literal["input", "output", "both"]
PADDING, UNKNOWN = 0, 1  # rows of the word table


class Padded(NamedTuple):
    """One group of sentences of a batch."""

    tokens: list[list[str]]
    words: Tensor  # [B, T], rows of the word table; 0 where padded
    mask: Tensor  # [B, T]
    layers: Tensor | None = None  # [L, B, T, D] of the frozen biLM
    ids: Tensor | None = None  # [B, T, W], where the biLM runs here


class Vectors(NamedTuple):
    at_input: Tensor  # [B, T, width], after dropout
    at_output: Tensor | None  # [B, T, D], to be joined to the task RNN's output
    mask: Tensor  # [B, T]


@dataclass(frozen=True)
class InputConfig:
    """The paper's experiments."""

    place: Place = "input"
    layers: str = "all"  # all, last, mean, or a layer's number
    penalty: float = 0.001  # lambda
    elmo_dropout: float = 0.5
    train_bilm: bool = False
    tune_vectors: bool = False
    word_width: int = 100  # of vectors that are learned, where none are given
    word_dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.layers not in ("all", "last", "mean") and not self.layers.isdigit():
            raise UserError(f"layers: expected all, last, mean or a layer's number, found {self.layers!r}")
        for name in ("elmo_dropout", "word_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}: expected 0 or more and less than 1, found {getattr(self, name)}")


class WordTable:
    """The words that have a row, and the rows' vectors [V, E] where they are given."""

    def __init__(self, words: Sequence[str], vectors: Tensor | None = None) -> None:
        self.words = list(words)
        self.vectors = vectors  # without the two rows that come first
        self._rows = {word: row for row, word in enumerate(self.words, start=UNKNOWN + 1)}

    def __len__(self) -> int:
        return len(self.words) + UNKNOWN + 1

    def row(self, token: str) -> int:
        """As GloVe's users do: the token as it is, then in lower case."""
        found = self._rows.get(token)
        return found if found is not None else self._rows.get(token.lower(), UNKNOWN)

    def rows(self, tokens: Sequence[str]) -> list[int]:
        return [self.row(token) for token in tokens]


class TokenInputs(nn.Module):
    """[x_k ; ELMo_k] where ELMo enters at the input, x_k alone where not."""

    def __init__(self, table: WordTable, elmo: Elmo | None, config: InputConfig) -> None:
        super().__init__()
        self.table, self.config = table, config
        width = config.word_width if table.vectors is None else table.vectors.shape[1]
        self.word_embedding = nn.Embedding(len(table), width, padding_idx=PADDING)
        if table.vectors is not None:
            with torch.no_grad():
                self.word_embedding.weight[UNKNOWN] = table.vectors.mean(dim=0)
                self.word_embedding.weight[UNKNOWN + 1 :] = table.vectors
            self.word_embedding.weight.requires_grad_(config.tune_vectors)
        self.word_dropout, self.elmo_dropout = nn.Dropout(config.word_dropout), nn.Dropout(config.elmo_dropout)
        self.places: tuple[str, ...] = ()
        self.elmo_width = 0
        self.mixes = nn.ModuleDict()
        self.elmo = [elmo]  # in a list: its weights are saved beside this module's, not among them
        if elmo is not None:
            self.places = ("input", "output") if config.place == "both" else (config.place,)
            self.elmo_width = elmo.width
            elmo.bilm.requires_grad_(config.train_bilm)
            for place in self.places:
                self.mixes[place] = make_mix(elmo.layers, config)
            if config.train_bilm:
                self.bilm = elmo.bilm  # one of this module's, so that it is trained, and saved

    @property
    def width(self) -> int:
        """Of the vectors at the input."""
        return self.word_embedding.embedding_dim + (self.elmo_width if "input" in self.places else 0)

    @property
    def output_width(self) -> int:
        """Of what is joined to the RNN's output."""
        return self.elmo_width if "output" in self.places else 0

    def forward(self, sentence: Padded) -> Vectors:
        x = self.word_dropout(self.word_embedding(sentence.words))  # [B, T, E]
        mixed: dict[str, Tensor] = {}
        if self.places:
            layers = self._layers(sentence)
            for place in self.places:
                mixed[place] = self.elmo_dropout(self.mixes[place](layers)) * sentence.mask.unsqueeze(-1)
        if "input" in mixed:
            x = torch.cat([x, mixed["input"]], dim=-1)
        return Vectors(x, mixed.get("output"), sentence.mask)

    def _layers(self, sentence: Padded) -> Tensor:  # [L, B, T, D]
        if sentence.layers is not None:
            return sentence.layers
        elmo = self.elmo[0]
        assert elmo is not None
        assert sentence.ids is not None
        begin, end = (torch.from_numpy(row) for row in (elmo.mapper.begin, elmo.mapper.end))
        with torch.set_grad_enabled(self.config.train_bilm and torch.is_grad_enabled()):
            layers: Tensor = elmo.bilm(add_boundaries(sentence.ids, begin, end)).layers
        return layers[:, :, 1:-1] * sentence.mask.unsqueeze(-1)

    def penalty(self) -> Tensor:
        """lambda * ||w||^2 of all mixes."""
        total = torch.zeros(())
        for mix in self.mixes.values():
            assert isinstance(mix, ScalarMix)
            total = total + mix.penalty()
        return total

    def shares(self) -> dict[str, dict[str, list[float] | float]]:
        """The learned s_j and gamma of every place, for a reader."""
        found: dict[str, dict[str, list[float] | float]] = {}
        for place, mix in self.mixes.items():
            assert isinstance(mix, ScalarMix)
            found[place] = {
                "layers": list(mix.select),
                "s": mix.shares().detach().tolist(),
                "gamma": float(mix.gamma.detach()),
            }
        return found


def make_mix(layers: int, config: InputConfig) -> ScalarMix:
    select = None
    if config.layers == "last":
        select = [layers - 1]
    elif config.layers.isdigit():
        if int(config.layers) >= layers:
            raise UserError(f"layers: this model has layers 0 to {layers - 1}, found {config.layers}")
        select = [int(config.layers)]
    mix = ScalarMix(layers, select=select, regularizer=config.penalty)
    if config.layers == "mean":
        mix.weights.requires_grad_(False)  # gamma is still learned
    return mix
