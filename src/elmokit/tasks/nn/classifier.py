"""A network that gives every example one label: loss, decoding, probabilities.

An example without a target counts neither in the loss nor in the scores.

Shapes: B examples, N labels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy

from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.task import IGNORED, Batch, Network

LABELS = "labels"  # the one label set, and the targets [B] of a batch


class Classifier(Network):
    """Its `forward` returns scores [B, N]."""

    def __init__(self, inputs: TokenInputs, labels: Sequence[str]) -> None:
        super().__init__(inputs)
        self.labels = list(labels)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor: ...

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        targets = batch.features[LABELS]  # [B]
        total = cross_entropy(output, targets, ignore_index=IGNORED, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)

    def decode(self, output: Tensor, batch: Batch) -> list[str]:
        return [self.labels[i] for i in output.argmax(dim=-1).tolist()]

    def probabilities(self, output: Tensor) -> list[dict[str, float]]:
        """Of every label, one table per example."""
        return [dict(zip(self.labels, row)) for row in output.detach().softmax(dim=-1).tolist()]
