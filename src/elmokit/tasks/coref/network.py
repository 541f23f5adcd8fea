"""Spans as candidates for mentions, and their antecedents: the network of Lee et al. 2017.

A span is [state of its first token ; state of its last ; attention over its words ; its width]. A feed-forward
network scores every span as a mention, the best are kept, and each of those is scored with the last K before it:

    s(i, j) = mention(i) + mention(j) + pair(i, j),    s(i, none) = 0

The first layer of a feed-forward network is linear in what is joined: it is computed part by part, by token
before spans are made and by span before pairs are. That is the same function at a tenth of the work.

Shapes: N tokens of a segment, W widths of a span, I inputs, C states, F hidden units, M spans that are kept,
G width of a span's vector, K antecedents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from elmokit.errors import UserError

BUCKETS = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # the least distance of each: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+
SPEAKERS = 3  # not known, the same, another
CHUNK = 2_000_000  # numbers of a product of pairs that are made at once: what a cache holds


@dataclass(frozen=True)
class CorefSettings:
    cells: int = 100  # of a direction
    hidden: int = 100  # units of the two layers of each feed-forward network
    feature: int = 20  # width of a feature's vector: a span's width, a distance, the same speaker
    max_width: int = 10  # tokens of a mention
    kept: float = 0.3  # spans a token that are kept: lambda
    antecedents: int = 75  # of a span, the last among those that are kept: K
    train_sentences: int = 40  # of a document, an epoch; in prediction, what is pruned together
    dropout: float = 0.2
    mention_weight: float = 1.0  # of the loss for being a mention at all, alone or not; the paper has none
    singletons: bool = False  # predict and score clusters of one mention, as OntoNotes does not

    def __post_init__(self) -> None:
        for name in ("cells", "hidden", "feature", "max_width", "antecedents", "train_sentences"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        if self.kept <= 0:
            raise UserError(f"kept: expected more than 0, found {self.kept}")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout: expected 0 or more and less than 1, found {self.dropout}")
        if self.mention_weight < 0:
            raise UserError(f"mention_weight: expected 0 or more, found {self.mention_weight}")
        if self.singletons and not self.mention_weight:
            raise UserError(
                "singletons: expected a mention_weight of more than 0, found 0: nothing else tells the model "
                "what a single mention is"
            )


class Scorer(nn.Module):
    """A feed-forward network of two hidden layers over joined parts -> one number.

    `part(n, x)` is part n's share of the first layer; their sum goes to `score`.
    """

    def __init__(self, parts: Sequence[int], hidden: int, dropout: float) -> None:
        super().__init__()
        self.parts = list(parts)
        self.first = nn.Linear(sum(parts), hidden)
        self.second = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.first, self.second, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def part(self, number: int, x: Tensor) -> Tensor:  # [..., parts[number]] -> [..., F]
        weight = torch.split(self.first.weight, self.parts, dim=1)[number]
        share: Tensor = x @ weight.t()
        return share

    def score(self, summed: Tensor) -> Tensor:  # [..., F] -> [...]
        x = self.dropout(torch.relu(summed + self.first.bias))
        x = self.dropout(torch.relu(self.second(x)))
        scores: Tensor = self.output(x).squeeze(-1)
        return scores


class Candidates(NamedTuple):
    """All spans of a segment: [n, w] begins at token n and has w + 1 tokens."""

    x: Tensor  # [N, I]
    states: Tensor  # [N, C]
    reach: Tensor  # [N, W], token n + w; within the segment, whatever the span is
    valid: Tensor  # [N, W], the span ends in its sentence
    heads: Tensor  # [N, W, W], the attention of span w to token n + u, 0 where u > w
    scores: Tensor  # [N, W]


class SpanScorer(nn.Module):
    START, END, HEAD, WIDTH = range(4)

    def __init__(self, inputs: int, states: int, settings: CorefSettings) -> None:
        super().__init__()
        self.max_width = settings.max_width
        self.width = 2 * states + inputs + settings.feature  # G
        self.attention = Scorer([states], settings.hidden, settings.dropout)
        self.mention = Scorer([states, states, inputs, settings.feature], settings.hidden, settings.dropout)
        self.span_width = nn.Embedding(settings.max_width, settings.feature)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, states: Tensor, sentence: Tensor) -> Candidates:
        """x [N, I], states [N, C], the number of each token's sentence [N]."""
        n, steps = torch.arange(len(x)), torch.arange(min(self.max_width, len(x)))
        reach = n.unsqueeze(1) + steps  # [N, W]
        inside = reach < len(x)
        reach = reach.clamp(max=len(x) - 1)
        valid = inside & (sentence[reach] == sentence.unsqueeze(1))
        # What is not valid is behind what is: a valid span attends to valid tokens only.
        attention = self.attention.score(self.attention.part(0, states))[reach]  # [N, W]
        behind = steps > steps.unsqueeze(1)  # [W, W]
        heads = attention.unsqueeze(1).masked_fill(behind, -torch.inf).softmax(dim=-1)  # [N, W, W]
        part = self.mention.part
        words = embedding(reach, part(self.HEAD, x))  # [N, W, F]
        summed = part(self.START, states).unsqueeze(1) + embedding(reach, part(self.END, states)) + heads @ words
        summed = summed + part(self.WIDTH, self._widths()[: len(steps)])
        return Candidates(x, states, reach, valid, heads, self.mention.score(summed))

    def vectors(self, spans: Candidates, start: Tensor, width: Tensor) -> Tensor:
        """g of chosen spans, by first token and width - 1: both [M] -> [M, G]."""
        words = embedding(spans.reach[start], spans.x)  # [M, W, I]
        head = (spans.heads[start, width].unsqueeze(1) @ words).squeeze(1)
        end = spans.reach[start, width]
        return torch.cat([spans.states[start], spans.states[end], head, self._widths()[width]], dim=-1)

    def _widths(self) -> Tensor:
        widths: Tensor = self.dropout(self.span_width.weight)
        return widths


