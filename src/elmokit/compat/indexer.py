"""AllenNLP's `ELMoTokenCharactersIndexer`, `ELMoCharacterMapper` and `batch_to_ids`: tokens -> character ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import UserError
from elmokit.text.batches import pad
from elmokit.text.characters import BOS, BOW, EOS, EOW, MASK_SHIFT, PAD, ByteMapper, write_word

WIDTH = 50
PUBLISHED = ByteMapper(max_characters_per_token=WIDTH, published=True)


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Tokenized sentences -> character ids [B, T, 50], zeros where a sentence has ended."""
    return ids_of(PUBLISHED, batch)


def ids_of(mapper: ByteMapper, batch: Sequence[Sequence[str]]) -> Tensor:
    if isinstance(batch, str) or any(isinstance(sentence, str) for sentence in batch):
        raise UserError("expected lists of tokens, found a string where a list should be: split it first")
    return torch.from_numpy(pad(mapper, batch, boundaries=False))


class _OnClassToo:
    """A method that may be called on the class too, as it was in AllenNLP 0.3."""

    def __init__(self, method: Any) -> None:
        self.method = method

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.method.__get__(owner() if instance is None else instance, owner)


class ELMoCharacterMapper:
    """A word -> its 50 character ids, shifted by one so that 0 is left for padding.

    tokens_to_add    words that are spelled by one id of your choice.
    """

    max_word_length = WIDTH
    beginning_of_sentence_character = BOS
    end_of_sentence_character = EOS
    beginning_of_word_character = BOW
    end_of_word_character = EOW
    padding_character = PAD
    beginning_of_sentence_characters: ClassVar = [int(i) for i in PUBLISHED.begin - MASK_SHIFT]
    end_of_sentence_characters: ClassVar = [int(i) for i in PUBLISHED.end - MASK_SHIFT]
    bos_token, eos_token = "<S>", "</S>"

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    @_OnClassToo
    def convert_word_to_char_ids(self, word: str) -> list[int]:
        row = np.zeros(WIDTH, dtype=np.int64)
        if word in self.tokens_to_add:
            write_word(row, np.array([self.tokens_to_add[word]]))
        else:
            PUBLISHED.fill(row, word)
        return [int(i) for i in row]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and self.tokens_to_add == other.tokens_to_add

    __hash__ = None  # type: ignore[assignment]


class ELMoTokenCharactersIndexer:
    """Tokens -> {"elmo_tokens": their character ids}, without AllenNLP's vocabulary and registry.

    A token is text, or has it as `.text`. Where AllenNLP 0.9 gave the output's name (`index_name`), so may you.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace = namespace
        self._mapper = ELMoCharacterMapper(tokens_to_add)
        self._token_min_padding_length = token_min_padding_length

    def count_vocab_items(self, token: Any, counter: Any) -> None:
        """Characters need no vocabulary."""

    def get_empty_token_list(self) -> dict[str, list[list[int]]]:
        return {"elmo_tokens": []}

    def tokens_to_indices(
        self, tokens: Sequence[Any], vocabulary: Any = None, index_name: str = "elmo_tokens"
    ) -> dict[str, list[list[int]]]:
        if isinstance(tokens, str):
            raise UserError("expected a list of tokens, found a string: split it first")
        return {index_name: [self._mapper.convert_word_to_char_ids(_text(token)) for token in tokens]}

    def get_padding_lengths(self, indexed_tokens: Mapping[str, Sequence[Any]]) -> dict[str, int]:
        return {name: max(len(rows), self._token_min_padding_length) for name, rows in indexed_tokens.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, Sequence[Sequence[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Each list of ids as a tensor [T, 50] of the given length: zeros after it, or cut."""
        return {name: _padded(rows, padding_lengths[name]) for name, rows in tokens.items()}

    def as_padded_tensor(
        self,
        tokens: Mapping[str, Sequence[Sequence[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int] | None = None,
    ) -> dict[str, Tensor]:
        """AllenNLP 0.9's name for it."""
        return self.as_padded_tensor_dict(tokens, desired_num_tokens)

    def token_to_indices(self, token: Any, vocabulary: Any = None) -> list[int]:
        """AllenNLP 0.3: one token's ids."""
        return self.tokens_to_indices([token])["elmo_tokens"][0]

    def pad_token_sequence(
        self, tokens: Sequence[Sequence[int]], desired_num_tokens: int, padding_lengths: Any = None
    ) -> list[list[int]]:
        """AllenNLP 0.3: rows of ids, as many as desired."""
        return cast("list[list[int]]", _padded(tokens, desired_num_tokens).tolist())


def _text(token: Any) -> str:
    text = token if isinstance(token, str) else getattr(token, "text", None)
    if not isinstance(text, str):
        raise UserError(f"expected a token's text, or a token with a text, found {token!r}")
    return text


def _padded(rows: Sequence[Sequence[int]], length: int) -> Tensor:
    padded = torch.zeros(length, WIDTH, dtype=torch.long)
    if rows[:length]:
        padded[: len(rows)] = torch.tensor(rows[:length])
    return padded
