"""The CRF against all paths, one by one."""

from __future__ import annotations

import itertools
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.nn.crf import CRF, Allowed

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def random_crf(tags: int, chance: torch.Generator, share: float = 1.0) -> CRF:
    """Some steps are ruled out; tag 0 alone is a path of any length."""
    allowed = Allowed(*(torch.rand(part.shape, generator=chance) < share for part in Allowed.everything(tags)))
    allowed.starts[0] = allowed.steps[0, 0] = allowed.ends[0] = True
    crf = CRF(allowed).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance))
    return crf


def random_case(lengths: list[int], tags: int, seed: int, share: float):
    chance = torch.Generator().manual_seed(seed)
    crf = random_crf(tags, chance, share)
    emissions = 2 * torch.randn(len(lengths), max(lengths), tags, generator=chance, dtype=torch.float64)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return crf, emissions, mask


def paths(crf: CRF, emissions: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The score of every allowed path of one sentence without padding, by the definition."""
    starts, steps, ends = crf.allowed
    found = {}
    for path in itertools.product(range(len(starts)), repeat=len(emissions)):
        if path and not (starts[path[0]] and ends[path[-1]] and all(steps[a, b] for a, b in pairwise(path))):
            continue
        score = sum(float(emissions[t, tag]) for t, tag in enumerate(path))
        score += sum(float(crf.steps[a, b]) for a, b in pairwise(path))
        if path:
            score += float(crf.starts[path[0]] + crf.ends[path[-1]])
        found[path] = score
    return found


@torch.no_grad()
@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([1.0, 0.6, 0.3]))
def test_it_agrees_with_the_enumeration_of_all_paths(lengths, tags, seed, share):
    crf, emissions, mask = random_case(lengths, tags, seed, share)
    partition, best = crf.log_partition(emissions, mask), crf.best_paths(emissions, mask)
    for i, length in enumerate(lengths):
        scores = paths(crf, emissions[i, :length])
        total = math.log(sum(math.exp(score) for score in scores.values()))
        assert float(partition[i]) == pytest.approx(total, abs=1e-9)
        assert scores[tuple(best[i])] == pytest.approx(max(scores.values()), abs=1e-9)


@torch.no_grad()
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([1.0, 0.5]))
def test_the_allowed_paths_alone_have_probabilities_that_sum_to_one(length, tags, seed, share):
    crf, emissions, mask = random_case([length], tags, seed, share)
    every = torch.tensor(sorted(paths(crf, emissions[0])))
    count = len(every)
    likelihood = crf(emissions.expand(count, -1, -1), every, mask.expand(count, -1))
    assert float(likelihood.detach().exp().sum()) == pytest.approx(1.0, abs=1e-9)


@torch.no_grad()
def test_what_is_padded_changes_nothing():
    crf, emissions, mask = random_case([1, 4, 0, 3], 3, 5, 0.7)
    tags = torch.zeros(4, 4, dtype=torch.int64)
    likelihood, best = crf(emissions, tags, mask), crf.best_paths(emissions, mask)
    other = torch.where(mask[:, :, None], emissions, torch.full_like(emissions, 1e3))
    assert torch.equal(crf(other, tags.masked_fill(~mask, 2), mask), likelihood)
    assert crf.best_paths(other, mask) == best
    assert [len(path) for path in best] == [1, 4, 0, 3]
    assert likelihood[2] == 0
    for i, length in enumerate([1, 4, 0, 3]):
        alone = emissions[i : i + 1, :length], mask[i : i + 1, :length]
        assert crf.best_paths(*alone) == [best[i]]
        assert crf(alone[0], tags[i : i + 1, :length], alone[1]) == pytest.approx(float(likelihood[i]))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_gradients(share):
    crf, emissions, mask = random_case([3, 1, 2], 3, 7, share)
    tags = torch.tensor(crf.best_paths(emissions, torch.ones_like(mask)))
    tags[1:] = 0

    def likelihood(emissions, starts, steps, ends):
        weights = {"starts": starts, "steps": steps, "ends": ends}
        return torch.func.functional_call(crf, weights, (emissions, tags, mask))

    inputs = [tensor.detach().requires_grad_() for tensor in (emissions, crf.starts, crf.steps, crf.ends)]
    assert torch.autograd.gradcheck(likelihood, inputs)
    likelihood(*inputs).sum().backward()
    assert not inputs[0].grad[~mask].any()
    assert not inputs[2].grad[~crf.allowed.steps].any()


def test_emissions_of_float32_lose_nothing_on_a_long_sentence():
    chance = torch.Generator().manual_seed(2)
    crf = random_crf(9, chance, 0.4)
    emissions = 10 * torch.randn(2, 500, 9, generator=chance, dtype=torch.float64)
    mask = torch.ones(2, 500, dtype=torch.bool)
    exact = crf(emissions, torch.tensor(crf.best_paths(emissions, mask)), mask)
    emissions32 = emissions.float().requires_grad_()
    found = crf.float()(emissions32, torch.tensor(crf.best_paths(emissions, mask)), mask)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), exact, rtol=1e-4)
    crf.log_partition(emissions32, mask).sum().backward()
    marginals = emissions32.grad
    assert torch.allclose(marginals.sum(dim=2), torch.ones(2, 500), atol=1e-6)


def test_right_tags_that_are_not_allowed_are_refused():
    crf = CRF(Allowed(torch.tensor([True, False]), torch.ones(2, 2, dtype=torch.bool), torch.tensor([True, True])))
    emissions, mask = torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(AssertionError, match="not an allowed path"):
        crf(emissions, torch.tensor([[1, 0]]), mask)
