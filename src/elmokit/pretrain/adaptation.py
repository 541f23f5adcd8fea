"""Where training may begin: from nothing, from given word vectors, or from a model that is to learn a domain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM
from elmokit.model.language_head import LanguageHead
from elmokit.model.seeding import seeded
from elmokit.pretrain.corpus import PreparedCorpus
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.step import TrainConfig
from elmokit.text.vocabulary import UNKNOWN, Vocabulary


def fresh_model(recipe: Recipe, corpus: PreparedCorpus) -> Checkpoint:
    """An untrained model of the recipe's shapes for the corpus's words."""
    with seeded(recipe.train.seed):
        bilm = BiLM(recipe.model)
    return with_head(Checkpoint(bilm, recipe.mapper, recipe.tokenizer), corpus, recipe.train)


def with_head(model: Checkpoint, corpus: PreparedCorpus, config: TrainConfig) -> Checkpoint:
    """The model with a fresh softmax over the corpus's words."""
    counts = word_counts(corpus)
    vocabulary = Vocabulary.from_counts(counts, size=config.vocabulary, min_count=config.min_count)
    with seeded(config.seed + 1):
        head = LanguageHead(len(vocabulary), model.bilm.config.lstm.width, config.softmax_width)
    return dataclasses.replace(model, vocabulary=vocabulary, head=head)


def extend_vocabulary(model: Checkpoint, counts: Mapping[str, int], *, most: int, min_count: int) -> Checkpoint:
    """The model predicting up to `most` more words: the frequent ones of `counts` that it does not know yet.

    A new word begins where <UNK> is, which is what it was until now. New words stand last: the sampler takes a
    word's place for its rank by frequency, and in the text so far they were rare.
    """
    if model.head is None or model.vocabulary is None:
        raise UserError("a model without a softmax head predicts no words: there is no vocabulary to extend")
    known = model.vocabulary
    new = [word for word, count in counts.items() if count >= min_count and word not in known]
    new = sorted(new, key=lambda word: (-counts[word], word))[:most]
    vocabulary = Vocabulary([*known, *new])
    head = LanguageHead(len(vocabulary), model.bilm.config.lstm.width, model.head.softmax_width)
    unknown = known.id(UNKNOWN)
    with torch.no_grad():
        for ours, theirs in ((head.weight, model.head.weight), (head.bias, model.head.bias)):
            ours.copy_(torch.cat([theirs, theirs[unknown].expand(len(new), *theirs.shape[1:])]))
        if head.projection_weight is not None and model.head.projection_weight is not None:
            head.projection_weight.copy_(model.head.projection_weight)
    return dataclasses.replace(model, vocabulary=vocabulary, head=head)


def word_counts(corpus: PreparedCorpus) -> dict[str, int]:
    return dict(zip(corpus.types, (int(count) for count in corpus.counts)))
