"""bilm-tf's names: batchers, `weight_layers`, dumps of embeddings, and its model, called with arrays at once.

There is no graph and no session: what was a placeholder is an array of ids, what was an op is its value.
Shapes: B rows, T tokens, W ids per token, L layers, the token layer among them, D width, P = D / 2, V words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import replacing
from elmokit.compat.boundaries import remove_sentence_boundaries
from elmokit.compat.elmo_lstm import ElmoLstm
from elmokit.compat.indexer import ids_of
from elmokit.compat.published import load_bilm
from elmokit.errors import UserError
from elmokit.hdf5 import new_hdf5
from elmokit.model.bilm import BiLMConfig, token_mask
from elmokit.model.scalar_mix import normalize_batch
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper
from elmokit.text.vocabulary import BEGIN, END, UNKNOWN

Sentences = Sequence[Sequence[str]]
Ids = NDArray[np.int64]
AT_ONCE = 1024  # words whose vectors are computed at one time


class Batcher:
    """Tokenized sentences -> character ids [B, T + 2, W], boundaries included, zeros after them.

    The vocabulary file is not read: a token's characters do not depend on it.
    """

    def __init__(self, lm_vocab_file: str | Path | None, max_token_length: int) -> None:
        self._mapper = ByteMapper(max_characters_per_token=max_token_length, published=True)

    def batch_sentences(self, sentences: Sentences) -> Ids:
        _check(sentences)
        return pad(self._mapper, sentences, boundaries=True)


class TokenBatcher:
    """Tokenized sentences -> word ids [B, T + 2] of a vocabulary file, one more than the word's line from 0.

    A word that is not in the file is <UNK>; bilm-tf took it for padding where the file has no <UNK>.
    """

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self._file = lm_vocab_file
        self._ids = {word: number for number, word in enumerate(read_words(lm_vocab_file), start=1)}

    def batch_sentences(self, sentences: Sentences) -> Ids:
        _check(sentences)
        batch = np.zeros((len(sentences), 2 + max(map(len, sentences), default=0)), dtype=np.int64)
        for row, sentence in zip(batch, sentences, strict=True):
            row[: len(sentence) + 2] = [self._id(word) for word in (BEGIN, *sentence, END)]
        return batch

    def _id(self, word: str) -> int:
        number = self._ids.get(word) or self._ids.get(UNKNOWN)
        if number is None or (word in (BEGIN, END) and word not in self._ids):
            raise UserError(f"{self._file}: holds neither {word!r} nor <UNK>: add a line of it")
        return number


class BidirectionalLanguageModel:
    """bilm-tf's model: called with a Batcher's ids (or a TokenBatcher's), it returns values, not ops.

    use_character_inputs     False: word ids, whose vectors are in `embedding_weight_file` (dump_token_embeddings).
    max_batch_size           has no meaning here: any number of rows is read.
    stateful                 each row begins where that row of the last call ended, as in bilm-tf.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path | None,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        stateful: bool = True,
    ) -> None:
        self._bilm, self.mapper = load_bilm(options_file, weight_file)
        self._bilm.requires_grad_(False)
        self._lstm = ElmoLstm(self._bilm, stateful=stateful)
        self._vectors: Tensor | None = None
        if not use_character_inputs:
            if embedding_weight_file is None:
                raise UserError(
                    "use_character_inputs=False needs the embedding_weight_file of dump_token_embeddings"
                )
            self._vectors = _read_vectors(Path(embedding_weight_file), self._bilm.config)

    def reset_states(self) -> None:
        self._lstm.reset_states()

    def __call__(self, ids: Ids | Tensor) -> dict[str, Tensor]:
        """Of ids with boundaries [B, T + 2, W] or [B, T + 2], without them:

        "lm_embeddings" [B, L, T, D], "lengths" [B], "mask" [B, T]; and "token_embeddings" [B, T + 2, P] with them.
        """
        numbers = _numbers(ids, 3 if self._vectors is None else 2)
        mask = token_mask(numbers if numbers.dim() == 3 else numbers[..., None])
        if bool((mask.sum(dim=1) < 2).any()):
            raise UserError("expected <S> and </S> in every row, as the batchers make them, found a row without")
        with torch.no_grad():
            vectors = self._bilm.encoder(numbers) if self._vectors is None else self._vectors[numbers]
            layers = self._lstm.all_layers(vectors, mask)
        inner = [remove_sentence_boundaries(layer, mask) for layer in layers]
        return {
            "lm_embeddings": torch.stack([layer for layer, _ in inner], dim=1),
            "lengths": mask.sum(dim=1) - 2,
            "token_embeddings": vectors,
            "mask": inner[0][1],
        }


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    *,
    weights: Any = None,
    gamma: Any = 1.0,
) -> dict[str, Any]:
    """A mix of "lm_embeddings" [B, L, T, D] -> {"weighted_op": [B, T, D], "regularization_op": a number}.

    weights, gamma    what bilm-tf kept as variables under `name`: [L] before softmax (zeros: the plain average)
                      and a number. Parameters of torch are learned through this; NumPy in gives NumPy out.
    """
    given = bilm_ops["lm_embeddings"]
    layers = torch.as_tensor(given).transpose(0, 1)  # [L, B, T, D]
    w = torch.zeros(len(layers)) if weights is None else torch.as_tensor(weights)
    if w.shape != (len(layers),):
        raise UserError(f"weights: expected {len(layers)}, one per layer, found {list(w.shape)}")
    penalty = w.new_zeros(()) if l2_coef is None or use_top_only else l2_coef * w.square().sum()
    if use_top_only:
        mixed = layers[-1]
    else:
        if do_layer_norm:
            mask = torch.as_tensor(bilm_ops["mask"])
            layers = torch.stack([normalize_batch(layer, mask) for layer in layers])
        mixed = torch.einsum("l,lbtd->btd", torch.softmax(w, dim=0).to(layers), layers)
    mixed = torch.as_tensor(gamma) * mixed
    if isinstance(given, np.ndarray) and not mixed.requires_grad:
        return {"weighted_op": mixed.numpy().astype(given.dtype), "regularization_op": float(penalty)}
    return {"weighted_op": mixed, "regularization_op": penalty}


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path | None, outfile: str | Path
) -> None:
    """Every word of a vocabulary -> HDF5 "embedding" [V, P], in the file's order."""
    bilm, mapper = load_bilm(options_file, weight_file)
    words = read_words(vocab_file)
    with replacing(Path(outfile)) as temporary, new_hdf5(temporary) as (file, check):
        vectors = file.create_dataset("embedding", (len(words), bilm.config.lstm.width), np.float32)
        for start in range(0, len(words), AT_ONCE):
            with torch.no_grad():
                x = bilm.encoder(ids_of(mapper, [words[start : start + AT_ONCE]]))[0]
            vectors[start : start + len(x)] = x.numpy()
            check()


