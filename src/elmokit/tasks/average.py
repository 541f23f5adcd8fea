"""The running mean of a network's weights over its steps: measured and kept, it is steadier than any one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

PREFIX = "average."


class WeightAverage:
    """mean <- share * mean + (1 - share) * weights after each step, of the weights that are trained.

    The share grows from near nothing to `share`, as (1 + step) / (10 + step): the beginning is forgotten soon.
    torch's AveragedModel would copy the whole network, given vectors and biLM with it.
    """

    def __init__(self, network: nn.Module, share: float) -> None:
        self.share, self.steps = share, 0
        self._weights = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self._means = {name: p.detach().clone() for name, p in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        new = 1 - min(self.share, (1 + self.steps) / (10 + self.steps))
        for name, mean in self._means.items():
            mean.lerp_(self._weights[name], new)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the network has the mean; after it, its own weights again."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self._weights.items():
            own = weight.clone()
            weight.copy_(self._means[name])
            self._means[name].copy_(own)

    def tensors(self) -> dict[str, Tensor]:
        return {f"{PREFIX}{name}": mean for name, mean in self._means.items()}

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        self.steps = steps
        for name, mean in self._means.items():
            mean.copy_(tensors[f"{PREFIX}{name}"])
