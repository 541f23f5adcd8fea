from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from elmokit.model.kernels import bfloat16
from elmokit.model.kernels.polynomials import polynomials
from elmokit.pretrain import muon as muon_module
from elmokit.pretrain.muon import COEFFICIENTS, RMS, Muon, blocks_of, orthogonalize

LEAST = 0.003  # of the largest singular value: what is smaller need not come near 1


def matrix_of(singular_values, rows, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, len(singular_values), generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(
        torch.randn(columns, len(singular_values), generator=generator, dtype=torch.float64)
    )
    return left @ torch.tensor(singular_values, dtype=torch.float64).diag() @ right.T, left @ right.T


def best_polynomial(low, high):
    """x (a + b x^2 + c x^4) with the least largest distance from 1 on [low, high], as a linear programme."""
    x = np.concatenate([np.linspace(low, high, 2000), np.geomspace(low, high, 2000)])
    powers, ones = np.stack([x, x**3, x**5], axis=1), np.ones((len(x), 1))
    table = np.block([[powers, -ones], [-powers, -ones]])
    found = linprog([0, 0, 0, 1], table, np.concatenate([ones, -ones]), bounds=[(None, None)] * 3 + [(0, None)])
    return found.x[:3], found.x[3]


def test_the_polynomials_are_the_best_one_after_the_other():
    low, high = LEAST, 1.0
    for coefficients in COEFFICIENTS:
        best, error = best_polynomial(low, high)
        np.testing.assert_allclose(coefficients, best, rtol=2e-3)
        low, high = 1 - error, 1 + error
    assert (low, high) == pytest.approx((0.8, 1.2), abs=0.005)


@settings(deadline=None)  # torch's first decomposition takes a second
@given(
    st.integers(1, 12),
    st.integers(1, 40),
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=12),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_singular_values_come_near_one_and_vectors_stay(rows, columns, values, size):
    """Against the singular value decomposition. The norm that X is divided by is up to 1.9 times its largest."""
    values = sorted(values)[: min(rows, columns)]
    matrix, expected = matrix_of(values, rows, columns)
    found = orthogonalize([(size * matrix).float()])[0].double()
    assert found.shape == (rows, columns)
    left, singular, right = torch.linalg.svd(found, full_matrices=False)
    kept = singular[: len(values)]
    assert float(kept.min()) > 0.79
    assert float(kept.max()) < 1.21
    assert float(singular[len(values) :].max() if len(singular) > len(values) else 0.0) < 1e-2
    # Where rank is missing, rounding errors grow by the square of what is made of nothing: 300 ** 2.
    near = left[:, : len(values)] @ right[: len(values)]
    exact = len(values) == min(rows, columns)
    assert float((near - expected).norm() / expected.norm()) < (5e-3 if exact else 0.25)


def test_matrices_are_orthogonalized_each_on_its_own_and_nothing_stays_nothing():
    stacked = torch.randn(3, 5, 9, generator=torch.Generator().manual_seed(0))
    stacked[1] *= 1000
    stacked[2] = 0
    matrices = [*stacked, torch.randn(9, 5, generator=torch.Generator().manual_seed(1)), torch.ones(2, 2)]
    together = orthogonalize(matrices)
    for one, alone in zip(together, matrices):
        torch.testing.assert_close(one, orthogonalize([alone])[0])
    assert not together[2].any()


def steps(matrices, update, count):
    for step in range(count):
        generator = torch.Generator().manual_seed(step)
        for matrix in matrices:
            # Of a rank below the full one, as gradients are
            shape = (matrix.shape[0], 3), (3, matrix.shape[1])
            matrix.grad = torch.randn(shape[0], generator=generator) @ torch.randn(shape[1], generator=generator)
        update()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_goes_where_torchs_muon_goes(decay):
    """Theirs iterates in bfloat16 with other polynomials: singular values of 0.7 to 1.2 beside ours."""
    generator = torch.Generator().manual_seed(9)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((24, 8), (8, 16), (12, 12))]
    theirs = copy.deepcopy(ours)
    begin = [matrix.detach().clone() for matrix in ours]
    muon = Muon(ours, 0.9, decay, every=1)
    reference = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=decay, momentum=0.9, adjust_lr_fn="match_rms_adamw", ns_steps=5
    )
    steps(ours, lambda: muon.step(0.02), 12)
    steps(theirs, reference.step, 12)
    for one, other, start in zip(ours, theirs, begin):
        ways = (one - start).detach().flatten(), (other - start).detach().flatten()
        assert float(torch.cosine_similarity(*ways, dim=0)) > 0.97
        assert 0.85 < float(ways[0].norm() / ways[1].norm()) < 1.2


