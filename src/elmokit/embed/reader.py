"""Sentences -> vectors, in batches of like length, within a budget of memory, from the state that was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.pooling import DType, Pooling, WhichLayers, check_dtype, check_pooling, combine, layer_mix, pool
from elmokit.embed.sentences import Sentence, by_number, check_sentence, checked_sentences
from elmokit.embed.token_layer import TokenLayer
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.kernels.cache import optimistic, weights_of
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.kernels.reading import Mix, packed_model, read
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.state import CarryState, StatePolicy, state_policy
from elmokit.text.batches import batches_by_length, windows
from elmokit.text.characters import TokenMapper
from elmokit.text.tokens import Tokenizer

Array = NDArray[Any]

BATCH_TOKENS = 4096
# Sentences are sorted by length within a window of so many batches: long enough that little is padded,
# short enough that memory stays small whatever the size of the corpus.
BATCHES_PER_WINDOW = 8


class Reader:
    """What reads text: a biLM with its mapper and tokenizer, and the state in which a sentence begins."""

    def __init__(self, bilm: BiLM, mapper: TokenMapper, tokenizer: Tokenizer, batch_tokens: int) -> None:
        if batch_tokens < 1:
            raise UserError(f"batch_tokens: expected 1 or more, found {batch_tokens}")
        self._bilm, self.mapper, self.tokenizer, self.batch_tokens = bilm, mapper, tokenizer, batch_tokens
        self.token_layer = TokenLayer(bilm, mapper)
        self.state_name = "zero"
        self.state: StatePolicy = state_policy("zero", bilm)

    def begin_from(self, name: str, warm_text: Sequence[Sentence] | None = None) -> None:
        """Choose what the LSTMs remember when a sentence begins."""
        if (name == "warm") != (warm_text is not None):
            raise UserError('state="warm" and warm_text go together: give both or neither')
        self.state = state_policy(name, self._bilm, None if warm_text is None else self._warmed(warm_text))
        self.state_name = name

    @property
    def width(self) -> int:
        """D, the size of a vector."""
        return self._bilm.config.width

    @property
    def layers(self) -> int:
        """How many there are: the token layer and the LSTM layers."""
        return self._bilm.config.layers

    @property
    def device(self) -> torch.device:
        return next(self._bilm.parameters()).device

    def tokens(self, sentence: Sentence) -> list[str]:
        """The tokens that a sentence is read as."""
        if isinstance(sentence, str):
            return self.tokenizer.tokens(sentence)
        check_sentence(sentence)
        return self.tokenizer.clean(list(sentence))

    def _stream(
        self,
        sentences: Iterable[Sentence],
        which_layers: WhichLayers,
        pooling: Pooling | None,
        dtype: np.dtype[Any],
        boundaries: bool,
        batch_size: int | None = None,
    ) -> Iterator[Array]:
        for window in windows(by_number(self.tokens, sentences), self.window_tokens):
            arrays: dict[int, Array] = {}
            for batch in self._batches(window, batch_size or len(window)):
                vectors = self.embed_batch([window[i] for i in batch], which_layers, pooling, boundaries)
                for i, vector in zip(batch, vectors):
                    arrays[i] = vector.astype(dtype, copy=False)
            for i in range(len(window)):
                yield arrays.pop(i)

    @property
    def window_tokens(self) -> int:
        """Sentences of about so many tokens are held, sorted and embedded together."""
        return self.batch_tokens * BATCHES_PER_WINDOW

    def check(self, which_layers: WhichLayers, pooling: str | None, dtype: DType) -> None:
        """Refuse at once what would fail after the first batch."""
        layer_mix(which_layers, self.layers)
        check_pooling(pooling)
        check_dtype(dtype)

    def _tokenize_all(self, sentences: Iterable[Sentence]) -> list[list[str]]:
        return list(by_number(self.tokens, checked_sentences(sentences)))

    def _batches(self, window: Sequence[Sequence[str]], most: int) -> Iterator[list[int]]:
        if self.state_name == "carry":  # one stream, in the order of the text
            yield from ([i] for i in range(len(window)))
            return
        for batch in batches_by_length([len(sentence) + 2 for sentence in window], self.batch_tokens):
            yield from (batch[first : first + most] for first in range(0, len(batch), most))

    @torch.inference_mode()
    def embed_batch(
        self,
        sentences: list[list[str]],
        which_layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        boundaries: bool = False,
    ) -> list[Array]:
        """Tokens of sentences as `tokens` gives them, read together: for those who make batches of their own.

        Each sentence's vectors are in memory of their own: the batch itself need not stay.
        """
        before = self.state.before(len(sentences))
        after = self._bilm.zero_state(len(sentences)) if self.state.carries else None
        mix = layer_mix(which_layers, self.layers)
        arrays = self._read(sentences, before, after, boundaries, mix)
        if arrays is None:
            return self._run_modules(sentences, before, which_layers, pooling, boundaries)
        if after is not None:
            self.state.after(after)
        if isinstance(which_layers, ScalarMix) and mix is None:  # it normalizes the layers first
            arrays = [combine(torch.from_numpy(array)[:, None], which_layers)[0].numpy() for array in arrays]
        if pooling is not None:
            arrays = [pool(torch.from_numpy(array), pooling).numpy() for array in arrays]
        return arrays

    def _read(
        self,
        sentences: list[list[str]],
        before: BiLMState | None,
        after: BiLMState | None = None,
        boundaries: bool = False,
        mix: Mix | None = None,
    ) -> list[Array] | None:
        """All in one call of the library; None where it cannot."""
        weights = weights_of(self._bilm)
        if path_for(*weights, *(before or ())) is not Path.NATIVE_INFERENCE:
            return None

        # What was kept of words and weights is used while it is seen to that no weight has changed.
        def compute() -> list[Array]:
            model = packed_model(self._bilm, weights)
            with self.token_layer.placed(sentences, model.encoder) as tokens:
                return list(read(model, tokens, before, after, boundaries=boundaries, mix=mix))

        return optimistic(compute, private=self._bilm.private)

    def _run_modules(
        self,
        sentences: list[list[str]],
        before: BiLMState | None,
        which_layers: WhichLayers,
        pooling: Pooling | None,
        boundaries: bool,
    ) -> list[Array]:
        """As `embed_batch`, module by module: without the library, or on another device."""
        output = self._bilm.contextualize(
            *self.token_layer(sentences), before, ends=boundaries or self.state.carries
        )
        self.state.after(output.state)
        mixed = combine(output.layers, which_layers).cpu()  # [layers, B, T, D] or [B, T, D]
        vectors = []
        for row, sentence in enumerate(sentences):
            inside = slice(0, len(sentence) + 2) if boundaries else slice(1, len(sentence) + 1)
            vectors.append(pool(mixed[..., row, inside, :], pooling).numpy().copy())
        return vectors

    @torch.inference_mode()
    def _warmed(self, text: Sequence[Sentence]) -> BiLMState:
        carry = CarryState(self._bilm)
        for sentence in self._tokenize_all(text):
            before, after = carry.before(1), self._bilm.zero_state(1)
            if self._read([sentence], before, after) is None:
                after = self._bilm.contextualize(*self.token_layer([sentence]), before).state
            carry.after(after)
        if carry.state is None:
            raise UserError("warm_text: expected at least one sentence, found none")
        return carry.state
