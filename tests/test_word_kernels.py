"""Products of bfloat16 and int8: the processor's own, and what stands for them, beside the arithmetic in NumPy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from elmokit.model.bilm import BiLM, BiLMConfig, BiLMState
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.kernels import use
from elmokit.model.kernels.library import available_variants, library
from elmokit.model.kernels.linear import highway, linear
from elmokit.model.lstm import LSTMConfig

VARIANTS = available_variants()
FUSED = [name for name in VARIANTS if name != "portable"]  # all else than products is then fused alike
WORDS = ["bfloat16", "int8"]
TINY = np.float32(np.finfo(np.float32).tiny)
pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")


def flushed(values):
    """What is too small to be normal is zero."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values).astype(np.float32)


def as_bfloat16(values):
    """To the nearest, a tie to the even; the result is again float32."""
    bits = flushed(values).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(values), values, rounded)


def bfloat16_product(x, weight, bias):
    """As VDPBF16PS: of each pair the second first; an addition is rounded once, and float64 knows how."""
    x, weight = (flushed(as_bfloat16(np.pad(m, ((0, 0), (0, m.shape[1] % 2))))) for m in (x, weight))
    total = np.broadcast_to(bias, (len(x), len(weight))).astype(np.float32)
    with np.errstate(all="ignore"):
        for k in range(0, x.shape[1], 2):
            for j in (k + 1, k):
                exact = total.astype(np.float64) + np.outer(x[:, j].astype(np.float64), weight[:, j])
                total = flushed(exact.astype(np.float32))
    return total


def int8_product(x, weight, bias):
    """Each row of x and of the weights by its own largest value; NaN where that is no number."""
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(axis=1, initial=0).astype(np.float32)
        some = np.isfinite(largest) & (largest > 1e-30)
        scale = np.where(np.isfinite(largest), np.where(some, largest / np.float32(127), 0), np.nan).astype(
            np.float32
        )
        inverse = np.where(some, np.float32(127) / largest, 0).astype(np.float32)
        whole = np.rint(np.where(some[:, None], x, 0) * inverse[:, None]).astype(np.int64)
        by_row = np.maximum(np.abs(weight).max(axis=1, initial=0), TINY) / np.float32(127)
        sums = whole @ np.rint(weight / by_row[:, None]).astype(np.int64).T
        each = (scale[:, None] * by_row[None]).astype(np.float32)
        return np.broadcast_to(bias, sums.shape).copy(), sums.astype(np.float32), each


def is_nearest(found, bias, total, scale):
    """Is it the float32 nearest to bias + total * scale?"""
    exact = Fraction(float(bias)) + Fraction(float(total)) * Fraction(float(scale))
    beside = [float(np.nextafter(found, np.float32(end))) for end in (-np.inf, np.inf)]
    return all(abs(Fraction(float(found)) - exact) <= abs(Fraction(other) - exact) for other in beside)


def layer_of(weight, bias):
    module = nn.Linear(weight.shape[1], weight.shape[0])
    module.weight.data, module.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    return module.requires_grad_(False)


def values(rng, shape, spread):
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, spread, size=shape)).astype(np.float32)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 60),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 140),
    spread=st.sampled_from([0, 2, 12, 25]),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize("name", VARIANTS)
def test_bfloat16_products_are_those_of_numpy_to_the_bit(name, rows, inputs, outputs, spread, seed):
    # Without an instruction that multiplies and adds at once, a product by itself must not leave float32's range.
    spread = min(spread, 12) if name == "portable" else spread
    rng = np.random.default_rng(seed)
    x, weight = values(rng, (rows, inputs), spread), values(rng, (outputs, inputs), spread)
    bias = values(rng, outputs, 0)
    # The library sums to whole panels: what is added is zero, and changes nothing.
    expected = bfloat16_product(x, weight, bias)
    fits = np.isfinite(expected)
    with use(name):
        found = linear(layer_of(weight, bias), torch.from_numpy(x), "bfloat16").numpy()
    same = found.view(np.uint32) == expected.view(np.uint32)
    assert same[fits & (np.abs(expected) > 1e-37)].all()
    assert (np.abs(found[fits & ~same]) <= 2 * TINY).all()
    assert (np.isfinite(found) == fits).all()


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 60),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 140),
    spread=st.sampled_from([0, 2, 8]),
    seed=st.integers(0, 999),
)
@pytest.mark.parametrize("name", VARIANTS)
def test_int8_products_are_those_of_numpy_to_the_bit(name, rows, inputs, outputs, spread, seed):
    rng = np.random.default_rng(seed)
    x, weight = values(rng, (rows, inputs), spread), values(rng, (outputs, inputs), spread)
    bias = values(rng, outputs, 0)
    x[rows // 2] = 0  # a row without a scale
    bias, sums, each = int8_product(x, weight, bias)
    with use(name):
        found = linear(layer_of(weight, bias[0]), torch.from_numpy(x), "int8").numpy()
    if name == "portable":  # no fused addition: rounded twice
        assert (found == bias + sums * each).all()
    else:
        assert all(is_nearest(*each_) for each_ in zip(*(m.ravel() for m in (found, bias, sums, each))))


@pytest.mark.parametrize("weights", WORDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-45, 1e-39, -0.0])
@pytest.mark.parametrize("name", VARIANTS)
def test_an_odd_value_stays_in_its_row_and_is_not_hidden(name, value, weights):
    rng = np.random.default_rng(0)
    weight, bias = values(rng, (40, 37), 0), values(rng, 40, 0)
    x = values(rng, (9, 37), 0)
    with use(name):
        plain = linear(layer_of(weight, bias), torch.from_numpy(x), weights)
        x[4, 11] = value
        found = linear(layer_of(weight, bias), torch.from_numpy(x), weights)
    others = [row for row in range(9) if row != 4]
    assert torch.equal(found[others], plain[others])
    if not np.isfinite(value):
        assert not torch.isfinite(found[4]).any()
    elif abs(value) < 1e-30:
        x[4, 11] = 0
        with use(name):
            assert torch.equal(found, linear(layer_of(weight, bias), torch.from_numpy(x), weights))


