"""A feed-forward network over joined vectors, whose first layer is computed part by part.

It is linear in what is joined: by token before spans are made, and by span before pairs are, it is the same
function at a tenth of the work.

Shapes: F hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    """Joined parts -> two hidden layers -> one number.

    `part(n, x)` is part n's share of the first layer; their sum goes to `score`.
    """

    def __init__(self, parts: Sequence[int], hidden: int, p: float) -> None:
        super().__init__()
        self.parts = list(parts)
        self.first = nn.Linear(sum(parts), hidden)
        self.second = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(p)
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
