"""Where training may begin: from nothing, from given word vectors, or from a model that is to learn a domain."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM
from elmokit.model.language_head import LanguageHead
from elmokit.model.seeding import seeded
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.step import TrainConfig
from elmokit.text.vocabulary import SPECIALS, UNKNOWN, Vocabulary


def fresh_model(recipe: Recipe, corpus: Corpus) -> Checkpoint:
    """An untrained model of the recipe's shapes for the corpus's words."""
    with seeded(recipe.train.seed):
        bilm = BiLM(recipe.model)
    return with_head(Checkpoint(bilm, recipe.mapper, recipe.tokenizer), corpus, recipe.train)


def with_head(model: Checkpoint, corpus: Corpus, config: TrainConfig) -> Checkpoint:
    """The model with a fresh softmax over the corpus's words."""
    counts = word_counts(corpus)
    vocabulary = Vocabulary.from_counts(counts, size=config.vocabulary, min_count=config.min_count)
    with seeded(config.seed + 1):
        head = LanguageHead(len(vocabulary), model.bilm.config.lstm.width, config.softmax_width)
    return dataclasses.replace(model, vocabulary=vocabulary, head=head)


def extend_vocabulary(model: Checkpoint, counts: Mapping[str, int], *, most: int, min_count: int) -> Checkpoint:
    """The model predicting up to `most` more words: the frequent ones of `counts` that it does not know yet.

    A new word was <UNK> until now, so it begins with <UNK>'s weights and with its share of <UNK>'s probability:
    the share that it has, in `counts`, of all that the model does not know. <UNK> keeps the rest. All other words
    are predicted as before.

    New words stand last: the sampler takes a word's place for its rank by frequency, and in the text so far they
    were rare.
    """
    if model.head is None or model.vocabulary is None:
        raise UserError("a model without a softmax head predicts no words: there is no vocabulary to extend")
    known = model.vocabulary
    unknown = {word: count for word, count in counts.items() if word not in known}
    new = [word for word, count in unknown.items() if count >= min_count]
    new = sorted(new, key=lambda word: (-unknown[word], word))[:most]
    vocabulary = Vocabulary([*known, *new])
    head = LanguageHead(len(vocabulary), model.bilm.config.lstm.width, model.head.softmax_width)
    row = known.id(UNKNOWN)
    kept, *given = _shares_of_unknown(unknown, new)
    with torch.no_grad():
        for ours, theirs in ((head.weight, model.head.weight), (head.bias, model.head.bias)):
            ours.copy_(torch.cat([theirs, theirs[row].expand(len(new), *theirs.shape[1:])]))
        head.bias[row] += math.log(kept)
        head.bias[len(known) :] += torch.tensor(given, dtype=torch.float64).log()
        if head.projection_weight is not None and model.head.projection_weight is not None:
            head.projection_weight.copy_(model.head.projection_weight)
    return dataclasses.replace(model, vocabulary=vocabulary, head=head)


def _shares_of_unknown(counts: Mapping[str, int], new: Sequence[str]) -> list[float]:
    """What <UNK> keeps of its probability, and what each of the new words gets; 1 in all.

    One more is counted for all words that the text does not hold: <UNK> always keeps something.
    """
    total = 1 + sum(counts.values())
    kept = total - sum(counts[word] for word in new)
    return [kept / total, *(counts[word] / total for word in new)]


def words_before(extended: Checkpoint) -> int:
    """The number of words that a model predicted before `extend_vocabulary`: a new one's weights are <UNK>'s."""
    assert extended.head is not None
    assert extended.vocabulary is not None
    weight = extended.head.weight.detach()  # [V, D]
    others = (weight != weight[extended.vocabulary.id(UNKNOWN)]).any(dim=1).nonzero()
    return max(len(SPECIALS), int(others[-1]) + 1 if len(others) else 0)


def word_counts(corpus: Corpus) -> dict[str, int]:
    return dict(zip(corpus.types, (int(count) for count in corpus.counts)))
