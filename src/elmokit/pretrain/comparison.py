"""Perplexity before and after finetuning: what was learned of the domain, and what was forgotten of other text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.checkpoint import Checkpoint
from elmokit.model.language_head import LanguageHead
from elmokit.pretrain.adaptation import words_before
from elmokit.pretrain.perplexity import Perplexity, perplexity
from elmokit.pretrain.progress import OnTrainingProgress, TrainingProgress
from elmokit.text.columns import Columns
from elmokit.text.corpus import expand_sources, open_table, read_lines, table_format
from elmokit.text.tokens import TokenizerConfig, make_tokenizer
from elmokit.text.vocabulary import UNKNOWN, Vocabulary

Tokens = list[str]


class Comparison(NamedTuple):
    """Both numbers are of one text and one set of words: more words to tell apart are harder to predict."""

    text: str  # what kind it is
    before: Perplexity
    after: Perplexity
    words: int  # that are told apart; all others are <UNK>


def compare(
    before: Checkpoint, after: Checkpoint, texts: Mapping[str, Sequence[Tokens]], on_progress: OnTrainingProgress
) -> tuple[Comparison, ...]:
    """Both models on each text: over the words that they predict, and over those that were known before.

    `before` is the model that training began from. Where words were added to it, it predicts them as the untouched
    model does, each with its share of <UNK>; see `extend_vocabulary`.
    """
    found = []
    words = len(_words(before))
    for done, (name, sentences) in enumerate(texts.items()):
        on_progress(TrainingProgress("comparing", done, len(texts)))
        for count in sorted({words, words_before(before)}, reverse=True):
            first, second = (perplexity(fewer_words(model, count), sentences) for model in (before, after))
            found.append(Comparison(name, first, second, count))
    on_progress(TrainingProgress("comparing", len(texts), len(texts)))
    return tuple(found)


def fewer_words(model: Checkpoint, count: int) -> Checkpoint:
    """The model as one that tells the first `count` words apart: <UNK> has the probability of the others too."""
    assert model.head is not None
    vocabulary = _words(model)
    if count == len(vocabulary):
        return model
    head = _Merged(model.head, count, vocabulary.id(UNKNOWN))
    return dataclasses.replace(model, vocabulary=Vocabulary(vocabulary.words[:count]), head=head)


class _Merged(LanguageHead):
    """The softmax of another head, its words from `count` on together with <UNK>."""

    def __init__(self, head: LanguageHead, count: int, unknown: int) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = (nn.Parameter(part.detach()[:count]) for part in (head.weight, head.bias))
        self.whole, self.count, self.unknown = head, count, unknown

    def forward(self, h: Tensor) -> Tensor:  # [..., P] -> log probabilities [..., count]
        log_p: Tensor = self.whole(h)
        together = torch.cat([log_p[..., self.unknown, None], log_p[..., self.count :]], dim=-1).logsumexp(dim=-1)
        log_p = log_p[..., : self.count].clone()
        log_p[..., self.unknown] = together
        return log_p


def _words(model: Checkpoint) -> Vocabulary:
    assert model.vocabulary is not None
    return model.vocabulary


def check_sources(sources: Sequence[str | Path], columns: Columns | None = None) -> None:
    """They are there, and those that are tables have the columns."""
    for path in expand_sources(sources):
        if table_format(path) is not None:
            with open_table(path, columns=columns) as table:
                table.identity()


def first_sentences(
    sources: Sequence[str | Path], tokenizer: TokenizerConfig, most: int, columns: Columns | None = None
) -> list[Tokens]:
    """columns   of those sources that are tables."""
    splitter = make_tokenizer(tokenizer)
    texts = (
        line.text
        for path in expand_sources(sources)
        for line in read_lines([path], columns=columns if table_format(path) else None)
    )
    sentences = (sentence for text in texts for sentence in splitter.sentences(text))
    return [splitter.tokens(sentence) for sentence in islice(sentences, most)]
