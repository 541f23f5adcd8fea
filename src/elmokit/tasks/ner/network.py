"""The tagger of named entities: character CNN, biLSTMs and a CRF over BIOES tags.

After Ma and Hovy 2016, *End-to-end sequence labeling via bi-directional LSTM-CNNs-CRF*, and the tagger of Peters
et al. 2017, *Semi-supervised sequence tagging with bidirectional language models*, which ELMo's paper builds on.

Shapes: B sentences, T tokens, K tags.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout
from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.ner.characters import CharacterFeatures
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.nn.crf import CRF, Allowed
from elmokit.tasks.nn.dropout import VariationalDropout
from elmokit.tasks.spans import bioes_may_follow, bioes_tags, spans_of, to_bio
from elmokit.tasks.task import Batch, Network


@dataclass(frozen=True)
class NerSettings:
    cells: tuple[int, ...] = (128,)  # of a direction, one number per layer
    input_dropout: float = 0.2  # of each layer's input, after what word vectors and ELMo have had of their own
    dropout: float = 0.5  # of the last layer's output
    characters: int = 24  # bytes of a token that are read, its two ends among them
    character_width: int = 25
    filters: int = 50
    filter_width: int = 3

    def __post_init__(self) -> None:
        if not self.cells or min(self.cells) < 1:
            raise UserError(f"cells: expected one number or more, each at least 1, found {self.cells}")
        if self.filter_width % 2 == 0:
            raise UserError(f"filter_width: expected an odd number, found {self.filter_width}")
        check_dropout(input_dropout=self.input_dropout, dropout=self.dropout)


class NerNetwork(Network):
    """[word ; characters ; ELMo] -> biLSTMs -> [. ; ELMo at the output] -> scores of tags -> CRF."""

    def __init__(self, inputs: TokenInputs, settings: NerSettings, types: list[str]) -> None:
        super().__init__(inputs)
        self.tags = bioes_tags(types)
        self.characters = CharacterFeatures(
            settings.characters, settings.character_width, settings.filters, settings.filter_width
        )
        widths = [inputs.width + settings.filters, *(2 * cells for cells in settings.cells)]
        self.layers = nn.ModuleList(BiLSTM(width, cells) for width, cells in zip(widths, settings.cells))
        self.input_dropout = VariationalDropout(settings.input_dropout)
        self.dropout = VariationalDropout(settings.dropout)
        self.output = nn.Linear(widths[-1] + inputs.output_width, len(self.tags))
        self.crf = CRF(Allowed.by_rule(self.tags, bioes_may_follow))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, K]
        (sentence,) = batch.sentences
        x, at_output, mask = self.inputs(sentence)
        x = torch.cat([x, self.characters(sentence.tokens, mask.shape[1])], dim=-1)
        for layer in self.layers:
            x = layer(self.input_dropout(x), mask)
        scores: Tensor = self.output(self.join_output(self.dropout(x), at_output))
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        likelihood: Tensor = self.crf(output, batch.features["tags"], batch.sentences[0].mask)
        return -likelihood.mean()

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        paths = self.crf.best_paths(output, batch.sentences[0].mask)
        return [to_bio(spans_of([self.tags[i] for i in path]), len(path)) for path in paths]
