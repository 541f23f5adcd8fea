"""One label an example: the network's scores and loss, accuracy, and what each label is taken for.

An example without an answer (a user's line, a neutral review where there are two classes) counts neither in the
loss nor in the scores.

Shapes: B examples, N labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.task import Batch, Labels, Network, Task

UNANSWERED = -100  # a target that does not count
LABELS = "labels"  # the one label set, and the targets [B] of a batch


class Labelled(Protocol):
    @property
    def label(self) -> str | None: ...

    @property
    def where(self) -> str: ...


L = TypeVar("L", bound=Labelled)


class Classifier(Network):
    """A network whose `forward` returns scores [B, N]."""

    def __init__(self, inputs: TokenInputs, labels: Sequence[str]) -> None:
        super().__init__(inputs)
        self.labels = list(labels)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor: ...

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        targets = batch.features[LABELS]  # [B]
        total = nn.functional.cross_entropy(output, targets, ignore_index=UNANSWERED, reduction="sum")
        return total / (targets != UNANSWERED).sum().clamp(min=1)

    def decode(self, output: Tensor, batch: Batch) -> list[str]:
        return [self.labels[i] for i in output.argmax(dim=-1).tolist()]

    def probabilities(self, output: Tensor) -> list[dict[str, float]]:
        """Of every label, one table an example."""
        return [dict(zip(self.labels, row)) for row in output.detach().softmax(dim=-1).tolist()]


class LabelTask(Task[L]):
    metric = "accuracy"

    @classmethod
    def labels_of(cls, examples: Sequence[L]) -> Labels:
        return {LABELS: sorted({example.label for example in examples if example.label is not None})}

    def answer(self, example: L) -> str | None:
        """The label that counts; None where there is none."""
        return example.label

    def check(self, examples: Sequence[L]) -> None:
        known = set(self.labels[LABELS])
        for example in examples:
            answer = self.answer(example)
            if answer is not None and answer not in known:
                raise UserError(
                    f"{example.where}: label {answer!r} is not among those of training: {', '.join(sorted(known))}"
                )

    def collate(self, examples: Sequence[L]) -> dict[str, Tensor]:
        numbers: dict[str | None, int] = {label: i for i, label in enumerate(self.labels[LABELS])}
        return {LABELS: torch.tensor([numbers.get(self.answer(example), UNANSWERED) for example in examples])}

    def metrics(self, predictions: Sequence[str], examples: Sequence[L]) -> dict[str, float]:
        pairs = self._pairs(predictions, examples)
        right = sum(count for (answer, found), count in pairs.items() if answer == found)
        return {"accuracy": 100 * right / max(1, pairs.total())}

    def by_label(self, predictions: Sequence[str], examples: Sequence[L]) -> list[dict[str, Any]]:
        """One row a label; "found as" is the label's row of the confusion matrix, "taken for" its worst errors."""
        pairs = self._pairs(predictions, examples)
        labels = self.labels[LABELS]
        rows = []
        for label in labels:
            found_as = {found: pairs[label, found] for found in labels}
            said = sum(pairs[answer, label] for answer in labels)
            wrong = Counter({found: n for found, n in found_as.items() if n and found != label})
            rows.append(
                {
                    "label": label,
                    "precision": 100 * found_as[label] / max(1, said),
                    "recall": 100 * found_as[label] / max(1, sum(found_as.values())),
                    "count": sum(found_as.values()),
                    "taken for": [name for name, _ in wrong.most_common(2)],
                    "found as": found_as,
                }
            )
        return rows

    def _pairs(self, predictions: Sequence[str], examples: Sequence[L]) -> Counter[tuple[str, str]]:
        """How often each (answer, prediction) is there."""
        answers = [self.answer(example) for example in examples]
        return Counter((a, p) for a, p in zip(answers, predictions, strict=True) if a is not None)