def dump_bilm_embeddings(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path | None,
    outfile: str | Path,
) -> None:
    """A file of tokenized sentences, one per line -> HDF5 with [L, T, D] under each line's number from 0.

    One after the other, each from where the last one ended, as bilm-tf does it.
    """
    bilm = BidirectionalLanguageModel(options_file, weight_file)
    batcher = Batcher(vocab_file, bilm.mapper.max_characters_per_token)
    with (
        Path(dataset_file).open(encoding="utf-8") as lines,
        replacing(Path(outfile)) as temporary,
        new_hdf5(temporary) as (file, check),
    ):
        for number, line in enumerate(lines):
            layers = bilm(batcher.batch_sentences([line.split()]))["lm_embeddings"][0]
            file.create_dataset(str(number), data=layers.numpy())
            check()


def read_words(path: str | Path) -> list[str]:
    """A vocabulary file's words, one per line, as bilm-tf reads them."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected words in UTF-8, one per line ({error.reason})") from None
    words = [line.strip() for line in (lines if lines[-1] else lines[:-1])]
    return [word for word in words if word != "!!!MAXTERMID"]


def _check(sentences: Sentences) -> None:
    if isinstance(sentences, str) or any(isinstance(sentence, str) for sentence in sentences):
        raise UserError("expected lists of tokens, found a string where a list should be: split it first")


def _numbers(ids: Any, dimensions: int) -> Tensor:
    try:
        numbers = torch.as_tensor(ids).long()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"expected an array of ids from a batcher, found {type(ids).__name__}: there is no graph here"
        ) from None
    if numbers.dim() != dimensions:
        raise UserError(f"expected ids of {dimensions} dimensions from a batcher, found {list(numbers.shape)}")
    return numbers


def _read_vectors(path: Path, config: BiLMConfig) -> Tensor:
    """[1 + V, P], zeros first: number 0 is padding."""
    width = config.lstm.width
    try:
        with h5py.File(path) as file:
            shape = file["embedding"].shape
            if len(shape) != 2 or shape[1] != width:  # before anything is read
                raise UserError(f"{path}: expected vectors [V, {width}], found {list(shape)}")
            vectors = torch.from_numpy(np.asarray(file["embedding"], dtype=np.float32))
    except (OSError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: expected HDF5 of dump_token_embeddings, with 'embedding' ({error})") from None
    return torch.cat([torch.zeros(1, width), vectors])
