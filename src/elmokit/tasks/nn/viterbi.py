"""The best sequence of BIO tags that is valid: an I-X stands only after B-X or I-X. Nothing is learned here.

Without learned transitions every valid step costs the same, so a step needs no K x K table: what is not an I-X
follows the best tag of all, and an I-X the better one of its two. That is O(K) a token, not O(K^2).

Shapes: B sentences, T tokens, K tags.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.errors import UserError

OUTSIDE = "O"


def bio_tags(labels: Sequence[str]) -> list[str]:
    """O, then B-X and I-X of every label, in their order."""
    return [OUTSIDE, *(f"{mark}-{label}" for label in labels for mark in "BI")]


def follows(tag: str, before: str | None) -> bool:
    """Whether `tag` may stand after `before` (None: at the beginning)."""
    return not tag.startswith("I-") or before in (f"B-{tag[2:]}", tag)


class BioViterbi:
    """scores [B, T, K], mask [B, T] -> the tags of each sentence, by name.

    Scores are added up along a path, so log probabilities and what a softmax would turn into them are the same.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = list(tags)
        numbers = {tag: number for number, tag in enumerate(self.tags)}
        inside = [tag for tag in self.tags if tag.startswith("I-")]
        for tag in inside:
            if f"B-{tag[2:]}" not in numbers:
                raise UserError(f"tags: expected B-{tag[2:]} where there is {tag}, found {', '.join(self.tags)}")
        if len(inside) == len(self.tags):
            raise UserError("tags: expected O or a B-X, with which a sentence may begin, found none")
        self._inside = torch.tensor([numbers[tag] for tag in inside], dtype=torch.int64)
        self._begin = torch.tensor([numbers[f"B-{tag[2:]}"] for tag in inside], dtype=torch.int64)

    @torch.no_grad()
    def __call__(self, scores: Tensor, mask: Tensor) -> list[list[str]]:
        size, longest, _ = scores.shape
        lengths = mask.sum(dim=1).tolist()
        if longest == 0:
            return [[] for _ in range(size)]
        best = scores[:, 0].clone()  # [B, K], of the paths that end in a tag
        best[:, self._inside] = -torch.inf
        itself = torch.arange(len(self.tags)).expand(size, -1)
        came_from = []  # T - 1 times [B, K]
        for t in range(1, longest):
            top, top_tag = best.max(dim=1, keepdim=True)  # [B, 1]
            reached, before = top.expand_as(best).clone(), top_tag.expand_as(best).clone()
            stays = best[:, self._inside] >= best[:, self._begin]  # [B, labels]
            before[:, self._inside] = torch.where(stays, self._inside, self._begin)
            reached[:, self._inside] = torch.maximum(best[:, self._inside], best[:, self._begin])
            real = mask[:, t : t + 1].bool()  # a padded token leaves a path as it is
            best = torch.where(real, reached + scores[:, t], best)
            came_from.append(torch.where(real, before, itself))
        tag = best.argmax(dim=1, keepdim=True)  # [B, 1]
        path = [tag]
        for before in reversed(came_from):
            tag = before.gather(1, tag)
            path.append(tag)
        rows = torch.cat(path[::-1], dim=1).tolist()
        return [[self.tags[number] for number in row[:length]] for row, length in zip(rows, lengths)]
