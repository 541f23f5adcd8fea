"""Parts of speech: a tag a token, by a biLSTM and a softmax, or by the softmax alone (`cells = 0`).

After Ling et al. 2015, *Finding function in form*. Files are CoNLL-U (column UPOS).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.bilstm import BiLSTM, SharedDropout
from elmokit.tasks.task import Batch, Labels, Network, Task, TrainConfig, located
from elmokit.text.conll import read_blocks

FIELDS, FORM, UPOS = 10, 1, 3  # of CoNLL-U
IGNORED = -100  # a target that does not count


@dataclass(frozen=True)
class PosSettings:
    cells: int = 128  # of a direction; 0: no biLSTM
    layers: int = 1
    dropout: float = 0.3


@dataclass(frozen=True)
class TaggedSentence:
    tokens: list[str]
    tags: list[str] | None
    where: str


class PosNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: PosSettings, tags: list[str]) -> None:
        super().__init__(inputs)
        self.tags = tags
        self.encoder = (
            BiLSTM(inputs.width, settings.cells, settings.layers, settings.dropout) if settings.cells else None
        )
        width = self.encoder.width if self.encoder else inputs.width
        self.dropout = SharedDropout(settings.dropout)
        self.output = nn.Linear(width + inputs.output_width, len(tags))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, tags]
        x, at_output, mask = self.inputs(batch.sentences[0])
        if self.encoder is not None:
            x = self.dropout(self.encoder(x, mask))
        if at_output is not None:  # it has had its dropout
            x = torch.cat([x, at_output], dim=-1)
        scores: Tensor = self.output(x)
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(output.flatten(0, 1), batch.features["tags"].flatten())

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        lengths = batch.sentences[0].mask.sum(dim=1)
        best = output.argmax(dim=-1)
        return [[self.tags[int(i)] for i in row[: int(n)]] for row, n in zip(best, lengths)]


class PartsOfSpeech(Task[TaggedSentence]):
    name = "pos"
    summary = "parts of speech of CoNLL-U: biLSTM and softmax (Ling et al. 2015)"
    metric = "accuracy"
    settings_class = PosSettings
    recipes: ClassVar = {
        "laptop": (PosSettings(), TrainConfig(epochs=12, patience=3, examples=32, learning_rate=2e-3)),
        "paper": (PosSettings(cells=300, layers=2, dropout=0.5), TrainConfig(epochs=60, patience=8, decay=0.7)),
    }

    @classmethod
    def read(cls, path: Path) -> list[TaggedSentence]:
        examples = []
        for block in read_blocks(path, tabs=True, comment=lambda text: text.startswith("#"), least=FIELDS):
            words = [row for row in block if row.fields[0].isdigit()]  # not 1-2, not 8.1
            for row in words:
                if not row.fields[FORM] or row.fields[UPOS] in ("", "_"):
                    raise UserError(f"{path}, line {row.line}: expected a word and its UPOS, found an empty field")
            if words:
                examples.append(
                    TaggedSentence(
                        [row.fields[FORM] for row in words],
                        [row.fields[UPOS] for row in words],
                        located(path, words[0].line),
                    )
                )
        if not examples:
            raise UserError(f"{path}: expected tagged words, found none")
        return examples

    @classmethod
    def labels_of(cls, examples: Sequence[TaggedSentence]) -> Labels:
        return {"tags": sorted({tag for example in examples for tag in example.tags or ()})}

    def check(self, examples: Sequence[TaggedSentence]) -> None:
        known = set(self.labels["tags"])
        for example in examples:
            for tag in example.tags or ():
                if tag not in known:
                    raise UserError(
                        f"{example.where}: tag {tag!r} is not among those of training: {', '.join(sorted(known))}"
                    )

    @staticmethod
    def sentences(example: TaggedSentence) -> list[list[str]]:
        return [example.tokens]

    def collate(self, examples: Sequence[TaggedSentence]) -> dict[str, Tensor]:
        if any(example.tags is None for example in examples):
            return {}
        numbers = {tag: i for i, tag in enumerate(self.labels["tags"])}
        longest = max(len(example.tokens) for example in examples)
        tags = torch.full((len(examples), longest), IGNORED)
        for row, example in zip(tags, examples):
            row[: len(example.tokens)] = torch.tensor(
                [numbers.get(tag, IGNORED) for tag in example.tags or ()]  # a new one can only be missed
            )
        return {"tags": tags}

    def network(self, inputs: TokenInputs) -> PosNetwork:
        return PosNetwork(inputs, self.settings, self.labels["tags"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[TaggedSentence]) -> dict[str, float]:
        pairs = [pair for p, e in zip(predictions, examples, strict=True) for pair in zip(p, e.tags or ())]
        return {"accuracy": 100 * sum(found == right for found, right in pairs) / max(1, len(pairs))}

    def by_label(
        self, predictions: Sequence[list[str]], examples: Sequence[TaggedSentence]
    ) -> list[dict[str, Any]]:
        pairs = Counter(pair for p, e in zip(predictions, examples, strict=True) for pair in zip(e.tags or (), p))
        rows = []
        for tag in self.labels["tags"]:
            right = pairs[tag, tag]
            there = sum(count for (gold, _), count in pairs.items() if gold == tag)
            said = sum(count for (_, found), count in pairs.items() if found == tag)
            wrong = Counter({found: n for (gold, found), n in pairs.items() if gold == tag and found != tag})
            rows.append(
                {
                    "label": tag,
                    "precision": 100 * right / max(1, said),
                    "recall": 100 * right / max(1, there),
                    "count": there,
                    "taken for": [name for name, _ in wrong.most_common(2)],
                }
            )
        return rows

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> TaggedSentence:
        return TaggedSentence(tokenize(text), None, where)

    @staticmethod
    def show(example: TaggedSentence, prediction: list[str]) -> str:
        return " ".join(f"{token}/{tag}" for token, tag in zip(example.tokens, prediction))