class AntecedentScorer(nn.Module):
    OWN, OTHER, PRODUCT, DISTANCE, SPEAKER = range(5)

    def __init__(self, width: int, settings: CorefSettings) -> None:
        super().__init__()
        self.most = settings.antecedents
        feature = settings.feature
        self.pair = Scorer([width, width, width, feature, feature], settings.hidden, settings.dropout)
        self.distance = nn.Embedding(len(BUCKETS), feature)
        self.speaker = nn.Embedding(SPEAKERS, feature)
        self.dropout = nn.Dropout(settings.dropout)
        self.register_buffer("least", torch.tensor(BUCKETS), persistent=False)

    def forward(self, vectors: Tensor, mentions: Tensor, speakers: Tensor) -> Tensor:
        """Vectors [M, G], mention scores [M], speakers [M] (0: not known) of one document, in its order.

        -> [M, 1 + K]: no antecedent, the span before, the one before that ...; -inf where there is none.
        """
        steps = 1 + torch.arange(max(1, min(self.most, len(vectors) - 1)))  # [K]
        part = self.pair.part
        own, other = part(self.OWN, vectors), part(self.OTHER, vectors)  # [M, F]
        bucket = torch.bucketize(steps, self.get_buffer("least"), right=True) - 1
        distance = part(self.DISTANCE, self.dropout(self.distance.weight))[bucket]  # [K, F]
        speaker = part(self.SPEAKER, self.dropout(self.speaker.weight))  # [3, F]
        rows = max(1, CHUNK // (len(steps) * vectors.shape[1]))
        found = []
        for first in range(0, len(vectors), rows):
            i = torch.arange(first, min(first + rows, len(vectors)))  # [m]
            before = i.unsqueeze(1) - steps  # [m, K]
            j = before.clamp(min=0)
            product = vectors[i].unsqueeze(1) * embedding(j, vectors)  # [m, K, G]
            summed = own[i].unsqueeze(1) + embedding(j, other) + part(self.PRODUCT, product) + distance
            summed = summed + (embedding(_same(speakers, i, j), speaker) if speakers.any() else speaker[0])
            scores = mentions[i].unsqueeze(1) + mentions[j] + self.pair.score(summed)
            found.append(scores.masked_fill(before < 0, -torch.inf))
        scores = torch.cat(found)
        return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=1)


def _same(speakers: Tensor, i: Tensor, j: Tensor) -> Tensor:
    own, other = speakers[i].unsqueeze(1), speakers[j]
    return torch.where((own == 0) | (other == 0), 0, torch.where(own == other, 1, 2))


def prune(scores: Tensor, valid: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The best spans of [N, W], at most so many, no two of which cross: first tokens and widths - 1, in order."""
    tokens, widths = scores.shape
    ranked = scores.detach().masked_fill(~valid, -torch.inf).flatten()
    order = ranked.argsort(descending=True, stable=True)[: int(valid.sum())].tolist()
    furthest = list(range(tokens))  # of the spans kept that begin at a token, the last end
    earliest = list(range(tokens))  # of those that end there, the first beginning
    kept: list[tuple[int, int]] = []
    for number in order:
        if len(kept) == most:
            break
        start, width = divmod(number, widths)
        end = start + width
        if any(furthest[t] > end for t in range(start + 1, end + 1)):
            continue
        if any(earliest[t] < start for t in range(start, end)):
            continue
        furthest[start], earliest[end] = max(furthest[start], end), min(earliest[end], start)
        kept.append((start, width))
    chosen = torch.tensor(sorted(kept), dtype=torch.int64).reshape(-1, 2)
    return chosen[:, 0], chosen[:, 1]


def antecedent_loss(scores: Tensor, clusters: Tensor) -> Tensor:
    """-log of the share of the right antecedents, whichever they are: [M, 1 + K], clusters [M] -> the mean.

    A cluster of 0 is no mention. Where none of a span's antecedents is right, no antecedent is.
    """
    before = torch.arange(len(scores)).unsqueeze(1) - torch.arange(1, scores.shape[1])  # [M, K]
    same = clusters.unsqueeze(1) == clusters[before.clamp(min=0)]
    same = same & (before >= 0) & (clusters > 0).unsqueeze(1)
    right = torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)
    return (scores.logsumexp(dim=1) - scores.masked_fill(~right, -torch.inf).logsumexp(dim=1)).mean()


def follow(scores: Tensor) -> list[list[int]]:
    """[M, 1 + K] -> clusters of two spans or more, by each span's best antecedent; in the order of the spans."""
    clusters: list[list[int]] = []
    cluster_of: dict[int, list[int]] = {}
    best, step = scores.max(dim=1)
    for i, (score, back) in enumerate(zip(best.tolist(), step.tolist())):
        if back and score > 0:
            antecedent = i - back
            if antecedent not in cluster_of:
                cluster_of[antecedent] = [antecedent]
                clusters.append(cluster_of[antecedent])
            cluster_of[i] = cluster_of[antecedent]
            cluster_of[i].append(i)
    return sorted(clusters)
