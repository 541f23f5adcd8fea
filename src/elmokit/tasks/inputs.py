"""Tokens -> the vectors that a task's network reads: [word vector ; ELMo], with ELMo at its input, output or both.

A frozen biLM has run already when a batch is made: only the mixes of its layers are part of the network then.

Shapes: B sentences, T tokens, L layers, D width of a layer, E width of a word vector, W ids per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from elmokit.config import build, check_dropout
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.model.elmo import LayerMixes
from elmokit.model.scalar_mix import ScalarMix

T = TypeVar("T")
Place = Literal["input", "output", "both"]
PADDING, UNKNOWN = 0, 1  # rows of the word table


class Padded(NamedTuple):
    """One group of sentences of a batch."""

    tokens: list[list[str]]
    words: Tensor  # [B, T], rows of the word table; 0 where padded
    mask: Tensor  # [B, T]
    layers: Tensor | None = None  # [L, B, T, D] of the frozen biLM
    ids: Tensor | None = None  # [B, T, W], where the biLM is trained


class Vectors(NamedTuple):
    at_input: Tensor  # [B, T, width], after dropout
    at_output: Tensor | None  # [B, T, D], to be joined to the task RNN's output
    mask: Tensor  # [B, T]


@dataclass(frozen=True)
class InputConfig:
    """The paper's experiments."""

    place: Place = "input"
    which_layers: str = "all"  # all, last, mean, or a layer's number
    penalty: float = 0.001  # lambda
    elmo_dropout: float = 0.5
    train_bilm: bool = False
    tune_vectors: bool = False
    word_width: int = 100  # of vectors that are learned, where none are given
    word_dropout: float = 0.2

    def __post_init__(self) -> None:
        if self.which_layers not in ("all", "last", "mean") and not self.which_layers.isdigit():
            raise UserError(
                f"which_layers: expected all, last, mean or a layer's number, found {self.which_layers!r}"
            )
        check_dropout(elmo_dropout=self.elmo_dropout, word_dropout=self.word_dropout)

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> InputConfig:
        """From task.json or run.json; 0.1.0 wrote `layers` for which_layers."""
        names = {"layers": "which_layers"}
        return build(cls, {names.get(key, key): value for key, value in table.items()}, "inputs")


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
        self.word_dropout = nn.Dropout(config.word_dropout)
        self.places: tuple[str, ...] = ()
        self.elmo_width = 0
        self.elmo: LayerMixes | None = None  # one mix for each place
        if elmo is not None:
            self.places = ("input", "output") if config.place == "both" else (config.place,)
            self.elmo_width = elmo.width
            self.elmo = elmo_layer(elmo, len(self.places), config)

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
        mixed = dict(zip(self.places, self._mixes(sentence)))
        if "input" in mixed:
            x = torch.cat([x, mixed["input"]], dim=-1)
        return Vectors(x, mixed.get("output"), sentence.mask)

    def _mixes(self, sentence: Padded) -> tuple[Tensor, ...]:  # [B, T, D] each
        if self.elmo is None:
            return ()
        if sentence.layers is not None:
            return self.elmo.mix(sentence.layers, sentence.mask, boundaries=False).mixes
        mixes: tuple[Tensor, ...] = self.elmo(sentence.ids).mixes
        return mixes

    def penalty(self) -> Tensor:
        """lambda * ||w||^2 of all mixes."""
        return torch.zeros(()) if self.elmo is None else self.elmo.penalty()

    def shares(self) -> dict[str, dict[str, list[float] | float]]:
        """The learned s_j and gamma of every place, for a reader."""
        table: dict[str, dict[str, list[float] | float]] = {}
        for place, mix in zip(self.places, self.elmo.mixes if self.elmo is not None else ()):
            assert isinstance(mix, ScalarMix)
            table[place] = {
                "layers": list(mix.which_layers),
                "s": mix.shares().detach().tolist(),
                "gamma": float(mix.gamma.detach()),
            }
        return table


def elmo_layer(elmo: Elmo, places: int, config: InputConfig) -> LayerMixes:
    """The ELMo layer with its biLM where that is trained; without it where its layers come with the batch."""
    chosen = chosen_layers(elmo.layers, config.which_layers)
    if config.train_bilm:
        layer: LayerMixes = elmo.layer(
            places,
            which_layers=chosen,
            regularizer=config.penalty,
            dropout=config.elmo_dropout,
            train_bilm=True,
        )
    else:
        mixes = (ScalarMix(elmo.layers, which_layers=chosen, regularizer=config.penalty) for _ in range(places))
        layer = LayerMixes(mixes, dropout=config.elmo_dropout)
    if config.which_layers == "mean":
        for mix in layer.mixes:
            assert isinstance(mix, ScalarMix)
            mix.weights.requires_grad_(False)  # gamma is still learned
    return layer


def chosen_layers(layers: int, which_layers: str) -> list[int] | None:
    """Of so many layers those that are mixed; None is all."""
    if which_layers == "last":
        return [layers - 1]
    if not which_layers.isdigit():
        return None
    if int(which_layers) >= layers:
        raise UserError(f"which_layers: this model has layers 0 to {layers - 1}, found {which_layers}")
    return [int(which_layers)]


def present_tensor_names(tensors: Mapping[str, T], places: Sequence[str]) -> dict[str, T]:
    """0.1.0 named the mixes by their places, and had a trained biLM beside them."""
    names = {f"inputs.mixes.{place}.": f"inputs.elmo.mixes.{number}." for number, place in enumerate(places)}
    names["inputs.bilm."] = "inputs.elmo.bilm."

    def present(name: str) -> str:
        for old, new in names.items():
            name = name.replace(old, new)
        return name

    return {present(name): tensor for name, tensor in tensors.items()}
