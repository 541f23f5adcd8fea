"""What the character encoder does around its filters: distinct tokens, the highway. With the library or not."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model import char_encoder
from elmokit.model.char_encoder import Highway, distinct_rows


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=40))
def test_distinct_rows(rows):
    ids = torch.tensor(rows)
    distinct, where = distinct_rows(ids)
    assert torch.equal(distinct[where], ids)
    assert len(distinct) == len({tuple(row) for row in rows})


def test_distinct_rows_that_share_their_number(monkeypatch):
    monkeypatch.setattr(char_encoder, "_factors", lambda count: np.zeros(count, dtype=np.int64))
    ids = torch.tensor([[1, 2], [3, 4], [1, 2]])
    distinct, where = distinct_rows(ids)
    assert len(distinct) == 2
    assert torch.equal(distinct[where], ids)


def test_the_highway_is_the_same_without_gradients():
    torch.manual_seed(0)
    highway, x = Highway(12), torch.randn(8, 12)
    kept = x.clone()
    with torch.no_grad():
        torch.testing.assert_close(highway(x), highway(x.requires_grad_()), atol=1e-6, rtol=0)
        carry = torch.sigmoid(highway.carry(x))
        expected = carry * torch.relu(highway.transform(x)) + (1 - carry) * x
        torch.testing.assert_close(highway(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(highway(x), expected, atol=1e-6, rtol=0)
    assert torch.equal(x, kept)
