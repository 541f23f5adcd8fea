"""What training reads: compared with streams that are written out word by word."""

from __future__ import annotations

import threading
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import UserError
from elmokit.pretrain.windows import Prefetch, Window, WindowStream

CORPORA = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=9), min_size=1, max_size=12)
SHAPES = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 6),
        "steps": st.integers(1, 11),
        "seed": st.integers(0, 3),
        "shuffle": st.booleans(),
    }
)


def corpus_of(sentences: list[list[int]]) -> SimpleNamespace:
    return SimpleNamespace(
        token_ids=np.array([i for sentence in sentences for i in sentence], dtype=np.uint32),
        offsets=np.cumsum([0, *map(len, sentences)], dtype=np.int64),
    )


def expected(sentences, row, length, *, rows, seed, shuffle, backward):
    """The first ids of a row, and whether each begins a sentence; as the definition says it, one by one."""
    ids: list[int] = []
    begins: list[bool] = []
    for k in count():
        if len(ids) >= length:
            return ids[:length], begins[:length]
        epoch, place = divmod(row + rows * k, len(sentences))
        if shuffle:
            place = np.random.default_rng([seed, epoch]).permutation(len(sentences))[place]
        sentence = [0, *(i + 2 for i in sentences[place]), 1]
        ids += sentence[::-1] if backward else sentence
        begins += [True] + [False] * (len(sentence) - 1)
    raise AssertionError


def joined(windows: list[Window]) -> Window:
    arrays = [np.concatenate(parts, axis=1) for parts in zip(*(window[:5] for window in windows))]
    return Window(*arrays, sum(window.tokens for window in windows), windows[-1].epoch)


def take(stream, number: int) -> list[Window]:
    return [next(stream) for _ in range(number)]


def assert_equal(one: list[Window], other: list[Window]) -> None:
    for first, second in zip(one, other, strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


def state_of(streams) -> dict[str, np.ndarray]:
    states = [stream.state() for stream in streams]
    return {key: np.concatenate([state[key] for state in states]) for key in states[0]}


@settings(deadline=None)
@given(CORPORA, SHAPES, st.integers(1, 12))
def test_the_windows_are_the_streams_cut_up(sentences, shape, number):
    window = joined(take(WindowStream(corpus_of(sentences), **shape), number))
    length = shape["steps"] * number
    rules = {key: shape[key] for key in ("rows", "seed", "shuffle")}
    targets = 0
    for row in range(shape["rows"]):
        for backward, inputs, outputs in (
            (False, window.forward_inputs, window.forward_targets),
            (True, window.backward_inputs, window.backward_targets),
        ):
            ids, begins = expected(sentences, row, length + 1, **rules, backward=backward)
            assert inputs[row].tolist() == ids[:-1]
            assert window.begins[row].tolist() == begins[:-1]
            following = [-1 if begin else i for i, begin in zip(ids[1:], begins[1:])]
            assert outputs[row].tolist() == following
        targets += sum(i != -1 for i in following)
    assert window.tokens == targets
    assert all(array.dtype == np.int64 for array in window[:4])
    assert window.begins.dtype == bool


@settings(deadline=None)
@given(CORPORA, SHAPES)
def test_every_epoch_has_every_sentence_once(sentences, shape):
    names = [[i] for i in range(len(sentences))]  # one word each, so that all rows are as fast
    rows = shape["rows"]
    stream = WindowStream(corpus_of(names), **{**shape, "steps": 3 * len(sentences)})
    words = next(stream).forward_inputs[:, 1::3].T.reshape(-1) - 2  # in the order in which they were dealt
    assert len(words) == rows * len(sentences)
    for epoch in words.reshape(rows, len(sentences)):
        assert sorted(epoch) == list(range(len(sentences)))


@settings(deadline=None)
@given(CORPORA, SHAPES, st.integers(0, 5), st.data())
def test_ranks_make_the_rows_of_one_stream(sentences, shape, number, data):
    corpus, rows = corpus_of(sentences), shape["rows"]
    cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1)))) if rows > 1 else []
    ranks = [
        WindowStream(corpus, **shape, first_row=first, last_row=last)
        for first, last in zip([0, *cuts], [*cuts, rows])
    ]
    whole = WindowStream(corpus, **shape)
    for _ in range(number):
        window, parts = next(whole), [next(rank) for rank in ranks]
        for array, *pieces in zip(window[:5], *(part[:5] for part in parts)):
            np.testing.assert_array_equal(array, np.concatenate(pieces))
        assert window.tokens == sum(part.tokens for part in parts)
        assert window.epoch == min(part.epoch for part in parts)
    # and their states, in any order, are the state of any other number of ranks
    state = state_of(ranks[::-1])
    again = WindowStream(corpus, **shape)
    again.restore(state)
    last = WindowStream(corpus, **shape, first_row=rows - 1)
    last.restore(state)
    after = take(whole, 3)
    assert_equal(take(again, 3), after)
    for window, part in zip(after, take(last, 3)):
        np.testing.assert_array_equal(window.backward_targets[-1:], part.backward_targets)


