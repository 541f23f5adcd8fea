"""AllenNLP's names over our model: `Elmo`, `ElmoEmbedder` and `batch_to_ids`, called as they always were.

Only what they promised is here: how they are called, what they return, that they carry the LSTMs' state from
call to call, and what their saved weights are named. The mathematics is elmokit.model's.

Shapes: B batch, T tokens, L layers (the token layer among them), D width, P = D / 2, V cached words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypedDict

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.atomic import replacing
from elmokit.errors import UserError
from elmokit.formats.bilm_hdf5 import read_bilm
from elmokit.hdf5 import new_hdf5
from elmokit.model.bilm import BiLM, add_boundaries, token_mask
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.state import CarryState, StatePolicy, ZeroState
from elmokit.sources import open_checkpoint
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper

__all__ = ["Elmo", "ElmoEmbedder", "batch_to_ids"]

Vectors = NDArray[np.float32]

# What AllenNLP calls the biLM's weights, piece by piece, and what we do.
OLD_NAMES = {
    "_token_embedder._char_embedding_weights": "bilm.encoder.character_embedding.weight",
    "_token_embedder.char_conv_": "bilm.encoder.convolutions.",
    "_token_embedder._highways._layers.": "bilm.encoder.highway.",
    "_token_embedder._projection.": "bilm.encoder.projection.",
    "_elmo_lstm.forward_layer_": "bilm.forward_lstms.",
    "_elmo_lstm.backward_layer_": "bilm.backward_lstms.",
    "input_linearity.weight": "input_weight",
    "state_linearity.weight": "hidden_weight",
    "state_linearity.bias": "bias",
    "state_projection.weight": "projection_weight",
}


class ElmoOutput(TypedDict):
    elmo_representations: list[Tensor]  # [..., T, D] each
    mask: Tensor  # [..., T]


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Tokenized sentences -> character ids [B, T, 50], zeros where a sentence has ended."""
    return _ids(ByteMapper(published=True), batch)


class Elmo(nn.Module):
    """The biLM and `num_output_representations` mixes of its layers, `scalar_mix_0` and on.

    options_file, weight_file    the published pair; or a folder of ours, and None.
    requires_grad                also train the biLM.
    do_layer_norm                normalize each layer over the whole batch before it is mixed.
    vocab_to_cache               words whose token vectors are computed once, here; `forward` then looks up
                                 `word_inputs`, numbered as this list is. Number 0 is padding.
    scalar_mix_parameters        weights of the layers before softmax, the same for every mix; not trained.
    module                       runs instead of the biLM (give None for both files): it has `num_layers` and
                                 `get_output_dim()` and returns {"activations", "mask"}, boundaries included.
    stateful                     each row of a batch goes on from where that row of the last batch ended, as
                                 AllenNLP's did. False: a sentence's vectors depend on nothing but the sentence.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise UserError(f"expected 1 or more output representations, found {num_output_representations}")
        if module is not None and (options_file is not None or weight_file is not None):
            raise UserError("module takes the place of options_file and weight_file: give None for both")
        if module is None:
            module = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache, stateful=stateful)
        bilm: Any = module  # or what behaves like one
        self._elmo_lstm = bilm
        self._scalar_mixes = [f"scalar_mix_{k}" for k in range(num_output_representations)]
        for name in self._scalar_mixes:
            mix = _ScalarMix(
                bilm.num_layers,
                weights=scalar_mix_parameters,
                layer_norm="batch" if do_layer_norm else None,
                trainable=scalar_mix_parameters is None,
            )
            mix.register_load_state_dict_pre_hook(_rename_mix)  # type: ignore[no-untyped-call]
            self.add_module(name, mix)
        self._dropout = nn.Dropout(dropout)
        self._keep_sentence_boundaries = keep_sentence_boundaries

    def get_output_dim(self) -> int:
        return int(self._elmo_lstm.get_output_dim())

    def reset_states(self) -> None:
        """Forget what was read: the next call begins from nothing."""
        if hasattr(self._elmo_lstm, "reset_states"):
            self._elmo_lstm.reset_states()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> ElmoOutput:
        """inputs [..., T, 50]; word_inputs [..., T], looked up where there is a cache."""
        if inputs.dim() < 3:
            raise UserError(f"expected ids [B, T, 50] as batch_to_ids makes them, found {list(inputs.shape)}")
        outer = inputs.shape[:-2] if word_inputs is None else word_inputs.shape[:-1]
        words = None if word_inputs is None else word_inputs.flatten(0, -2)
        output = self._elmo_lstm(inputs.flatten(0, -3), words)
        layers, mask = output["activations"], output["mask"]
        layers = layers if isinstance(layers, Tensor) else torch.stack(layers)
        mixes = [getattr(self, name)(layers, mask) for name in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            mixes, mask = [_without_boundaries(mix, mask) for mix in mixes], mask[:, 2:]
        return {
            "elmo_representations": [self._dropout(mix).reshape(outer + mix.shape[1:]) for mix in mixes],
            "mask": mask.reshape(outer + mask.shape[1:]),
        }


class ElmoEmbedder:
    """Tokens -> NumPy arrays of all layers [L, T, D]. `stateful` as in Elmo."""

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
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file, stateful=stateful)
        self.cuda_device = cuda_device
        if cuda_device >= 0:
            self.elmo_bilm.cuda(cuda_device)

    def reset_states(self) -> None:
        """Forget what was read: the next call begins from nothing."""
        self.elmo_bilm.reset_states()

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """All layers [B, L, T, D], and the mask [B, T]."""
        ids = _ids(self.elmo_bilm.mapper, batch).to(self.elmo_bilm.begin.device)
        output = self.elmo_bilm(ids)
        layers, mask = output["activations"], output["mask"]
        return _without_boundaries(layers, mask).transpose(0, 1), mask[:, 2:]

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
        """A file of tokenized sentences, one a line -> HDF5 with a dataset for each.

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
            raise UserError(f"expected a sentence a line, found empty lines ({', '.join(blank)}): remove them")
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