def test_updates_have_the_size_of_the_rate():
    matrix = torch.nn.Parameter(torch.zeros(16, 64))
    muon = Muon([matrix], 0.95, 0.0, every=1)
    matrix.grad = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)) * 1e-5
    muon.step(0.01)
    # 16 singular values of about 1 in 16 x 64, times the root of 64: a root mean square of 0.2 times the rate
    assert float(matrix.detach().square().mean().sqrt()) == pytest.approx(RMS * 0.01, rel=0.15)


def test_each_matrix_has_its_turn_and_its_momentum_sees_every_step():
    generator = torch.Generator().manual_seed(0)
    matrices = [torch.nn.Parameter(torch.randn(4, 6, generator=generator)) for _ in range(5)]
    muon = Muon(matrices, 0.9, 0.0, every=3)
    changed = []
    for _ in range(6):
        before = [matrix.detach().clone() for matrix in matrices]
        momenta = [momentum.clone() for momentum in muon.momenta]
        steps(matrices, lambda: muon.step(0.1), 1)
        changed.append([i for i in range(5) if not torch.equal(before[i], matrices[i].detach())])
        assert not any(torch.equal(one, other) for one, other in zip(momenta, muon.momenta))
    assert changed == [[0, 3], [1, 4], [2]] * 2


def test_a_matrix_without_a_gradient_stays():
    matrices = [torch.nn.Parameter(torch.ones(2, 3)) for _ in range(2)]
    muon = Muon(matrices, 0.9, 0.1, every=1)
    matrices[0].grad = torch.ones(2, 3)
    muon.step(0.1)
    assert (matrices[0] != 1).all()
    assert (matrices[1] == 1).all()
    assert not muon.momenta[1].any()


def test_a_large_matrix_is_orthogonalized_in_blocks(monkeypatch):
    monkeypatch.setattr(muon_module, "BLOCK", 4)
    tall, square = torch.randn(9, 3), torch.randn(8, 8)
    assert [block.shape for block in blocks_of(tall)] == [(9, 3)]
    assert [block.shape for block in blocks_of(square)] == [(4, 8)] * 2
    assert [block.shape for block in blocks_of(torch.randn(20, 10))] == [(20, 4), (20, 3), (20, 3)]
    matrix = torch.nn.Parameter(square.clone())
    muon = Muon([matrix], 0.0, 0.0, every=1)
    matrix.grad = torch.randn(8, 8)
    muon.step(1.0)
    expected = orthogonalize(matrix.grad.split(4))
    torch.testing.assert_close(square - matrix.detach(), RMS * 8**0.5 * torch.cat(expected))


@pytest.mark.skipif(not bfloat16.available(), reason="this processor does not multiply bfloat16")
@pytest.mark.parametrize("shape", [(96, 32), (32, 64), (40, 40)])
def test_in_bfloat16_it_is_nearly_the_same(shape):
    """Singular values over two powers of ten, as those of gradients."""
    rank = min(shape)
    matrix, expected = matrix_of(np.geomspace(0.01, 1, rank), *shape)
    with bfloat16.products_in("bfloat16"):
        found = orthogonalize([matrix.float()])[0].double()
    assert not torch.equal(found, orthogonalize([matrix.float()])[0].double())
    singular = torch.linalg.svdvals(found)
    assert float(singular.min()) > 0.75
    assert float(singular.max()) < 1.25
    assert float((found * expected).sum() / found.norm() / expected.norm()) > 0.98


@pytest.mark.skipif(not bfloat16.available(), reason="this processor has no AVX512_BF16")
@pytest.mark.parametrize("size", [1, 5, 33, 128, 200, 256])
def test_the_librarys_polynomials_are_those_in_float64_whatever_the_number_of_threads(size):
    torch.manual_seed(size)
    x = torch.randn(5, size, 2 * size + 3, dtype=torch.float64)
    grams = x @ x.mT
    grams /= torch.linalg.matrix_norm(grams, keepdim=True)
    expected, g = torch.eye(size, dtype=torch.float64).expand(5, size, size), grams
    for a, b, c in COEFFICIENTS:
        polynomial = a * torch.eye(size) + b * g + c * g @ g
        expected, g = polynomial @ expected, g @ polynomial @ polynomial
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(polynomials(grams.float(), COEFFICIENTS))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
    assert (found[0] - expected).abs().max() <= 1e-4 * expected.abs().max()
