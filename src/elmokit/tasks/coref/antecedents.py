"""Which earlier span a span refers to: scores of pairs, their loss, and clusters.

    s(i, j) = mention(i) + mention(j) + pair(i, j),    s(i, none) = 0

Shapes: M spans that are kept, G width of a span's vector, K antecedents, F hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from elmokit.tasks.coref.feed_forward import FeedForward

BUCKETS = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # the least distance of each: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+
SPEAKERS = 3  # not known, the same, another
CHUNK = 2_000_000  # numbers of a product of pairs that are made at once: what a cache holds


class AntecedentScorer(nn.Module):
    """Scores each span with the last K before it."""

    OWN, OTHER, PRODUCT, DISTANCE, SPEAKER = range(5)

    def __init__(self, width: int, *, most: int, hidden: int, feature: int, p: float) -> None:
        """
        width     of a span's vector: G.
        most      antecedents of a span, the last among those before it: K.
        feature   width of the vector of a distance, and of who speaks.
        """
        super().__init__()
        self.most = most
        self.pair = FeedForward([width, width, width, feature, feature], hidden, p)
        self.distance = nn.Embedding(len(BUCKETS), feature)
        self.speaker = nn.Embedding(SPEAKERS, feature)
        self.dropout = nn.Dropout(p)
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


def antecedent_loss(scores: Tensor, clusters: Tensor) -> Tensor:
    """-log of the share of the gold antecedents, whichever they are: [M, 1 + K], clusters [M] -> the mean.

    A cluster of 0 is no mention. Where none of a span's antecedents is of its cluster, no antecedent is gold.
    """
    before = torch.arange(len(scores)).unsqueeze(1) - torch.arange(1, scores.shape[1])  # [M, K]
    same = clusters.unsqueeze(1) == clusters[before.clamp(min=0)]
    same = same & (before >= 0) & (clusters > 0).unsqueeze(1)
    gold = torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)
    return (scores.logsumexp(dim=1) - scores.masked_fill(~gold, -torch.inf).logsumexp(dim=1)).mean()


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
