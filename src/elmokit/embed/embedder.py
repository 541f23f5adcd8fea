"""`Elmo`: a model that is ready to read. Sentences in, one array of vectors per sentence out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from elmokit.checkpoint import Checkpoint, StoredWeights
from elmokit.embed.origin import Origin, absolute
from elmokit.embed.pooling import DType, Pooling, WhichLayers
from elmokit.embed.reader import BATCH_TOKENS, Array, Reader
from elmokit.embed.sentences import Sentence, checked_sentences
from elmokit.embed.similarity import Matrix, are_vectors, as_matrix, cosines, unit_rows
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM
from elmokit.model.elmo import ElmoLayer
from elmokit.model.kernels.forking import prepare_for_forks
from elmokit.model.kernels.library import units, variant
from elmokit.model.kernels.packing import WEIGHT_FORMATS, WeightFormat
from elmokit.model.kernels.precision import Weights, fastest
from elmokit.model.recipe import load_model_recipe
from elmokit.model.seeding import seeded
from elmokit.model.state import StateName, state_policy
from elmokit.progress import silent, terminal_bar, watched
from elmokit.sources import open_checkpoint
from elmokit.text.batches import pad
from elmokit.text.tokens import TokenizerConfig, make_tokenizer, tokenizer_for


class Elmo(Reader):
    """
    state         what the LSTMs remember when a sentence begins: "zero", nothing (the default: a sentence's
                  vectors depend on that sentence alone); "carry", the sentence before it, also across calls
                  (the original's behaviour); "warm", the `warm_text`, read once.
    tokenizer     a tokenizer's name, instead of the model's own: "whitespace" for text that is tokenized already;
                  one that cuts otherwise than the model has learned comes with a warning.
    batch_tokens  padded tokens in one batch: the budget that bounds memory.
    weights       what the model computes with: "float32"; "bfloat16" or "int8", faster where the processor has
                  them, and not exact; "float16", stored in half the memory; "auto", the fastest that keeps every
                  probe of the bundled models within 0.1 points (docs/performance.md).
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
        weights: Weights = "float32",
    ) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise UserError(
                f"Elmo({checkpoint!r}): a model is opened by its name or folder with "
                f"Elmo.from_pretrained({str(checkpoint)!r})"
                if isinstance(checkpoint, (str, Path))
                else f"Elmo: expected a Checkpoint, found {type(checkpoint).__name__}: see Elmo.from_pretrained"
            )
        if weights == "auto":
            weights = fastest(variant(), units())
        if weights not in WEIGHT_FORMATS:
            raise UserError(f"weights: expected {', '.join(WEIGHT_FORMATS)} or auto, found {weights!r}")
        prepare_for_forks()
        bilm = _moved(checkpoint.bilm, device).eval()
        bilm.weights, bilm.private = weights, False  # whoever made the checkpoint has it, too
        super().__init__(bilm, checkpoint.mapper, tokenizer_for(checkpoint.tokenizer, tokenizer), batch_tokens)
        self.begin_from(state, warm_text)
        self._checkpoint = checkpoint
        self._origin: Origin | str = "in memory"

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, **options: Any) -> Elmo:
        """A folder (elmokit's own, bilm-tf's/AllenNLP's or ELMoForManyLangs'), a bundled model by name, or a model
        on the Hugging Face Hub: "owner/name", of a `revision` (a branch, a tag or a commit hash) if given.
        """
        checkpoint, origin = open_checkpoint(source, revision), (absolute(source), revision)
        return cls._owning(checkpoint, Origin(str(source), open_checkpoint, origin), **options)

    @classmethod
    def from_original(
        cls, options_file: str | Path, weight_file: str | Path, *, published: bool = True, **options: Any
    ) -> Elmo:
        """The published pair. `published` spells tokens bit for bit as the original software did."""
        from elmokit.formats.bilm_hdf5 import read_bilm

        read = partial(read_bilm, published=published)
        origin = Origin(str(weight_file), read, (absolute(options_file), absolute(weight_file)))
        return cls._owning(read(options_file, weight_file), origin, **options)

    @classmethod
    def from_recipe(cls, recipe: str | Path, *, seed: int = 0, **options: Any) -> Elmo:
        """A freshly initialized model: the shapes of the recipe, random weights."""
        settings = load_model_recipe(recipe)
        with seeded(seed):
            bilm = BiLM(settings.model)
        checkpoint = Checkpoint(bilm, settings.mapper, settings.tokenizer)
        return cls._owning(checkpoint, f"{recipe}, untrained", **options)

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
        return cls._owning(checkpoint, f"{recipe} on {vectors}, untrained", **options)

    @classmethod
    def _owning(cls, checkpoint: Checkpoint, origin: Origin | str, **options: Any) -> Elmo:
        elmo = cls(checkpoint, **options)
        elmo._bilm.private = True  # until it is handed out: see `bilm`
        elmo._origin = origin
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
    def digest(self) -> str:
        """Of the function from tokens to vectors: the same for equal models, wherever they are."""
        return self._checkpoint.digest

    @property
    def predicts(self) -> bool:
        """Whether it has the softmax over a vocabulary that `fill`, `score` and `perplexity` need."""
        return self._checkpoint.head is not None and self._checkpoint.vocabulary is not None

    @property
    def weights(self) -> WeightFormat:
        """What it computes with: float32, bfloat16, float16 or int8."""
        return self._bilm.weights

    def save(self, folder: str | Path, *, weights: StoredWeights = "float32", overwrite: bool = False) -> None:
        self._checkpoint.save(folder, weights=weights, overwrite=overwrite)

    def layer(self, places: int = 1, **options: Any) -> ElmoLayer:
        """The ELMo layer over this biLM, for a model of your own; takes `ids`."""
        return ElmoLayer(self.bilm, self.mapper, places, **options)

    def ids(self, sentences: Sequence[Sentence]) -> Tensor:
        """ids [B, T, W] of whole sentences without boundaries, padded with zeros: the ELMo layer's input."""
        return torch.from_numpy(pad(self.mapper, self._tokenize_all(sentences), boundaries=False))

    def encode(
        self,
        texts: str | Iterable[Sentence],
        *,
        layers: WhichLayers = "mean",
        pooling: Pooling = "mean",
        normalize: bool = False,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Matrix:
        """One vector for each text, in order: [number of texts, width], float32. Of a single string, [width].

        texts          a list, an array or a column of a table: strings, or lists of tokens.
        layers         the layers' "mean", one layer by its number, weights or a ScalarMix.
        pooling        "mean" or "max" over a text's tokens; a text without tokens is all zeros.
        normalize      vectors of length 1: their dot products are cosines.
        batch_size     at most so many texts at a time, within `batch_tokens`; no vector depends on it.
        show_progress  a bar on standard error.
        """
        if isinstance(layers, str) and layers == "all":
            raise UserError(
                'encode gives a text one vector: expected layers="mean", a number or weights, found "all"; '
                'embed(texts, pooling="mean", matrix=True) gives [texts, layers, width]'
            )
        if pooling is None:
            raise UserError('encode gives a text one vector: expected pooling="mean" or "max", found None')
        self.check(layers, pooling, "float32")
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size: expected 1 or more, found {batch_size}")
        if isinstance(texts, str):
            only: Matrix = self.encode([texts], layers=layers, pooling=pooling, normalize=normalize)[0]
            return only
        given = checked_sentences(texts)
        if not isinstance(given, Sized):
            given = list(given)
        rows = self._stream(given, layers, pooling, np.dtype(np.float32), False, batch_size)
        matrix = np.empty((len(given), self.width), dtype=np.float32)
        with terminal_bar() if show_progress else nullcontext(silent) as on_progress:
            for i, row in enumerate(watched(rows, len(given), "encoding", on_progress)):
                matrix[i] = row
        return unit_rows(matrix) if normalize else matrix

    def similarity(self, a: Any, b: Any, **options: Any) -> Matrix:
        """Cosines [number of a, number of b]: each a text, texts, or vectors that `encode` gave.

        Texts are encoded first, with the options of `encode`. What has no direction (an empty text) has cosine 0.
        """
        return cosines(*(as_matrix(x if are_vectors(x) else self.encode(x, **options)) for x in (a, b)))

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: Literal[True],
    ) -> Array: ...

    def embed(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
        boundaries: bool = False,
        matrix: bool = False,
    ) -> list[Array] | Array:
        """One array per sentence: [layers, T, D] for "all", else [T, D]; without T where pooled.

        layers      "all"; a number, the token layer being 0; "mean"; weights, one per layer, used as given; or
                    a ScalarMix, whose softmax and gamma are used.
        pooling     one vector for the sentence: "mean" or "max" over its tokens; zeros where it has none.
        boundaries  keep the vectors of <S> and </S>, first and last.
        matrix      where pooled, one array for all sentences, the first axis: [N, layers, D] or [N, D].
        """
        arrays = list(self.stream(sentences, layers=layers, pooling=pooling, dtype=dtype, boundaries=boundaries))
        if not matrix:
            return arrays
        if pooling is None:
            raise UserError('matrix=True: sentences differ in length: choose pooling="mean" or "max" too')
        shape = (self.layers, self.width) if isinstance(layers, str) and layers == "all" else (self.width,)
        return np.stack(arrays) if arrays else np.empty((0, *shape), dtype)

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
        return self._stream(checked_sentences(sentences), layers, pooling, dtype, boundaries)

    def __repr__(self) -> str:
        name = self._origin if isinstance(self._origin, str) else self._origin.name
        return (
            f"Elmo({name}: {self.layers} layers, {self.width} wide, tokenizer {self.tokenizer.name}, "
            f"state {self.state_name}, weights {self._bilm.weights}, on {self.device})\n"
            "  .encode(texts): a vector per text; .similarity(a, b): cosines; .embed(texts): a vector per token"
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "device": str(self.device),
            "batch_tokens": self.batch_tokens,
            "weights": self._bilm.weights,
            "tokenizer": self.tokenizer.config,
            "state": self.state_name,
            "remembered": self.state.state,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """By its source, and its weights by their digest; with the weights where it has no source or they may
        have been edited since (see `bilm`)."""
        by_source = isinstance(self._origin, Origin) and self._bilm.private
        model = (self._origin, self._checkpoint.digest) if by_source else (self._origin, replace(self._checkpoint))
        return _copied, (type(self), *model, self._settings())

    def __copy__(self) -> Elmo:
        """With the same weights: an edit of these is one of both."""
        return _copied(type(self), self._origin, self._checkpoint, self._settings())

    def __deepcopy__(self, memo: dict[int, Any]) -> Elmo:
        """With weights of its own, and what it remembers; words are not kept for it yet."""
        checkpoint, settings = copy.deepcopy((replace(self._checkpoint), self._settings()), memo)
        return _copied(type(self), self._origin, checkpoint, settings)


def _copied(kind: type[Elmo], origin: Origin | str, model: Checkpoint | str, settings: dict[str, Any]) -> Elmo:
    """An equal Elmo: of the checkpoint, or of what the origin opens, if it has this digest."""
    if isinstance(model, str):
        assert isinstance(origin, Origin)
        checkpoint, private = origin.open(model), True
    else:
        checkpoint, private = model, model.bilm.private
    options = {name: settings[name] for name in ("device", "batch_tokens", "weights")}
    elmo = kind(checkpoint, **options)
    elmo._origin, elmo._bilm.private = origin, private
    elmo.tokenizer = make_tokenizer(settings["tokenizer"])
    elmo.state_name = settings["state"]
    elmo.state = state_policy(elmo.state_name, elmo._bilm, settings["remembered"])
    return elmo


def _moved(bilm: BiLM, device: str | torch.device) -> BiLM:
    try:
        return bilm.to(device)
    except (RuntimeError, AssertionError) as error:  # torch's ways to say that there is none
        raise UserError(f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}") from None
