"""ESIM (Chen et al. 2017, *Enhanced LSTM for natural language inference*): two sentences, aligned word by word.

One biLSTM reads both; each token is compared with what it finds in the other sentence; a second biLSTM composes
the comparisons; their mean and maximum go through a hidden layer.

Shapes: B pairs, T and S tokens of the two sentences, H cells of a direction, D width of ELMo where it is at the
output, N labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.tasks.inputs import Padded, TokenInputs
from elmokit.tasks.nn.attention import attend, masked_max, masked_mean
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.nn.classifier import Classifier
from elmokit.tasks.task import Batch


@dataclass(frozen=True)
class EsimSettings:
    cells: int = 128  # of a direction, in both biLSTMs; also the width of the projection and the hidden layer
    dropout: float = 0.3

    def __post_init__(self) -> None:
        check_positive(cells=self.cells)
        check_dropout(dropout=self.dropout)


class EsimNetwork(Classifier):
    def __init__(self, inputs: TokenInputs, settings: EsimSettings, labels: Sequence[str]) -> None:
        super().__init__(inputs, labels)
        cells = settings.cells
        self.encoder = BiLSTM(inputs.width, cells)
        joined = self.encoder.width + inputs.output_width  # 2H + D
        self.projection = nn.Linear(4 * joined, cells)
        self.composer = BiLSTM(cells, cells)
        self.dropout = nn.Dropout(settings.dropout)
        self.hidden = nn.Linear(4 * self.composer.width, cells)
        self.output = nn.Linear(cells, len(self.labels))

    def forward(self, batch: Batch) -> Tensor:  # [B, N]
        premise, hypothesis = batch.sentences
        a, b = self._encode(premise), self._encode(hypothesis)  # [B, T, 2H + D], [B, S, 2H + D]
        pooled = torch.cat(
            [
                *self._compose(a, attend(a, b, hypothesis.mask), premise.mask),
                *self._compose(b, attend(b, a, premise.mask), hypothesis.mask),
            ],
            dim=-1,
        )  # [B, 8H]
        scores: Tensor = self.output(self.dropout(self.hidden(self.dropout(pooled)).tanh()))
        return scores

    def _encode(self, sentence: Padded) -> Tensor:
        x, at_output, mask = self.inputs(sentence)
        return self.join_output(self.dropout(self.encoder(x, mask)), at_output)

    def _compose(self, x: Tensor, aligned: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the maximum, each [B, 2H], of x beside what it was aligned with."""
        compared = self.projection(torch.cat([x, aligned, x - aligned, x * aligned], dim=-1)).relu()
        composed = self.composer(self.dropout(compared), mask)
        return masked_mean(composed, mask), masked_max(composed, mask)
