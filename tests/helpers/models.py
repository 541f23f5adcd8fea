"""Models small enough to check by hand."""

from __future__ import annotations

import torch

from elmokit import Elmo
from elmokit.checkpoint import Checkpoint
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.lstm import LSTMConfig
from elmokit.text.characters import ByteMapper
from elmokit.text.tokens import TokenizerConfig

SENTENCES = [
    "He sat on the bank of the river .",
    "She works at a bank .",
    "Stop",
    "",
    "밥을 먹었다 . 😀 e\u0301tude",
    "a " * 30 + "b",
]


def small_config(**lstm: object) -> BiLMConfig:
    settings = {"layers": 2, "cells": 24, "width": 8, **lstm}
    return BiLMConfig(
        CharEncoderConfig(embedding=4, filters=((1, 4), (2, 6), (3, 8)), highway=2),
        LSTMConfig(**settings),  # type: ignore[arg-type]
    )


def random_bilm(config: BiLMConfig, seed: int = 0, scale: float = 1.0) -> BiLM:
    """Weights large enough that gates saturate and clipping happens, and biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    bilm = BiLM(config).eval()
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(scale * parameter[0].numel() ** -0.5)
        bilm.encoder.character_embedding.weight[0] = 0  # the row of padded tokens
    return bilm


def make_elmo(config: BiLMConfig | None = None, *, published: bool = False, **options: object) -> Elmo:
    checkpoint = Checkpoint(
        random_bilm(config or small_config()),
        ByteMapper(published=published),
        TokenizerConfig("whitespace"),
    )
    return Elmo(checkpoint, **options)  # type: ignore[arg-type]
