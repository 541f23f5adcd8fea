"""The biattentive classification network (McCann et al. 2017, *Learned in translation*), of one sentence.

Feedforward and biLSTM; attention of the sentence to itself; a biLSTM that integrates both; four ways to pool;
maxout layers. Two things differ from the paper. The maxout layers have layer norm in place of batch norm: a
sentence's scores must not depend on what else is in its batch, in training as in prediction (small batches of
like lengths make poor statistics), and Peters et al. 2018 had lower scores with batch norm and left it out.
And the last of the three layers is linear.

Shapes: B sentences, T tokens, H cells of a direction, D width of ELMo where it is at the output, N labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.attention import attend, masked_max, masked_mean, masked_softmax
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.nn.classifier import Classifier
from elmokit.tasks.task import Batch


@dataclass(frozen=True)
class SentimentSettings:
    feedforward: int = 100  # width of what the first biLSTM reads
    cells: int = 100  # of a direction, in both biLSTMs
    maxout: tuple[int, ...] = (200, 100)  # widths of the layers before the last
    pieces: int = 4  # of a maxout unit
    dropout: float = 0.3
    classes: int = 5  # 5: the labels as they are; 2: negative and positive, without the neutral
    phrase_tokens: int = 4  # phrases of trees that are as long train too (as McCann et al. do); 0: none do
    phrases: int | None = 40_000  # of these at most, drawn once

    def __post_init__(self) -> None:
        check_positive(feedforward=self.feedforward, cells=self.cells, pieces=self.pieces)
        check_dropout(dropout=self.dropout)
        if self.classes not in (2, 5):
            raise UserError(f"classes: expected 2 or 5, found {self.classes}")
        if self.phrase_tokens < 0 or (self.phrases is not None and self.phrases < 0):
            raise UserError(
                f"phrase_tokens, phrases: expected 0 or more, found {self.phrase_tokens} and {self.phrases}"
            )


class BiattentiveNetwork(Classifier):
    def __init__(self, inputs: TokenInputs, settings: SentimentSettings, labels: Sequence[str]) -> None:
        super().__init__(inputs, labels)
        self.feedforward = nn.Linear(inputs.width, settings.feedforward)
        self.encoder = BiLSTM(settings.feedforward, settings.cells)
        joined = self.encoder.width + inputs.output_width  # 2H + D
        self.integrator = BiLSTM(3 * joined, settings.cells)
        self.attention = nn.Linear(self.integrator.width, 1)
        self.dropout = nn.Dropout(settings.dropout)
        layers: list[nn.Module] = []
        width = 4 * self.integrator.width
        for size in settings.maxout:
            layers += [nn.LayerNorm(width), nn.Dropout(settings.dropout), Maxout(width, size, settings.pieces)]
            width = size
        self.output = nn.Sequential(*layers, nn.LayerNorm(width), nn.Linear(width, len(self.labels)))

    def forward(self, batch: Batch) -> Tensor:  # [B, N]
        x, at_output, mask = self.inputs(batch.sentences[0])
        x = self.encoder(self.dropout(self.feedforward(x).relu()), mask)  # [B, T, 2H]
        x = self.join_output(x, at_output)  # [B, T, 2H + D]
        seen = attend(x, x, mask)
        x = self.integrator(torch.cat([x, x - seen, x * seen], dim=-1), mask)  # [B, T, 2H]
        shares = masked_softmax(self.attention(x).squeeze(-1), mask)  # [B, T]
        attentive = (shares.unsqueeze(1) @ x).squeeze(1)
        pooled = torch.cat([masked_max(x, mask), masked_mean(x, mask), -masked_max(-x, mask), attentive], dim=-1)
        scores: Tensor = self.output(pooled)
        return scores


class Maxout(nn.Module):
    """x [B, inputs] -> [B, width]: each unit is the greatest of several linear ones (Goodfellow et al. 2013)."""

    def __init__(self, inputs: int, width: int, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.linear = nn.Linear(inputs, width * pieces)

    def forward(self, x: Tensor) -> Tensor:
        units: Tensor = self.linear(x).unflatten(-1, (-1, self.pieces))
        return units.amax(dim=-1)
