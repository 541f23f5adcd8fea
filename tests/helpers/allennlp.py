"""Our modules beside what AllenNLP's would give."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmokit.checkpoint import Checkpoint
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.lstm import LSTMConfig
from elmokit.text.characters import ByteMapper
from elmokit.text.tokens import TokenizerConfig
from reference import ReferenceBiLM

WIDTH = 10


# Growing, shrinking, ragged, with an empty sentence: what the carried state has to survive.
CALLS = [
    [["나는", "밥을", "먹었다"], ["x"]],
    [["a", "b", "c", "d"], [], ["the", "cat"]],
    [["shorter"]],
    [["밥"], ["a", "<S>", "b"], ["x", "y"], ["new", "row"]],
]


class Pair(NamedTuple):
    options: Path
    weights: Path

    @property
    def reference(self) -> ReferenceBiLM:
        return ReferenceBiLM(*self)


def make_checkpoint(seed: int) -> Checkpoint:
    torch.manual_seed(seed)
    encoder = CharEncoderConfig(embedding=3, filters=((1, 4), (3, 5)), highway=2)
    bilm = BiLM(BiLMConfig(encoder, LSTMConfig(layers=2, cells=7, width=WIDTH // 2, cell_clip=1.0)))
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()  # fresh ones are zero, which would hide where they go
    return Checkpoint(bilm, ByteMapper(published=True), TokenizerConfig("whitespace", "none"))


def make_pair(folder: Path, seed: int = 0) -> Pair:
    pair = Pair(folder / f"options{seed}.json", folder / f"weights{seed}.hdf5")
    write_bilm(make_checkpoint(seed), *pair)
    return pair


def references(pair: Pair, carry: bool = True) -> list[list[np.ndarray]]:
    """Layers [3, T, D] of every row of every call; row k goes on from row k."""
    reference, states = pair.reference, {}
    calls = []
    for batch in CALLS:
        rows = []
        for k, tokens in enumerate(batch):
            layers, states[k] = reference.layers(tokens, states.get(k) if carry else None)
            rows.append(layers)
        calls.append(rows)
    return calls
