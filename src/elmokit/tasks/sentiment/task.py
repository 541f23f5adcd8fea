"""Sentiment of a sentence, in five classes or in two; `reviews.py` says which files are read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from elmokit.errors import UserError, listed
from elmokit.tasks.classification import LabelTask
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.classifier import LABELS
from elmokit.tasks.sentiment.network import BiattentiveNetwork, SentimentSettings
from elmokit.tasks.sentiment.reviews import Review, is_table, read_reviews
from elmokit.tasks.sentiment.trees import SCALE
from elmokit.tasks.task import Labels, TrainConfig
from elmokit.text.columns import Columns

# Five classes as two; neutral has no answer then. Other labels stay what they are.
TWO = dict(zip(SCALE, ("negative", "negative", None, "positive", "positive")))


class Sentiment(LabelTask[Review]):
    name = "sentiment"
    summary = "sentiment of sentences (SST, NSMC): biattentive network (McCann et al. 2017)"
    settings_class = SentimentSettings
    # paper: sizes and phrases of McCann et al.; the rate is that of Peters et al. 2018.
    recipes: ClassVar = {
        "laptop": (SentimentSettings(), TrainConfig(epochs=6, patience=2, examples=64, decay=0.5, average=0.999)),
        "paper": (
            SentimentSettings(feedforward=300, cells=300, maxout=(1200, 600), pieces=4, dropout=0.2, phrases=None),
            TrainConfig(epochs=20, patience=5, examples=100, batch_tokens=16_384, learning_rate=1e-4),
        ),
    }

    def __init__(self, settings: SentimentSettings, labels: Labels) -> None:
        if settings.classes == 2:
            two = [TWO.get(label, label) for label in labels[LABELS]]
            kept = [label for label in dict.fromkeys(two) if label is not None]
            if len(kept) > 2:
                raise UserError(f"classes = 2: expected labels {', '.join(SCALE)}, found {listed(kept)}")
            labels = {LABELS: kept}
        super().__init__(settings, labels)

    @classmethod
    def read(cls, path: Path) -> list[Review]:
        """Whole sentences, with all the labels that the file has."""
        return cls.read_table(path, Columns()) if is_table(path) else read_reviews(path)

    @classmethod
    def row_example(
        cls, texts: Sequence[str], label: str | None, tokenize: Callable[[str], list[str]], where: str
    ) -> Review:
        return Review(tokenize(texts[0]), label, where)

    @classmethod
    def labels_of(cls, examples: Sequence[Review]) -> Labels:
        """In the order of the scale, then the alphabet's. A tree may hold any of the scale in its phrases."""
        found = {example.label for example in examples if example.label is not None}
        scale = SCALE if any(example.tree is not None for example in examples) else ()
        return {LABELS: [s for s in SCALE if s in found or s in scale] + sorted(found.difference(SCALE))}

    def answer(self, example: Review) -> str | None:
        if self.settings.classes == 2 and example.label is not None:
            return TWO.get(example.label, example.label)
        return example.label

    @classmethod
    def phrases(cls, examples: Sequence[Review], least: int = 1) -> list[Review]:
        """The distinct phrases of the trees, of `least` tokens or more, that are no whole sentence."""
        seen = {(tuple(example.tokens), example.label) for example in examples}
        found = []
        for example in examples:
            if example.tree is None:
                continue
            for start, end, label in example.tree.phrases:
                key = (tuple(example.tokens[start:end]), label)
                if end - start >= least and key not in seen:
                    seen.add(key)
                    found.append(Review(example.tokens[start:end], label, example.where))
        return found

    def measured_examples(self, examples: Sequence[Review]) -> list[Review]:
        """Those that have an answer: with two classes, all but the neutral."""
        return [example for example in examples if self.answer(example) is not None]

    def training_examples(self, examples: Sequence[Review]) -> list[Review]:
        """The sentences and a sample of their phrases. The sample does not depend on the run's seed, so that all
        runs share one cache of layers."""
        least, most = self.settings.phrase_tokens, self.settings.phrases
        phrases = self.measured_examples(self.phrases(examples, least)) if least else []
        if most is not None and len(phrases) > most:
            phrases = [phrases[i] for i in sorted(random.Random(0).sample(range(len(phrases)), most))]
        return self.measured_examples(examples) + phrases

    @staticmethod
    def sentences(example: Review) -> list[list[str]]:
        return [example.tokens]

    def network(self, inputs: TokenInputs) -> BiattentiveNetwork:
        return BiattentiveNetwork(inputs, self.settings, self.labels[LABELS])

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Review:
        return Review(tokenize(text), None, where)

    @staticmethod
    def show(example: Review, prediction: str) -> str:
        return f"{prediction}\t{' '.join(example.tokens)}"
