"""`Elmo`: a model that is ready to read. Sentences in, one array of vectors per sentence out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.checkpoint import Checkpoint, StoredWeights
from elmokit.embed.token_layer import TokenLayer
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMOutput
from elmokit.model.elmo import ElmoLayer
from elmokit.model.kernels.cache import optimistic
from elmokit.model.kernels.layers import WEIGHT_FORMATS, WeightFormat
from elmokit.model.recipe import load_model_recipe
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.seeding import seeded
from elmokit.model.state import CarryState, StateName, StatePolicy, WarmState, ZeroState
from elmokit.sources import open_checkpoint
from elmokit.text.batches import batches_by_length, pad, windows
from elmokit.text.tokens import TokenizerConfig, make_tokenizer

Sentence = str | Sequence[str]  # text, or its tokens
WhichLayers = int | Literal["all", "mean"] | Sequence[float] | ScalarMix
Pooling = Literal["mean", "max"]
Array = NDArray[Any]
DType = Literal["float32", "float16"] | np.dtype[Any] | type[np.floating[Any]]

BATCH_TOKENS = 4096
# Sentences are sorted by length within a window of so many batches: long enough that little is padded,
# short enough that memory stays small whatever the size of the corpus.
BATCHES_PER_WINDOW = 8


class Elmo:
    """
    state         what the LSTMs remember when a sentence begins: "zero", nothing (the default: a sentence's
                  vectors depend on that sentence alone); "carry", the sentence before it, also across calls
                  (the original's behaviour); "warm", the `warm_text`, read once.
    tokenizer     a tokenizer's name, instead of the model's own.
    batch_tokens  padded tokens in one batch: the budget that bounds memory.
    weights       how the LSTMs' weights are kept in memory: "float32"; "float16" or "int8" to read fewer bytes,
                  which is faster for a few sentences at a time and not exact (docs/performance.md).
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        state: StateName = "zero",
        warm_text: Sequence[Sentence] | None = None,
        tokenizer: str | TokenizerConfig | None = None,
        device: str | torch.device = "cpu",
        batch_tokens: int = BATCH_TOKENS,
        weights: WeightFormat = "float32",
    ) -> None:
        if batch_tokens < 1:
            raise UserError(f"batch_tokens: expected 1 or more, found {batch_tokens}")
        if isinstance(tokenizer, str):
            tokenizer = TokenizerConfig(tokenizer, checkpoint.tokenizer.normalize)
        if weights not in WEIGHT_FORMATS:
            raise UserError(f"weights: expected {', '.join(WEIGHT_FORMATS)}, found {weights!r}")
        self._checkpoint = checkpoint
        self._bilm = _moved(checkpoint.bilm, device).eval()
        self._bilm.weights, self._bilm.private = weights, False  # whoever made the checkpoint has it, too
        self.mapper = checkpoint.mapper
        self.tokenizer = make_tokenizer(tokenizer or checkpoint.tokenizer)
        self.batch_tokens = batch_tokens
        self.token_layer = TokenLayer(self._bilm, self.mapper)
        self.state_name = state
        self.state = self._state_policy(state, warm_text)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, **options: Any) -> Elmo:
        """A folder (elmokit's own, bilm-tf's/AllenNLP's or ELMoForManyLangs'), a bundled model by name, or a model
        on the Hugging Face Hub: "owner/name", of a `revision` (a branch, a tag or a commit hash) if given.
        """
        return cls._owning(open_checkpoint(source, revision), **options)

    @classmethod
    def from_original(
        cls, options_file: str | Path, weight_file: str | Path, *, published: bool = True, **options: Any
    ) -> Elmo:
        """The published pair. `published` spells tokens bit for bit as the original software did."""
        from elmokit.formats.bilm_hdf5 import read_bilm

        return cls._owning(read_bilm(options_file, weight_file, published=published), **options)

    @classmethod
    def from_recipe(cls, recipe: str | Path, *, seed: int = 0, **options: Any) -> Elmo:
        """A freshly initialized model: the shapes of the recipe, random weights."""
        settings = load_model_recipe(recipe)
        with seeded(seed):
            bilm = BiLM(settings.model)
        return cls._owning(Checkpoint(bilm, settings.mapper, settings.tokenizer), **options)

    @classmethod
    def from_vectors(
        cls,
        vectors: str | Path,
        recipe: str | Path,
        *,
        limit: int | None = None,
        trainable: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> Elmo:
        """A fresh biLM whose x_k are word2vec, GloVe or fastText vectors instead of characters."""
        from elmokit.formats.word_vectors import bilm_from_vectors

        checkpoint = bilm_from_vectors(
            vectors, load_model_recipe(recipe), limit=limit, trainable=trainable, seed=seed
        )
        return cls._owning(checkpoint, **options)

    @classmethod
    def _owning(cls, checkpoint: Checkpoint, **options: Any) -> Elmo:
        elmo = cls(checkpoint, **options)
        elmo._bilm.private = True  # until it is handed out: see `bilm`
        return elmo

    @property
    def bilm(self) -> BiLM:
        """The model itself, to look into or to edit.

        Edits through `.data` or NumPy leave no trace but in the bytes of the weights. So from here on these are
        hashed with every call, which costs a sentence by itself a fifth and more (benchmarks/weight_check.py).
        """
        self._bilm.private = False
        return self._bilm

    @property
    def checkpoint(self) -> Checkpoint:
        """The model with all that belongs to it; as of `bilm`, it may be edited from here on."""
        self._bilm.private = False
        return self._checkpoint

    @property
    def width(self) -> int:
        """D, the size of a vector."""
        return self._bilm.config.width

    @property
    def layers(self) -> int:
        """How many there are: the token layer and the LSTM layers."""
        return self._bilm.config.layers

    def save(self, folder: str | Path, *, weights: StoredWeights = "float32", overwrite: bool = False) -> None:
        self._checkpoint.save(folder, weights=weights, overwrite=overwrite)

    def layer(self, places: int = 1, **options: Any) -> ElmoLayer:
        """The ELMo layer over this biLM, for a model of your own; takes `ids`."""
        return ElmoLayer(self.bilm, self.mapper, places, **options)

    def ids(self, sentences: Sequence[Sentence]) -> Tensor:
        """ids [B, T, W] of whole sentences without boundaries, padded with zeros: the ELMo layer's input."""
        return torch.from_numpy(pad(self.mapper, self._tokenize_all(sentences), boundaries=False))

    def tokens(self, sentence: Sentence) -> list[str]:
        """The tokens that a sentence is read as."""
        if isinstance(sentence, str):
            return self.tokenizer.tokens(sentence)
        for token in sentence:
            if not isinstance(token, str):
                raise UserError(f"expected a sentence as text or as a list of tokens, found {token!r} in it")
        return self.tokenizer.clean(list(sentence))

    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
    ) -> list[Array]:
        """One array per sentence: [layers, T, D] for "all", else [T, D]; without T where pooled.

        layers      "all"; a number, the token layer being 0; "mean"; weights, one per layer, used as given; or
                    a ScalarMix, whose softmax and gamma are used.
        pooling     one vector for the sentence: "mean" or "max" over its tokens; zeros where it has none.
        boundaries  keep the vectors of <S> and </S>, first and last.
        """
        return list(self.stream(sentences, layers=layers, pooling=pooling, dtype=dtype, boundaries=boundaries))

    def stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
    ) -> Iterator[Array]:
        """As `embed`, but from any iterable, one array at a time: memory does not grow with the corpus."""
        self.check(layers, pooling, dtype)
        dtype = np.dtype(dtype)
        if isinstance(sentences, str):
            raise UserError("expected a list of sentences, found one string: put it in a list")
        return self._stream(sentences, layers, pooling, dtype, boundaries)

    def _stream(
        self,
        sentences: Iterable[Sentence],
        which_layers: WhichLayers,
        pooling: Pooling | None,
        dtype: np.dtype[Any],
        boundaries: bool,
    ) -> Iterator[Array]:
        for window in windows((self.tokens(sentence) for sentence in sentences), self.window_tokens):
            arrays: dict[int, Array] = {}
            for batch in self._batches(window):
                vectors = self._run([window[i] for i in batch], which_layers, pooling, boundaries)
                for i, vector in zip(batch, vectors):
                    arrays[i] = vector.numpy().astype(dtype)  # a copy: the batch itself need not stay
            for i in range(len(window)):
                yield arrays.pop(i)

    @property
    def window_tokens(self) -> int:
        """Sentences of about so many tokens are held, sorted and embedded together."""
        return self.batch_tokens * BATCHES_PER_WINDOW

    def check(self, which_layers: WhichLayers, pooling: str | None, dtype: DType) -> None:
        """Refuse at once what would fail after the first batch."""
        _combine(torch.zeros(self.layers, 1, 1, self.width), which_layers)
        if pooling not in (None, "mean", "max"):
            raise UserError(f'pooling: expected None, "mean" or "max", found {pooling!r}')
        try:
            known = np.dtype(dtype) in (np.float32, np.float16)
        except TypeError:
            known = False
        if not known:
            raise UserError(f'dtype: expected "float32" or "float16", found {dtype!r}')

    def _tokenize_all(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        return [self.tokens(sentence) for sentence in sentences]

    def _batches(self, window: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        if self.state_name == "carry":  # one stream, in the order of the text
            return ([i] for i in range(len(window)))
        return batches_by_length([len(sentence) + 2 for sentence in window], self.batch_tokens)

    @torch.inference_mode()
    def _run(
        self, sentences: list[list[str]], which_layers: WhichLayers, pooling: Pooling | None, boundaries: bool
    ) -> list[Tensor]:
        before = self.state.before(len(sentences))
        ends = boundaries or self.state_name == "carry"

        # What was kept of words and weights is used while it is seen to that no weight has changed.
        def compute() -> BiLMOutput:
            return self._bilm.contextualize(*self.token_layer(sentences), before, ends=ends)

        output = optimistic(compute, private=self._bilm.private)
        self.state.after(output.state)
        mixed = _combine(output.layers, which_layers).cpu()  # [layers, B, T, D] or [B, T, D]
        vectors = []
        for row, sentence in enumerate(sentences):
            inside = slice(0, len(sentence) + 2) if boundaries else slice(1, len(sentence) + 1)
            vectors.append(_pool(mixed[..., row, inside, :], pooling))
        return vectors

    def _state_policy(self, name: str, warm_text: Sequence[Sentence] | None) -> StatePolicy:
        if (name == "warm") != (warm_text is not None):
            raise UserError('state="warm" and warm_text go together: give both or neither')
        if name == "zero":
            return ZeroState()
        if name == "carry":
            return CarryState(self._bilm)
        if name == "warm":
            assert warm_text is not None
            carry = CarryState(self._bilm)
            with torch.inference_mode():
                for sentence in self._tokenize_all(warm_text):
                    output = self._bilm.contextualize(*self.token_layer([sentence]), carry.before(1))
                    carry.after(output.state)
            if carry.state is None:
                raise UserError("warm_text: expected at least one sentence, found none")
            return WarmState(carry.state)
        raise UserError(f'state: expected "zero", "carry" or "warm", found {name!r}')


def _moved(bilm: BiLM, device: str | torch.device) -> BiLM:
    try:
        return bilm.to(device)
    except (RuntimeError, AssertionError) as error:  # torch's ways to say that there is none
        raise UserError(f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}") from None


def _combine(layers: Tensor, which_layers: WhichLayers) -> Tensor:  # [L, B, T, D] -> the same, or [B, T, D]
    if isinstance(which_layers, ScalarMix):
        if which_layers.layer_norm == "batch":
            raise UserError('a ScalarMix with layer_norm="batch" makes vectors depend on the batch: use "token"')
        mixed: Tensor = which_layers.to(layers.device)(layers)
        return mixed
    if isinstance(which_layers, str):
        if which_layers not in ("all", "mean"):
            raise UserError(f'layers: expected "all", "mean", a number or weights, found {which_layers!r}')
        return layers if which_layers == "all" else layers.mean(dim=0)
    if isinstance(which_layers, (int, np.integer)) and not isinstance(which_layers, bool):
        if not -len(layers) <= which_layers < len(layers):
            raise UserError(f"layers: this model has layers 0 to {len(layers) - 1}, found {which_layers}")
        return layers[int(which_layers)]
    try:
        weights = np.asarray(which_layers, dtype=np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, dtype=np.float32)
    if weights.shape != (len(layers),) or not np.isfinite(weights).all():
        raise UserError(f"layers: expected {len(layers)} finite weights, one per layer, found {which_layers!r}")
    return torch.einsum("l,lbtd->btd", torch.from_numpy(weights).to(layers.device), layers)


def _pool(vectors: Tensor, pooling: Pooling | None) -> Tensor:  # [..., T, D] -> [..., D]
    if pooling is None:
        return vectors
    if vectors.shape[-2] == 0:
        return vectors.new_zeros(*vectors.shape[:-2], vectors.shape[-1])
    return vectors.mean(dim=-2) if pooling == "mean" else vectors.amax(dim=-2)
