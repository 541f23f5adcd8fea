"""Sentiment of a sentence, by the biattentive classification network (McCann et al. 2017).

Files, told apart by their first line:
    (3 (2 It) (4 (2 's) (4 good)))     trees of the Stanford Sentiment Treebank, one a line
    id TAB document TAB label          the header of the Naver movie reviews; 0 is negative, 1 positive
    label TAB text                     any labels
Trees have their tokens; other text is cut into words here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.labelled import LABELS, LabelTask
from elmokit.tasks.sentiment.network import BiattentiveNetwork, BiattentiveSettings
from elmokit.tasks.sentiment.trees import BEGINNING, SCALE, Tree, parse_tree
from elmokit.tasks.task import Labels, TrainConfig, located
from elmokit.text.corpus import Line, LineReader
from elmokit.text.tokens import make_tokenizer

HEADER = "id\tdocument\tlabel"
NAVER = {"0": "negative", "1": "positive"}
# Five classes as two; neutral has no answer then. Other labels stay what they are.
TWO = dict(zip(SCALE, ("negative", "negative", None, "positive", "positive")))


@dataclass(frozen=True)
class SentimentSettings(BiattentiveSettings):
    classes: int = 5  # 5: the labels as they are; 2: negative and positive, without the neutral
    phrase_tokens: int = 4  # phrases of trees that are as long train too (as McCann et al. do); 0: none do
    phrases: int | None = 40_000  # of these at most, drawn once

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classes not in (2, 5):
            raise UserError(f"classes: expected 2 or 5, found {self.classes}")
        if self.phrase_tokens < 0 or (self.phrases is not None and self.phrases < 0):
            raise UserError(
                f"phrase_tokens, phrases: expected 0 or more, found {self.phrase_tokens} and {self.phrases}"
            )


@dataclass(frozen=True)
class Review:
    tokens: list[str]
    label: str | None
    where: str
    tree: Tree | None = None  # of a whole sentence


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
                raise UserError(f"classes = 2: expected labels {', '.join(SCALE)}, found {', '.join(kept)}")
            labels = {LABELS: kept}
        super().__init__(settings, labels)

    @classmethod
    def read(cls, path: Path) -> list[Review]:
        """Whole sentences, with all the labels that the file has."""
        with LineReader(path) as reader:
            lines = [line for line in reader if line.text.strip()]
        if not lines:
            raise UserError(f"{path}: expected labelled sentences, found none: the file is empty")
        if BEGINNING.match(lines[0].text):
            return [_read_tree(line, path) for line in lines]
        tokenize = make_tokenizer("words").tokens
        if lines[0].text == HEADER:
            if len(lines) == 1:
                raise UserError(f"{path}: expected reviews after the header, found none")
            return [_read_naver(line, path, tokenize) for line in lines[1:]]
        return [_read_plain(line, path, tokenize) for line in lines]

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


def _read_tree(line: Line, path: Path) -> Review:
    try:
        tree = parse_tree(line.text)
    except ValueError as error:
        raise UserError(f"{path}, line {line.number}: {error}") from None
    return Review(tree.tokens, tree.label, located(path, line.number), tree)


def _read_naver(line: Line, path: Path, tokenize: Callable[[str], list[str]]) -> Review:
    fields = line.text.split("\t")
    if len(fields) != 3:
        raise UserError(
            f"{path}, line {line.number}: expected id, document and label with tabs between, found "
            f"{len(fields)} columns: {line.text[:60]!r}"
        )
    if fields[2] not in NAVER:
        raise UserError(f"{path}, line {line.number}: expected a label, 0 or 1, found {fields[2]!r}")
    return Review(tokenize(fields[1]), NAVER[fields[2]], located(path, line.number))


def _read_plain(line: Line, path: Path, tokenize: Callable[[str], list[str]]) -> Review:
    label, tab, text = line.text.partition("\t")
    if not tab or not label.strip():
        raise UserError(
            f"{path}, line {line.number}: expected label TAB text (or, from the first line on, trees, or the "
            f"header id TAB document TAB label), found {line.text[:60]!r}"
        )
    return Review(tokenize(text), label.strip(), located(path, line.number))