def model_of(cells, width, layers=2, seed=0, **options):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=layers, cells=cells, width=width, **options)
    return BiLM(BiLMConfig(CharEncoderConfig(filters=((1, 4),), highway=0), config)).requires_grad_(False)


def batch(lengths, width, seed=1):
    x = torch.randn(len(lengths), max(lengths), width, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


@settings(deadline=None, max_examples=25)
@given(
    cells=st.integers(1, 40),
    width=st.integers(1, 70),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    clip=st.sampled_from([None, 0.3, 3.0]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("weights", WORDS)
def test_all_instructions_give_the_same_lstms(weights, cells, width, lengths, clip, seed):
    """The processor's own products, those that stand for them, and another width of vectors: the same bits."""
    model = model_of(cells, width, seed=seed, cell_clip=clip, projection_clip=clip)
    model.weights = weights
    x, mask = batch(lengths, width, seed)
    before = BiLMState(*(torch.randn_like(part) for part in model.zero_state(len(lengths))))
    results = []
    for name in FUSED:
        with use(name):
            results.append(model.contextualize(x, mask, before))
    for other in results[1:]:
        for one, another in zip((results[0].layers, *results[0].state), (other.layers, *other.state)):
            assert torch.equal(one, another)


@pytest.mark.parametrize("weights", WORDS)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_is_the_same_in_any_batch_and_with_any_number_of_threads(name, weights):
    """Steps of many rows are computed another way than those of few."""
    lengths = [30, 29, *[25] * 30, 7, 3, 2, 1]
    model = model_of(24, 20)
    model.weights = weights
    x, mask = batch(lengths, 20)
    before = torch.get_num_threads()
    try:
        with use(name):
            torch.set_num_threads(1)
            together = model.contextualize(x, mask).layers
            torch.set_num_threads(5)
            assert torch.equal(model.contextualize(x, mask).layers, together)
            for row in (0, 1, 17, 33, 35):
                rows = slice(row, row + 1)
                alone = model.contextualize(x[rows, : lengths[row]], mask[rows, : lengths[row]]).layers
                assert torch.equal(alone[:, 0], together[:, row, : lengths[row]])
            some = [0, 2, 5, 9, 33]
            assert torch.equal(model.contextualize(x[some], mask[some]).layers, together[:, some])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("weights", WORDS)
def test_a_text_in_two_pieces_is_the_text(weights):
    model = model_of(17, 9)
    model.weights = weights
    x, mask = batch([8, 8], 9)
    whole = model.contextualize(x, mask).layers
    first = model.contextualize(x[:, :5], mask[:, :5])
    second = model.contextualize(x[:, 5:], mask[:, 5:], first.state)
    forward = torch.cat([first.layers, second.layers], dim=2)[..., :9]
    assert torch.equal(forward, whole[..., :9])


@pytest.mark.parametrize("weights", ["bfloat16", "float16", "int8"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_highway_of_smaller_weights_is_near_and_row_by_row(name, weights):
    torch.manual_seed(0)
    transform, carry = (nn.Linear(75, 75).requires_grad_(False) for _ in range(2))
    x = torch.randn(101, 75)
    gate = torch.sigmoid(carry(x))
    expected = gate * torch.relu(transform(x)) + (1 - gate) * x
    with use(name):
        found = highway(transform, carry, x, weights)
        assert 0 < (found - expected).abs().max() < 0.05
        for row in (0, 50, 100):
            assert torch.equal(highway(transform, carry, x[row : row + 1], weights)[0], found[row])
