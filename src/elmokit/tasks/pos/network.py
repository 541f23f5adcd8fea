"""The tagger of parts of speech: a biLSTM and a softmax, or the softmax alone (`cells = 0`).

After Ling et al. 2015, *Finding function in form*.

Shapes: B sentences, T tokens, K tags.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.nn.dropout import VariationalDropout
from elmokit.tasks.task import IGNORED, Batch, Network


@dataclass(frozen=True)
class PosSettings:
    cells: int = 128  # of a direction; 0: no biLSTM
    layers: int = 1
    dropout: float = 0.3

    def __post_init__(self) -> None:
        if self.cells < 0:
            raise UserError(f"cells: expected 0 or more, found {self.cells}")
        check_positive(layers=self.layers)
        check_dropout(dropout=self.dropout)


class PosNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: PosSettings, tags: list[str]) -> None:
        super().__init__(inputs)
        self.tags = tags
        self.encoder = (
            BiLSTM(inputs.width, settings.cells, settings.layers, settings.dropout) if settings.cells else None
        )
        width = self.encoder.width if self.encoder else inputs.width
        self.dropout = VariationalDropout(settings.dropout)
        self.output = nn.Linear(width + inputs.output_width, len(tags))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, K]
        x, at_output, mask = self.inputs(batch.sentences[0])
        if self.encoder is not None:
            x = self.dropout(self.encoder(x, mask))
        scores: Tensor = self.output(self.join_output(x, at_output))
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        tags = batch.features["tags"]
        return nn.functional.cross_entropy(output.flatten(0, 1), tags.flatten(), ignore_index=IGNORED)

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        lengths = batch.sentences[0].mask.sum(dim=1)
        best = output.argmax(dim=-1)
        return [[self.tags[int(i)] for i in row[: int(n)]] for row, n in zip(best, lengths)]
