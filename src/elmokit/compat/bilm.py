"""The biLM as AllenNLP wrapped it: it adds the boundaries, remembers the state, and may know words by number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from elmokit.compat.names import rename_bilm
from elmokit.errors import UserError
from elmokit.formats.bilm_hdf5 import read_bilm
from elmokit.model.bilm import BiLM, add_boundaries, token_mask
from elmokit.model.state import CarryState, StatePolicy, ZeroState
from elmokit.sources import open_checkpoint
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Tokenized sentences -> character ids [B, T, 50], zeros where a sentence has ended."""
    return ids_of(ByteMapper(published=True), batch)


def ids_of(mapper: ByteMapper, batch: Sequence[Sequence[str]]) -> Tensor:
    if isinstance(batch, str) or any(isinstance(sentence, str) for sentence in batch):
        raise UserError("expected lists of tokens, found a string where a list should be: split it first")
    return torch.from_numpy(pad(mapper, batch, boundaries=False))


class ElmoBiLm(nn.Module):
    """ids [B, T, 50] -> {"activations": [L, B, T + 2, D], "mask": [B, T + 2]}, boundaries included."""

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
        self.bilm, self.mapper = load_bilm(options_file, weight_file)
        self.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.layers
        self.states: StatePolicy = CarryState(self.bilm) if stateful else ZeroState()
        self.register_buffer("begin", torch.from_numpy(self.mapper.begin), persistent=False)
        self.register_buffer("end", torch.from_numpy(self.mapper.end), persistent=False)
        # The words' vectors, then those of <S> and </S>.
        self._word_embedding: nn.Embedding | None = None
        if vocab_to_cache:
            ids = torch.cat([ids_of(self.mapper, [vocab_to_cache])[0], self.begin[None], self.end[None]])
            with torch.no_grad():
                vectors = self.bilm.encoder(ids[None])[0]  # [V + 2, P]
            self._word_embedding = nn.Embedding(len(vectors), vectors.shape[1], 0, _weight=vectors)
            self._word_embedding.requires_grad_(requires_grad)
        self.register_load_state_dict_pre_hook(rename_bilm)  # type: ignore[no-untyped-call]

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


def load_bilm(options_file: str | Path | None, weight_file: str | Path | None) -> tuple[BiLM, ByteMapper]:
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
