"""A model that predicts words, and what it is measured on."""

from __future__ import annotations

import torch

from elmokit.checkpoint import Checkpoint
from elmokit.model.language_head import LanguageHead
from elmokit.text.characters import ByteMapper
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import Vocabulary
from helpers.models import SENTENCES, random_bilm, small_config

WORDS = "the a bank river of sat He . b 밥을 [x]".split()


def make_model(words=WORDS, *, published=True) -> Checkpoint:
    head = LanguageHead(len(words) + 3, 8)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return Checkpoint(
        random_bilm(small_config()),
        ByteMapper(published=published),
        TokenizerConfig("whitespace", "none" if published else "NFC"),
        Vocabulary(words),
        head,
    )


MODEL = make_model()


TEXT = [sentence.split() for sentence in SENTENCES if sentence]


def without_head() -> Checkpoint:
    return Checkpoint(MODEL.bilm, MODEL.mapper, MODEL.tokenizer)
