"""Random numbers from a seed."""

from __future__ import annotations

import pytest
import torch

from elmokit.model.seeding import seeded


def test_within_the_seed_counts_and_after_it_nothing_was_drawn():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    drawn = []
    for _ in range(2):
        with seeded(7):
            drawn.append(torch.rand(4))
    assert torch.equal(torch.rand(4), expected)
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0], torch.rand(4, generator=torch.Generator().manual_seed(7)))


def test_it_is_set_back_after_an_error():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with pytest.raises(KeyError), seeded(7):
        torch.rand(1)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), state)