class _ElmoBiLm(nn.Module):
    """The biLM as AllenNLP wrapped it: it adds the boundaries and remembers the state."""

    begin: Tensor
    end: Tensor

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self.bilm, self.mapper = _load(options_file, weight_file)
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.layers
        self.states: StatePolicy = CarryState(self.bilm) if stateful else ZeroState()
        self.register_buffer("begin", torch.from_numpy(self.mapper.begin), persistent=False)
        self.register_buffer("end", torch.from_numpy(self.mapper.end), persistent=False)
        # The words' vectors, then those of <S> and </S>.
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            ids = torch.cat([_ids(self.mapper, [vocab_to_cache])[0], self.begin[None], self.end[None]])
            with torch.no_grad():
                vectors = self.bilm.encoder(ids[None])[0]  # [V + 2, P]
            self._word_embedding = nn.Embedding(len(vectors), vectors.shape[1], 0, _weight=vectors)
            self._word_embedding.requires_grad_(requires_grad)
        self.register_load_state_dict_pre_hook(_rename_bilm)  # type: ignore[no-untyped-call]

    def get_output_dim(self) -> int:
        return self.bilm.config.width

    def reset_states(self) -> None:
        self.states.reset()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Tensor]:
        table = self._word_embedding
        words = 0 if table is None else table.num_embeddings - 2
        if table is not None and word_inputs is not None and bool((word_inputs < words).all()):
            ids = add_boundaries(word_inputs[..., None], torch.tensor(words), torch.tensor(words + 1))
            x = table(ids[..., 0])
        else:  # also for a word that is not in the cache: its characters are known
            if inputs.shape[-1] != self.mapper.width:
                raise UserError(f"expected {self.mapper.width} ids a token, found {inputs.shape[-1]}")
            ids = add_boundaries(inputs, self.begin, self.end)
            x = self.bilm.encoder(ids)
        output = self.bilm.contextualize(x, token_mask(ids), self.states.before(len(ids)))
        self.states.after(output.state)
        return {"activations": output.layers, "mask": output.mask}


class _ScalarMix(ScalarMix):
    @property
    def scalar_parameters(self) -> tuple[Tensor, ...]:
        """The weights as AllenNLP kept them, each layer's on its own."""
        return torch.split(self.weights, 1)


def _load(options_file: str | Path | None, weight_file: str | Path | None) -> tuple[BiLM, ByteMapper]:
    if options_file is None:
        raise UserError("no model given: download the options and weights files first and give their paths")
    for file in (options_file, weight_file):
        if "://" in str(file):
            raise UserError(f"expected a path, found {file}: download the file first and give its path")
    checkpoint = open_checkpoint(options_file) if weight_file is None else read_bilm(options_file, weight_file)
    if not isinstance(checkpoint.mapper, ByteMapper):
        raise UserError(
            f"{options_file}: expected a model over UTF-8 bytes, this one reads other ids: use elmokit.Elmo"
        )
    return checkpoint.bilm, checkpoint.mapper


def _ids(mapper: ByteMapper, batch: Sequence[Sequence[str]]) -> Tensor:
    if isinstance(batch, str) or any(isinstance(sentence, str) for sentence in batch):
        raise UserError("expected lists of tokens, found a string where a list should be: split it first")
    return torch.from_numpy(pad(mapper, batch, boundaries=False))


def _without_boundaries(values: Tensor, mask: Tensor) -> Tensor:
    """[..., T + 2, D] -> [..., T, D]; where a shorter row's </S> was, zeros."""
    return values[..., 1:-1, :] * mask[:, 2:, None]


def _rename_bilm(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """AllenNLP's names and layout -> ours, before load_state_dict looks at them."""
    assert isinstance(module, _ElmoBiLm)
    for key in [key for key in state if key.startswith(prefix)]:
        name = key[len(prefix) :]
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        if prefix + name == key:
            continue
        value, name = state.pop(key), prefix + name
        if ".highway." in name:  # one matrix for both; its gate lets x through, ours lets the new through
            layer, kind = name.rsplit(".", 1)
            transform, carry = value.chunk(2)
            state[f"{layer}.transform.{kind}"], state[f"{layer}.carry.{kind}"] = transform, -carry
        elif name.endswith("bias") and "_lstms." in name:  # what the forget gate gets at run time is in it
            i, f, g, o = value.chunk(4)
            state[name] = torch.cat([i, f - module.bilm.config.lstm.forget_bias, g, o])
        else:
            state[name] = value
    cached, table = f"{prefix}_word_embedding.weight", module._word_embedding
    if table is not None and cached in state and len(state[cached]) == len(table.weight) - 2:
        state[cached] = torch.cat([state[cached], table.weight[-2:].detach().to(state[cached])])


def _rename_mix(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    assert isinstance(module, ScalarMix)
    names = [f"{prefix}scalar_parameters.{layer}" for layer in range(module.layers)]
    if all(name in state for name in names):
        state[f"{prefix}weights"] = torch.cat([state.pop(name) for name in names])
        state[f"{prefix}gamma"] = state[f"{prefix}gamma"].reshape(())
