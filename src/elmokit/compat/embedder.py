"""AllenNLP's `ElmoEmbedder`: tokens in, NumPy arrays of all layers out, or a file of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import replacing
from elmokit.compat.elmo_bilm import ElmoBiLm
from elmokit.compat.indexer import ELMoTokenCharactersIndexer, ids_of
from elmokit.compat.published import default_pair
from elmokit.errors import UserError, listed
from elmokit.hdf5 import new_hdf5
from elmokit.model.elmo import without_boundaries

Vectors = NDArray[np.float32]


class ElmoEmbedder:
    """Tokens -> NumPy arrays of all layers [L, T, D]. The files and `stateful` as in Elmo.

    Without files it is AllenNLP's default, the original model of 2 x 4096 cells: an error where that is not here.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
        *,
        stateful: bool = True,
    ) -> None:
        devices = torch.cuda.device_count()
        if cuda_device >= devices:
            raise UserError(f"cuda_device {cuda_device}: found {devices} CUDA devices; -1 is the CPU")
        self.elmo_bilm = ElmoBiLm(*default_pair(options_file, weight_file), stateful=stateful)
        self.cuda_device = cuda_device
        self.indexer = ELMoTokenCharactersIndexer()
        if cuda_device >= 0:
            self.elmo_bilm.cuda(cuda_device)

    def reset_states(self) -> None:
        """Forget what was read: the next call begins from nothing."""
        self.elmo_bilm.reset_states()

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """All layers [B, L, T, D], and the mask [B, T]."""
        ids = ids_of(self.elmo_bilm.mapper, batch).to(self.elmo_bilm.device)
        output = self.elmo_bilm(ids)
        mask = without_boundaries(output["mask"])
        layers = output["activations"][:, :, 1:-1] * mask.unsqueeze(-1)
        return layers.transpose(0, 1), mask

    def embed_sentence(self, sentence: Sequence[str]) -> Vectors:
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Vectors]:
        if not any(batch):  # no token to embed, and AllenNLP's state did not move either
            shape = (self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim())
            return [np.zeros(shape, np.float32) for _ in batch]
        layers, _ = self.batch_to_embeddings(batch)
        return [rows[:, : len(sentence)].cpu().numpy() for rows, sentence in zip(layers, batch, strict=True)]

    def embed_sentences(self, sentences: Iterable[Sequence[str]], batch_size: int = 64) -> Iterator[Vectors]:
        """One array for each sentence, in order, as the batches are done."""
        if batch_size < 1:
            raise UserError(f"batch_size: expected 1 or more, found {batch_size}")
        rest = iter(sentences)
        while batch := list(islice(rest, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str] | str | Path,
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """A file of tokenized sentences, one per line -> HDF5 with a dataset for each.

        A dataset's key is the line's number from 0, and "sentence_to_index" holds JSON of sentence -> key,
        unless `forget_sentences`; with `use_sentence_keys` the key is the sentence itself. output_format
        "all" writes [L, T, D], "top" the last layer and "average" the mean of the layers, both [T, D].
        """
        if output_format not in ("all", "top", "average"):
            raise UserError(f"output_format: expected all, top or average, found {output_format!r}")
        with open(input_file, encoding="utf-8") if isinstance(input_file, str | Path) else input_file as lines:
            sentences = [line.strip() for line in lines]
        blank = [str(number) for number, sentence in enumerate(sentences, 1) if not sentence]
        if blank:
            raise UserError(f"expected a sentence per line, found empty lines ({listed(blank)}): remove them")
        if use_sentence_keys and len(set(sentences)) < len(sentences):
            raise UserError("sentences that are keys must differ, found repeated ones: use line numbers")
        keys = sentences if use_sentence_keys else [str(number) for number in range(len(sentences))]
        vectors = self.embed_sentences((sentence.split() for sentence in sentences), batch_size)
        with replacing(Path(output_file_path)) as temporary, new_hdf5(temporary) as (file, check):
            for key, layers in zip(keys, vectors, strict=True):
                check()
                shown = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}[output_format]
                try:
                    file.create_dataset(key, data=shown)
                except (ValueError, TypeError, OSError) as error:  # such as "." or "a/b" after "a"
                    raise UserError(f"{key!r} cannot be an HDF5 key: use line numbers ({error})") from None
            if not forget_sentences and not use_sentence_keys:
                index = json.dumps(dict(zip(sentences, keys, strict=True)))
                file.create_dataset("sentence_to_index", data=[index], dtype=h5py.string_dtype())
