"""Every span of a segment as a mention: its vector, its score, and which spans are kept.

A span is [state of its first token ; state of its last ; attention over its words ; its width].

Shapes: N tokens of a segment, W widths of a span, I inputs, C states, F hidden units, M spans that are kept,
G width of a span's vector.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from elmokit.tasks.coref.clusters import Mention
from elmokit.tasks.coref.feed_forward import FeedForward


class Candidates(NamedTuple):
    """All spans of a segment: [n, w] begins at token n and has w + 1 tokens."""

    x: Tensor  # [N, I]
    states: Tensor  # [N, C]
    reach: Tensor  # [N, W], token n + w; within the segment, whatever the span is
    valid: Tensor  # [N, W], the span ends in its sentence
    heads: Tensor  # [N, W, W], the attention of span w to token n + u, 0 where u > w
    scores: Tensor  # [N, W]


class SpanScorer(nn.Module):
    """Scores all spans of a segment, and makes the vectors of those that are chosen."""

    START, END, HEAD, WIDTH = range(4)

    def __init__(self, inputs: int, states: int, *, max_width: int, hidden: int, feature: int, p: float) -> None:
        """
        max_width   tokens of a span, at most.
        feature     width of the vector of a span's width.
        """
        super().__init__()
        self.max_width = max_width
        self.width = 2 * states + inputs + feature  # G
        self.attention = FeedForward([states], hidden, p)
        self.mention = FeedForward([states, states, inputs, feature], hidden, p)
        self.span_width = nn.Embedding(max_width, feature)
        self.dropout = nn.Dropout(p)

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


class Segment(NamedTuple):
    first: int  # its first token, of the document
    scores: Tensor  # [N, W] of all its spans as mentions
    valid: Tensor  # [N, W]


def mention_loss(segments: Sequence[Segment], gold_mentions: Collection[Mention]) -> Tensor:
    """Cross-entropy of "is it a mention?", summed over all spans, per token."""
    total, tokens = torch.zeros(()), 0
    for first, scores, valid in segments:
        gold = torch.zeros_like(scores)
        for start, end in gold_mentions:
            n, w = start - first, end - start - 1
            if 0 <= n < len(scores) and w < scores.shape[1]:
                gold[n, w] = 1.0
        losses = nn.functional.binary_cross_entropy_with_logits(scores, gold, reduction="none")
        total, tokens = total + (losses * valid).sum(), tokens + len(scores)
    return total / max(1, tokens)
