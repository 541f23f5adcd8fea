"""How work is shared out among threads: the library's cuts, and the replay of benchmarks/threads.py."""

from __future__ import annotations

import importlib.util
from itertools import combinations, pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from elmokit.model.kernels import convolution
from elmokit.model.kernels.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")


@pytest.fixture(scope="module")
def threads():
    path = Path(__file__).parent.parent / "benchmarks" / "threads.py"
    spec = importlib.util.spec_from_file_location("benchmarks_threads", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dearest(lengths, ends):
    """What the dearest part costs: its tokens, and a row more for each of its steps."""
    return max(sum(lengths[a:b]) + lengths[a] for a, b in pairwise(ends))


def test_no_other_cuts_have_a_cheaper_dearest_part(threads):
    generator = torch.Generator().manual_seed(0)
    for count in (2, 4, 5, 6, 8):
        lengths = sorted(torch.randint(1, 40, (24,), generator=generator).tolist(), reverse=True)
        ends = threads.split(torch.tensor(lengths), count)
        parts = min(count if count % 2 else count // 2, 3)
        assert (ends[0], ends[-1]) == (0, 24)
        assert ends == sorted(set(ends))
        assert len(ends) - 1 <= parts
        every = ([0, *inner, 24] for inner in combinations(range(1, 24), parts - 1))
        assert dearest(lengths, ends) == min(dearest(lengths, other) for other in every)


def test_few_rows_and_rows_without_tokens_are_cut_too(threads):
    assert threads.split(torch.tensor([9]), 8) == [0, 1]
    assert threads.split(torch.zeros(20, dtype=torch.int64), 4)[-1] == 20


def test_free_threads_take_the_next_task(threads):
    assert threads.replay([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert threads.idle([3.0, 1.0, 1.0, 1.0], 2) == 0
    assert threads.replay([1.0, 1.0, 1.0, 3.0], 2) == 4.0
    assert threads.idle([2.0], 4) == 0.75


@pytest.mark.parametrize("words", [1, 7, 100, 300])
def test_words_are_the_same_bits_whatever_the_threads(words):
    torch.manual_seed(0)
    counts = (5, 33)
    tables = convolution.make_tables(torch.randn(30, 4), [torch.randn(n, 4, w) for n, w in zip(counts, (1, 3))])
    ids = torch.randint(0, 30, (words, 9))
    results = []
    for count in (1, 2, 16):
        with patch("torch.get_num_threads", lambda count=count: count):
            results.append(convolution.convolve(tables, counts, ids))
    assert all(torch.equal(results[0], other) for other in results[1:])
