"""Parts of speech of CoNLL-U (column UPOS), scored by accuracy; `network.py` has the tagger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.metrics import Confusion, accuracy, label_rows
from elmokit.tasks.pos.network import PosNetwork, PosSettings
from elmokit.tasks.pos.tags import TaggedSentence, read_tags
from elmokit.tasks.task import IGNORED, Labels, Task, TrainConfig, pad_rows, unknown_label


class PartsOfSpeech(Task[TaggedSentence]):
    name = "pos"
    summary = "parts of speech of CoNLL-U: biLSTM and softmax (Ling et al. 2015)"
    files = "CoNLL-U"
    metric = "accuracy"
    settings_class = PosSettings
    recipes: ClassVar = {
        "laptop": (PosSettings(), TrainConfig(epochs=12, patience=3, examples=32, learning_rate=2e-3)),
        "paper": (PosSettings(cells=300, layers=2, dropout=0.5), TrainConfig(epochs=60, patience=8, decay=0.7)),
    }

    @classmethod
    def read(cls, path: Path) -> list[TaggedSentence]:
        return read_tags(path)

    @classmethod
    def labels_of(cls, examples: Sequence[TaggedSentence]) -> Labels:
        return {"tags": sorted({tag for example in examples for tag in example.tags or ()})}

    def check(self, examples: Sequence[TaggedSentence]) -> None:
        known = set(self.labels["tags"])
        for example in examples:
            for tag in example.tags or ():
                if tag not in known:
                    raise unknown_label(example.where, f"tag {tag!r}", sorted(known))

    @staticmethod
    def sentences(example: TaggedSentence) -> list[list[str]]:
        return [example.tokens]

    def collate(self, examples: Sequence[TaggedSentence]) -> dict[str, Tensor]:
        if any(example.tags is None for example in examples):
            return {}
        numbers = {tag: i for i, tag in enumerate(self.labels["tags"])}
        # A tag that training has not seen can only be missed.
        tags = [[numbers.get(tag, IGNORED) for tag in example.tags or ()] for example in examples]
        return {"tags": pad_rows(tags, IGNORED)}

    def network(self, inputs: TokenInputs) -> PosNetwork:
        return PosNetwork(inputs, self.settings, self.labels["tags"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[TaggedSentence]) -> dict[str, float]:
        return {"accuracy": accuracy(self._confusion(predictions, examples))}

    def by_label(
        self, predictions: Sequence[list[str]], examples: Sequence[TaggedSentence]
    ) -> list[dict[str, Any]]:
        return label_rows(self._confusion(predictions, examples), self.labels["tags"])

    def _confusion(self, predictions: Sequence[list[str]], examples: Sequence[TaggedSentence]) -> Confusion:
        pairs = zip(examples, predictions, strict=True)
        return Counter(pair for example, tags in pairs for pair in zip(example.tags or (), tags))

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> TaggedSentence:
        return TaggedSentence(tokenize(text), None, where)

    @staticmethod
    def show(example: TaggedSentence, prediction: list[str]) -> str:
        return " ".join(f"{token}/{tag}" for token, tag in zip(example.tokens, prediction))