@settings(deadline=None)
@given(CORPORA, SHAPES, st.integers(0, 9))
def test_a_stream_taken_up_again_goes_on_as_it_would_have(sentences, shape, number):
    stream = WindowStream(corpus_of(sentences), **shape)
    take(stream, number)
    state = stream.state()
    kept = {key: value.copy() for key, value in state.items()}
    after = take(stream, 4)
    again = WindowStream(corpus_of(sentences), **shape)
    again.restore(state)
    assert_equal(take(again, 4), after)
    for key, value in state.items():  # going on does not reach into a state that was handed out
        np.testing.assert_array_equal(value, kept[key])


def test_by_hand():
    stream = WindowStream(corpus_of([[7, 8], [9]]), rows=1, steps=4, shuffle=False)
    first, second = take(stream, 2)
    assert first.forward_inputs.tolist() == [[0, 9, 10, 1]]
    assert first.forward_targets.tolist() == [[9, 10, 1, -1]]
    assert first.backward_inputs.tolist() == [[1, 10, 9, 0]]
    assert first.backward_targets.tolist() == [[10, 9, 0, -1]]
    assert first.begins.tolist() == [[True, False, False, False]]
    assert (first.tokens, first.epoch) == (3, 0.5)
    assert second.forward_inputs.tolist() == [[0, 11, 1, 0]]
    assert second.backward_targets.tolist() == [[11, 0, -1, 10]]
    assert second.begins.tolist() == [[True, False, False, True]]
    assert second.epoch == 1.0


def test_seeds_and_epochs_have_orders_of_their_own():
    corpus = corpus_of([[i] for i in range(40)])

    def order(seed, epoch):
        return take(WindowStream(corpus, rows=1, steps=120, seed=seed), epoch + 1)[-1].forward_inputs.tolist()

    assert order(0, 0) == order(0, 0)
    assert len({str(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_only_the_orders_in_use_are_kept():
    stream = WindowStream(corpus_of([[i] for i in range(50)]), rows=2, steps=10)
    take(stream, 200)
    assert len(stream._orders) <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"steps": 0}, "steps=0"),
        ({"seed": -1}, "seed=-1"),
        ({"first_row": 2}, "first_row=2"),
        ({"last_row": 3}, "last_row=3"),
    ],
)
def test_impossible_shapes_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        WindowStream(corpus_of([[1]]), **{"rows": 2, "steps": 2, **options})


def test_a_state_that_does_not_fit_is_refused():
    stream = WindowStream(corpus_of([[1], [2, 3]]), rows=2, steps=2, first_row=1)
    fitting = WindowStream(corpus_of([[1], [2, 3]]), rows=2, steps=2).state()
    with pytest.raises(UserError, match="no row 1"):
        stream.restore({key: value[:1] for key, value in fitting.items()})
    with pytest.raises(UserError, match="no offset"):
        stream.restore({key: value for key, value in fitting.items() if key != "offset"})
    for wrong in ({"offset": np.array([0, 9])}, {"offset": np.array([0, -1])}, {"sentence": np.array([0, -1])}):
        with pytest.raises(UserError, match="does not fit this corpus"):
            stream.restore({**fitting, **wrong})


SENTENCES = [[i] * (1 + i % 5) for i in range(30)]


def make_stream() -> WindowStream:
    return WindowStream(corpus_of(SENTENCES), rows=4, steps=7, seed=3)


def test_prefetched_windows_are_the_stream_s_own():
    with Prefetch(make_stream(), depth=2) as windows:
        assert_equal(take(windows, 50), take(make_stream(), 50))


def test_the_state_of_a_prefetch_is_what_was_consumed():
    plain = make_stream()
    take(plain, 5)
    with Prefetch(make_stream()) as windows:
        np.testing.assert_equal(windows.state(), make_stream().state())
        take(windows, 5)
        state = windows.state()
        np.testing.assert_equal(state, plain.state())
        after = take(windows, 5)
        windows.restore(state)
        assert_equal(take(windows, 5), after)


def test_a_closed_prefetch_leaves_no_thread_and_can_go_on():
    before = threading.active_count()
    windows = Prefetch(make_stream(), depth=1)
    windows.close()  # never begun
    first = take(windows, 3)
    assert threading.active_count() == before + 1
    windows.close()
    windows.close()
    assert threading.active_count() == before
    with windows:
        assert_equal(first + take(windows, 3), take(make_stream(), 6))
    assert threading.active_count() == before


def test_an_error_reaches_the_consumer_after_the_windows_before_it():
    class Failing(WindowStream):
        made = 0

        def __next__(self):
            self.made += 1
            if self.made > 3:
                raise OSError("the disk is gone")
            return super().__next__()

    with Prefetch(Failing(corpus_of(SENTENCES), rows=4, steps=7, seed=3)) as windows:
        assert_equal(take(windows, 3), take(make_stream(), 3))
        for _ in range(2):
            with pytest.raises(OSError, match="the disk is gone"):
                next(windows)
