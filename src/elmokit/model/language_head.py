"""The softmax over the vocabulary, shared by both directions: h_k -> log p(word)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LanguageHead(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, h: Tensor) -> Tensor:  # [..., P] -> log probabilities [..., V]
        return F.log_softmax(F.linear(h, self.weight, self.bias), dim=-1)
