from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text.batches import batches_by_length, pad, windows
from elmokit.text.characters import ByteMapper

LENGTHS = st.lists(st.integers(0, 50), max_size=60)


@given(LENGTHS, st.integers(1, 200))
def test_every_sentence_is_in_one_batch_and_batches_keep_to_the_budget(lengths, budget):
    batches = list(batches_by_length(lengths, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


@given(LENGTHS)
def test_sorting_by_length_pads_no_more_than_any_order_would(lengths):
    budget = 64

    def padded(batches):
        return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)

    ours = padded(batches_by_length(lengths, budget))
    assert ours <= sum(lengths) + len(list(batches_by_length(lengths, budget))) * budget


def test_a_batch_of_nothing_fits_is_refused():
    with pytest.raises(ValueError, match="at least 1 token"):
        list(batches_by_length([1], 0))


@given(st.lists(st.lists(st.text(max_size=3), max_size=8)), st.integers(1, 40))
def test_windows_hold_all_sentences_in_order_and_little_more_than_their_size(sentences, tokens):
    cut = list(windows(sentences, tokens))
    assert [s for window in cut for s in window] == sentences
    for window in cut:
        assert sum(len(s) + 2 for s in window[:-1]) < tokens


def test_padding_puts_boundaries_around_each_sentence_and_zeros_after():
    mapper = ByteMapper()
    ids = pad(mapper, [["a", "b"], [], ["c"]], boundaries=True)
    assert ids.shape == (3, 4, 50)
    assert (ids[:, 0] == mapper.begin).all()
    for row, length in zip(ids, (2, 0, 1)):
        assert (row[length + 1] == mapper.end).all()
        assert not row[length + 2 :].any()
    assert (pad(mapper, [["a", "b"], [], ["c"]], boundaries=False)[0] == ids[0, 1:3]).all()


def test_an_empty_batch_has_no_rows():
    assert pad(ByteMapper(), [], boundaries=True).shape == (0, 2, 50)
    assert pad(ByteMapper(), [[]], boundaries=False).shape == (1, 0, 50)
    assert np.issubdtype(pad(ByteMapper(), [["a"]], boundaries=True).dtype, np.int64)
