"""Random numbers from a seed, and what a probability of dropout may be."""

from __future__ import annotations

import pytest
import torch

from elmokit.errors import UserError
from elmokit.model.dropout import check_p
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


def test_dropout_is_a_probability_below_one():
    check_p(dropout=0.0, input_dropout=0.99)
    for p in (-0.1, 1.0, float("nan")):
        with pytest.raises(UserError, match="input_dropout: expected 0 or more and less than 1, found"):
            check_p(dropout=0.5, input_dropout=p)
