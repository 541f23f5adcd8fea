from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.model.rows import TOGETHER, row_chunks, whole_rows


@given(st.integers(0, 40), st.integers(0, 2))
def test_rows_are_completed_with_zeros(rows, dim):
    shape = [2, 3, 4]
    shape[dim] = rows
    x = torch.randn(shape)
    whole = whole_rows(x, dim)
    assert whole.shape[dim] % TOGETHER == 0
    assert whole.shape[dim] - rows < TOGETHER
    assert torch.equal(whole.narrow(dim, 0, rows), x)
    assert not whole.narrow(dim, rows, whole.shape[dim] - rows).any()


@given(st.integers(1, 300))
def test_chunks_hold_all_rows_in_few_sizes(rows):
    x = torch.randn(rows, 2)
    chunks = row_chunks(x, 64)
    together = torch.cat(chunks)
    assert torch.equal(together[:rows], x)
    assert not together[rows:].any()
    assert {len(chunk) for chunk in chunks} <= {4, 8, 16, 32, 64}
    assert len(together) < 2 * rows + TOGETHER
