"""A linear-chain conditional random field (Lafferty et al. 2001): scores of tags and of steps between them.

Steps that are not allowed have no part in it, neither in training nor in decoding: the probabilities of the
allowed paths alone sum to 1, so that nothing is spent on ruling out by numbers what is ruled out already.
Sums along a sentence are in float64: the likelihood is the small difference of two that grow with its length.

Shapes: B sentences, T tokens, K tags. A mask is True on a sentence's tokens, which come before its padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.tasks.nn import viterbi

NEVER = -1e30  # in place of -inf where there are gradients: exp of it is 0 as well, and it makes no NaN
MOST = 1e38  # what scores are cut to before they are added up


class Allowed(NamedTuple):
    starts: Tensor  # [K] bool
    steps: Tensor  # [K, K] bool, from a tag (row) to the next (column)
    ends: Tensor  # [K] bool

    @classmethod
    def by_rule(cls, tags: Sequence[str], may_follow: Callable[[str | None, str | None], bool]) -> Allowed:
        """may_follow   of a tag and the next; None stands for the sentence's beginning and for its end."""
        return cls(
            torch.tensor([may_follow(None, tag) for tag in tags]),
            torch.tensor([[may_follow(tag, after) for after in tags] for tag in tags]),
            torch.tensor([may_follow(tag, None) for tag in tags]),
        )

    @classmethod
    def everything(cls, tags: int) -> Allowed:
        return cls(*(torch.ones(shape, dtype=torch.bool) for shape in ((tags,), (tags, tags), (tags,))))


class CRF(nn.Module):
    """emissions [B, T, K] -> the log likelihood of the gold tags, or the best path that is allowed."""

    def __init__(self, allowed: Allowed) -> None:
        super().__init__()
        count = len(allowed.starts)
        self.starts = nn.Parameter(torch.zeros(count))
        self.steps = nn.Parameter(torch.zeros(count, count))
        self.ends = nn.Parameter(torch.zeros(count))
        for name, tensor in allowed._asdict().items():  # not saved: the labels say it all
            self.register_buffer(f"allowed_{name}", tensor, persistent=False)

    @property
    def allowed(self) -> Allowed:
        return Allowed(*(self.get_buffer(f"allowed_{name}") for name in Allowed._fields))

    def forward(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """The log likelihood [B] of tags [B, T], which must be allowed; where padded, any number of a tag."""
        likelihood = self.score(emissions, tags, mask) - self.log_partition(emissions, mask)
        return likelihood.to(emissions.dtype)

    def score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:  # [B]
        """Of one path a sentence, not normalized; 0 for a sentence without tokens."""
        if not tags.numel():
            return emissions.new_zeros(len(tags)).double()
        before, after, both = tags[:, :-1], tags[:, 1:], mask[:, 1:]
        last = tags.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)  # [B]
        some = mask[:, 0]
        allowed = self.allowed
        ends = allowed.starts[tags[:, 0]] & allowed.ends[last]  # [B]
        steps = allowed.steps[before, after]  # [B, T - 1]
        assert bool((ends | ~some).all() and (steps | ~both).all()), "the tags are not an allowed path"
        of_tags = (emissions.double().gather(2, tags.unsqueeze(2)).squeeze(2) * mask).sum(dim=1)
        of_steps = (self.steps.double()[before, after] * both).sum(dim=1)
        return of_tags + of_steps + (self.starts[tags[:, 0]] + self.ends[last]) * some

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:  # [B]
        """log of the sum of exp(score) over all allowed paths, by the forward algorithm."""
        if not mask.numel():
            return emissions.new_zeros(len(mask)).double()
        emissions = emissions.double()
        starts, steps, ends = self._weights(NEVER)
        total = starts + emissions[:, 0]  # [B, K], over the paths that end in each tag
        for t in range(1, emissions.shape[1]):
            onward = torch.logsumexp(total.unsqueeze(2) + steps, dim=1) + emissions[:, t]
            total = torch.where(mask[:, t, None], onward, total)
        return torch.logsumexp(total + ends, dim=1) * mask[:, 0]

    @torch.no_grad()
    def best_paths(self, emissions: Tensor, mask: Tensor) -> list[list[int]]:
        """Of every sentence the allowed path of the highest score, whatever the emissions are."""
        emissions = emissions.double().nan_to_num(0.0, MOST, -MOST).clamp(-MOST, MOST)
        weights = self._weights(-torch.inf)
        starts, steps, ends = (part.nan_to_num(0.0, MOST, -torch.inf) for part in weights)

        def advance(best: Tensor) -> tuple[Tensor, Tensor]:  # [B, K], and the tags before
            onward, before = (best.unsqueeze(2) + steps).max(dim=1)
            return onward, before

        paths, scores = viterbi.best_paths(emissions, mask, advance, starts, ends)
        assert bool((scores.isfinite() | ~mask.any(dim=1)).all()), "the constraints allow no path of this length"
        return paths

    def _weights(self, never: float) -> tuple[Tensor, Tensor, Tensor]:
        starts, steps, ends = self.allowed
        return (
            self.starts.double().masked_fill(~starts, never),
            self.steps.double().masked_fill(~steps, never),
            self.ends.double().masked_fill(~ends, never),
        )
