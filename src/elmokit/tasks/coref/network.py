"""Coreference end to end: spans are scored as mentions, the best find antecedents.

After Lee et al. 2017, *End-to-end neural coreference resolution*, without its genre feature and its character CNN.
A document is read by segments; an antecedent may be in an earlier one.

Shapes: B sentences of a segment, T tokens, N tokens of the segment, W widths of a span, I inputs, H cells of a
direction, M spans that are kept, K antecedents.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.errors import UserError
from elmokit.tasks.coref.antecedents import AntecedentScorer, antecedent_loss, follow
from elmokit.tasks.coref.clusters import Mention
from elmokit.tasks.coref.mentions import Segment, SpanScorer, mention_loss, prune
from elmokit.tasks.inputs import Padded, TokenInputs
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.task import Batch, Network

GROUPS = 4  # of a segment's sentences, by length
Prediction = list[list[list[int]]]  # clusters of [start, end)


@dataclass(frozen=True)
class CorefSettings:
    cells: int = 100  # of a direction
    hidden: int = 100  # units of the two layers of each feed-forward network
    feature: int = 20  # width of a feature's vector: a span's width, a distance, the same speaker
    max_width: int = 10  # tokens of a mention
    kept: float = 0.3  # spans per token that are kept: lambda
    antecedents: int = 75  # of a span, the last among those that are kept: K
    train_sentences: int = 40  # of a document, per epoch; in prediction, what is pruned together
    dropout: float = 0.2
    mention_weight: float = 1.0  # of the loss for being a mention at all, alone or not; the paper has none
    singletons: bool = False  # predict and score clusters of one mention, as OntoNotes does not

    def __post_init__(self) -> None:
        check_positive(
            cells=self.cells,
            hidden=self.hidden,
            feature=self.feature,
            max_width=self.max_width,
            antecedents=self.antecedents,
            train_sentences=self.train_sentences,
        )
        check_dropout(dropout=self.dropout)
        if self.kept <= 0:
            raise UserError(f"kept: expected more than 0, found {self.kept}")
        if self.mention_weight < 0:
            raise UserError(f"mention_weight: expected 0 or more, found {self.mention_weight}")
        if self.singletons and not self.mention_weight:
            raise UserError(
                "singletons: expected a mention_weight of more than 0, found 0: nothing else tells the model "
                "what a single mention is"
            )


class Scores(NamedTuple):
    """Of a document's spans that were kept, in its order."""

    spans: list[Mention]
    mentions: Tensor  # [M]
    antecedents: Tensor  # [M, 1 + K]
    segments: list[Segment]


class CorefNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: CorefSettings) -> None:
        super().__init__(inputs)
        self.settings = settings
        self.encoder = BiLSTM(inputs.width, settings.cells)
        self.dropout = nn.Dropout(settings.dropout)
        hidden, feature, p = settings.hidden, settings.feature, settings.dropout
        states = self.encoder.width + inputs.output_width
        self.spans = SpanScorer(
            inputs.width, states, max_width=settings.max_width, hidden=hidden, feature=feature, p=p
        )
        self.antecedents = AntecedentScorer(
            self.spans.width, most=settings.antecedents, hidden=hidden, feature=feature, p=p
        )

    def forward(self, batch: Batch) -> list[Scores]:
        texts, found, token = iter(batch.sentences), [], 0
        for count in batch.features["segments"].tolist():
            segments = list(itertools.islice(texts, count))
            tokens = sum(int(segment.mask.sum()) for segment in segments)
            found.append(self._document(segments, batch.features["speakers"][token : token + tokens]))
            token += tokens
        return found

    def _document(self, texts: Sequence[Padded], speakers: Tensor) -> Scores:
        spans: list[Mention] = []
        vectors, mentions, segments = [], [], []
        offset = 0
        for text in texts:
            x, at_output, mask = self.inputs(text)
            states = self.join_output(self.dropout(self._states(x, mask)), at_output)
            sentence = mask.nonzero()[:, 0]  # [N]
            candidates = self.spans(x[mask], states[mask], sentence)
            most = math.ceil(self.settings.kept * len(sentence))
            start, width = prune(candidates.scores, candidates.valid, most)
            spans += [(offset + s, offset + s + w + 1) for s, w in zip(start.tolist(), width.tolist())]
            vectors.append(self.spans.vectors(candidates, start, width))
            mentions.append(candidates.scores[start, width])
            segments.append(Segment(offset, candidates.scores, candidates.valid))
            offset += len(sentence)
        if not spans:
            return Scores([], torch.zeros(0), torch.zeros(0, 1), [])
        said_by = speakers[torch.tensor([start for start, _ in spans])]
        joined = torch.cat(mentions)
        return Scores(spans, joined, self.antecedents(torch.cat(vectors), joined, said_by), segments)

    def _states(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [B, T, I], mask [B, T] -> [B, T, 2H]: sentences of like lengths are encoded together.

        The longest sentence of a segment has several times the tokens of most: all of them padded to it would be
        mostly padding.
        """
        lengths, order = mask.sum(dim=1).sort()
        found = []
        for group, longest in zip(order.chunk(GROUPS), (int(part[-1]) for part in lengths.chunk(GROUPS))):
            states = self.encoder(x[group, :longest], mask[group, :longest])
            found.append(nn.functional.pad(states, (0, 0, 0, x.shape[1] - longest)))
        return torch.cat(found)[order.argsort()]

    def loss(self, output: list[Scores], batch: Batch) -> Tensor:
        """The mean over the kept spans of a document, then over the documents."""
        gold: list[dict[Mention, int]] = [{} for _ in output]
        for document, start, end, cluster in batch.features["mentions"].tolist():
            gold[document][start, end] = cluster
        total = torch.zeros(())
        for scores, clusters in zip(output, gold):
            if not scores.spans:
                continue
            numbers = torch.tensor([clusters.get(span, 0) for span in scores.spans])
            total = total + antecedent_loss(scores.antecedents, numbers)
            if self.settings.mention_weight:
                total = total + self.settings.mention_weight * mention_loss(scores.segments, clusters)
        return total / max(1, len(output))

    def decode(self, output: list[Scores], batch: Batch) -> list[Prediction]:
        return [self._clusters(scores) for scores in output]

    def _clusters(self, scores: Scores) -> Prediction:
        found = follow(scores.antecedents)
        if self.settings.singletons:
            taken = {number for cluster in found for number in cluster}
            found += [[i] for i, s in enumerate(scores.mentions.tolist()) if s > 0 and i not in taken]
        return sorted([list(scores.spans[number]) for number in cluster] for cluster in found)
