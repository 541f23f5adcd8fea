"""Attention and pools: padding counts for nothing, a sentence without a token is zero."""

from __future__ import annotations

import torch

from elmokit.tasks.nn.attention import attend, masked_max, masked_mean, masked_softmax


def test_pools_and_attention_pass_over_padding():
    x = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]], [[7.0, 7.0]] * 3])  # [2, 3, 2]
    mask = torch.tensor([[True, True, False], [False] * 3])
    assert masked_max(x, mask).tolist() == [[3.0, -2.0], [0.0, 0.0]]
    assert masked_mean(x, mask).tolist() == [[2.0, -3.0], [0.0, 0.0]]
    assert masked_softmax(torch.zeros(2, 3), mask).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    found = attend(torch.zeros(2, 1, 2), x, mask)
    assert found.tolist() == [[[2.0, -3.0]], [[0.0, 0.0]]]
    nothing = x[:, :0]
    assert attend(x, nothing, mask[:, :0]).tolist() == torch.zeros(2, 3, 2).tolist()
    assert masked_max(nothing, mask[:, :0]).tolist() == [[0.0, 0.0]] * 2
