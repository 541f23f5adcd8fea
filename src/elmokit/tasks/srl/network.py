"""The tagger of semantic roles: interleaved highway LSTM, softmax, the best valid BIO path.

After He et al. 2017, *Deep semantic role labeling: what works and what's next*, as Peters et al. 2018 ran it:
[word ; ELMo ; is it the predicate?] -> LSTM -> [. ; ELMo at the output] -> scores of tags.

Shapes: B propositions, T tokens, K tags.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.highway_lstm import HighwayLSTM
from elmokit.tasks.nn.viterbi import BioViterbi
from elmokit.tasks.spans import bio_tags
from elmokit.tasks.task import IGNORED, Batch, Network


@dataclass(frozen=True)
class SrlSettings:
    cells: int = 128
    layers: int = 4  # 1, 3 ... read from left to right, 2, 4 ... from right to left
    indicator: int = 16  # width of "this token is the predicate"
    dropout: float = 0.1  # of the states, one mask per sentence

    def __post_init__(self) -> None:
        check_positive(cells=self.cells, layers=self.layers, indicator=self.indicator)
        check_dropout(dropout=self.dropout)


class SrlNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: SrlSettings, roles: list[str]) -> None:
        super().__init__(inputs)
        tags = bio_tags(roles)
        self.viterbi = BioViterbi(tags)
        self.indicator = nn.Embedding(2, settings.indicator)
        self.encoder = HighwayLSTM(
            inputs.width + settings.indicator, settings.cells, settings.layers, settings.dropout
        )
        self.output = nn.Linear(settings.cells + inputs.output_width, len(tags))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, K]
        x, at_output, mask = self.inputs(batch.sentences[0])
        x = self.encoder(torch.cat([x, self.indicator(batch.features["predicate"])], dim=-1), mask)
        scores: Tensor = self.output(self.join_output(x, at_output))
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The mean over a sentence's tokens, then over the sentences."""
        tags = batch.features["tags"]
        by_token = nn.functional.cross_entropy(
            output.transpose(1, 2), tags, ignore_index=IGNORED, reduction="none"
        )  # [B, T]
        return (by_token.sum(dim=1) / (tags != IGNORED).sum(dim=1).clamp(min=1)).mean()

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        return self.viterbi(output, batch.sentences[0].mask)
