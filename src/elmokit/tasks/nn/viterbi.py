"""Viterbi: the best path of tags, for a CRF and for BIO tags without learned steps.

Shapes: B sentences, T tokens, K tags. A mask is True on a sentence's tokens, which come before its padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.errors import UserError, listed


class BestPaths(NamedTuple):
    tags: list[list[int]]  # B paths, each as long as its sentence
    scores: Tensor  # [B]


def best_paths(
    emissions: Tensor,
    mask: Tensor,
    advance: Callable[[Tensor], tuple[Tensor, Tensor]],
    starts: Tensor | None = None,
    ends: Tensor | None = None,
) -> BestPaths:
    """The path of every sentence with the highest sum of scores; the first tag of those that are equal.

    emissions      [B, T, K].
    advance        scores of the best paths that end in each tag [B, K] -> those of the best step from them into
                   each tag [B, K], and the tag that it comes from [B, K].
    starts, ends   [K], of a path's first and last tag.
    """
    if not mask.numel():
        return BestPaths([[] for _ in mask], emissions.new_zeros(len(mask)))
    first = emissions[:, 0]
    best = first if starts is None else first + starts  # [B, K], of the paths that end in each tag
    itself = torch.arange(emissions.shape[2], device=mask.device).expand_as(best)
    came_from = []  # T - 1 times [B, K]
    for t in range(1, emissions.shape[1]):
        reached, before = advance(best)
        here = mask[:, t, None]  # a padded token leaves a path as it is
        best = torch.where(here, reached + emissions[:, t], best)
        came_from.append(torch.where(here, before, itself))
    scores, tag = (best if ends is None else best + ends).max(dim=1)  # [B]
    path = [tag]
    for before in reversed(came_from):
        path.append(before.gather(1, path[-1].unsqueeze(1)).squeeze(1))
    rows: list[list[int]] = torch.stack(path[::-1], dim=1).tolist()
    return BestPaths([row[:length] for row, length in zip(rows, mask.sum(dim=1).tolist())], scores)


class BioViterbi:
    """scores [B, T, K], mask [B, T] -> the best valid tags of each sentence, by name: I-X after B-X or I-X alone.

    Nothing is learned here, and every valid step costs the same. So a step needs no K x K table: what is not an
    I-X follows the best tag of all, and an I-X the better one of its two. That is O(K) per token, not O(K^2).
    Scores are added up along a path: log probabilities and what a softmax would turn into them are the same.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = list(tags)
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        inside = [tag for tag in self.tags if tag.startswith("I-")]
        for tag in inside:
            if f"B-{tag[2:]}" not in numbers:
                raise UserError(f"tags: expected B-{tag[2:]} where there is {tag}, found {listed(self.tags)}")
        if len(inside) == len(self.tags):
            raise UserError("tags: expected O or a B-X, with which a sentence may begin, found none")
        self._inside = torch.tensor([numbers[tag] for tag in inside], dtype=torch.int64)
        self._begin = torch.tensor([numbers[f"B-{tag[2:]}"] for tag in inside], dtype=torch.int64)

    @torch.no_grad()
    def __call__(self, scores: Tensor, mask: Tensor) -> list[list[str]]:
        scores = scores.clone()
        scores[:, :1, self._inside] = -torch.inf  # no sentence begins with an I-X
        paths = best_paths(scores, mask, self._advance).tags
        return [[self.tags[number] for number in path] for path in paths]

    def _advance(self, best: Tensor) -> tuple[Tensor, Tensor]:
        top, top_tag = best.max(dim=1, keepdim=True)  # [B, 1]
        reached, before = top.expand_as(best).clone(), top_tag.expand_as(best).clone()
        inside, begin = best[:, self._inside], best[:, self._begin]  # [B, labels]
        reached[:, self._inside] = torch.maximum(inside, begin)
        before[:, self._inside] = torch.where(inside >= begin, self._inside, self._begin)
        return reached, before
