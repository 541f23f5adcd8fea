"""Products of bfloat16 beside the same in float64, from operands rounded beforehand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.model import language_head, lstm
from elmokit.model.bilm import run_layer
from elmokit.model.char_encoder import Highway
from elmokit.model.kernels import bfloat16_softmax
from elmokit.model.kernels.bfloat16 import Factors, available, linear, product, products, products_in
from elmokit.model.kernels.recurrent import Repeated, layer, repeats
from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM

needs_it = pytest.mark.skipif(not available(), reason="this processor has no AVX512_BF16, or there are no kernels")
EPS = 2.0**-9  # the largest error of rounding to bfloat16, relative


def rounded(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).double()


class RoundedLinear(torch.autograd.Function):
    """F.linear in float64, forward and backward, of operands that were rounded to bfloat16."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        y = rounded(x) @ rounded(weight).T
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, gradient):
        x, weight = (rounded(tensor) for tensor in ctx.saved_tensors)
        flat = rounded(gradient).reshape(-1, gradient.shape[-1])
        by_weight = flat.T @ x.reshape(-1, x.shape[-1])
        bias = gradient.reshape(-1, gradient.shape[-1]).sum(dim=0) if ctx.needs_input_grad[2] else None
        return (flat @ weight).view_as(x), by_weight, bias


def rounded_linear(x, weight, bias=None):
    return RoundedLinear.apply(x, weight, bias)


def close(found: Tensor, expected: Tensor, few: float = 0.0, most: float = 1e-5) -> None:
    """Within `most` of the largest, but for a share of `few`, which may be a rounding away."""
    error = (found.double() - expected).abs() / expected.abs().max().clamp(min=1e-3)
    assert (error > most).double().mean() <= few, error.max()
    assert error.max() <= max(most, 4 * EPS if few else 0)


@needs_it
@settings(deadline=None, max_examples=100)
@given(
    m=st.integers(1, 150),
    k=st.integers(1, 600),
    n=st.integers(1, 100),
    biased=st.booleans(),
    turned=st.integers(0, 3),
)
def test_a_product_is_that_of_rounded_operands(m, k, n, biased, turned):
    torch.manual_seed(m + k + n)
    a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(n) if biased else None
    expected = rounded(a) @ rounded(b) + (bias.double() if biased else 0)
    a = a.T.contiguous().T if turned & 1 else a
    b = b.T.contiguous().T if turned & 2 else b
    sizes = rounded(a).abs() @ rounded(b).abs() + (bias.double().abs() if biased else 0)
    assert ((product(a, b, bias) - expected).abs() <= 2e-6 * sizes).all()  # only the order of the sum differs


@needs_it
def test_rounding_is_to_the_nearest_and_a_tie_to_the_even():
    x = torch.randn(500, 1)
    x[0], x[1], x[2], x[3] = 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, -0.0
    one = torch.ones(1, 1)
    assert torch.equal(product(x, one), x.to(torch.bfloat16).float())


@needs_it
def test_nothing_and_what_is_no_number():
    assert product(torch.randn(0, 3), torch.randn(3, 4)).shape == (0, 4)
    a, b = torch.randn(20, 7), torch.randn(7, 5)
    a[3, 2] = torch.nan
    found = product(a, b)
    assert found[3].isnan().all()
    assert found.isnan().sum() == 5
    with pytest.raises(ValueError, match=r"found \(20, 7\) and \(5, 7\)"):
        product(a, b.T)


@needs_it
def test_a_row_of_a_product_is_the_same_bits_whatever_stands_beside_it_and_however_many_threads_there_are():
    a, b = torch.randn(301, 700), torch.randn(700, 90)
    together = product(a, b)
    for rows in (slice(0, 1), slice(5, 8), slice(290, 301)):
        assert torch.equal(product(a[rows], b), together[rows])
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(product(a, b), together)
    finally:
        torch.set_num_threads(before)


@needs_it
@pytest.mark.parametrize("threads", [1, 3])
def test_products_together_are_those_of_each_by_itself(threads):
    torch.manual_seed(0)
    shapes = [(1, 3, 1), (40, 300, 33), (256, 2048, 256), (0, 4, 4), (130, 5, 70)]
    pairs = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]
    expected = [product(a, b) for a, b in pairs]
    onto = torch.randn(40, 33)
    sum_of_both = onto + expected[1]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = products([Factors(a, b) for a, b in pairs] + [Factors(*pairs[1], onto=onto)])
    finally:
        torch.set_num_threads(before)
    assert found[-1] is onto
    close(onto, sum_of_both.double())
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


@needs_it
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (31, 7), (70, 33), (256, 2048), (300, 200)])
def test_half_of_a_symmetric_product_gives_all_of_its_bits(rows, columns):
    x = torch.randn(rows, columns)
    across = x.T.contiguous().T
    for a in (x, across):
        assert torch.equal(products([Factors(a, a.T, symmetric=True)])[0], product(a, a.T))


@needs_it
def test_a_highway_trains_to_the_same_bits_whatever_the_number_of_threads_and_once():
    highway, x = Highway(150), torch.randn(90, 150, requires_grad=True)

    def gradients(threads):
        torch.set_num_threads(threads)
        with products_in("bfloat16"):
            return torch.autograd.grad(highway(x).square().sum(), [x, *highway.parameters()])

    before = torch.get_num_threads()
    try:
        one, three = gradients(1), gradients(3)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, three))
    with products_in("bfloat16"):
        y = highway(x).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        y.backward()


@needs_it
def test_a_highway_passes_on_what_is_no_number_and_survives_what_is_large():
    highway = Highway(20)
    torch.nn.init.zeros_(highway.transform.weight)
    torch.nn.init.zeros_(highway.carry.weight)
    for bias, expected in ((-200.0, 3.0), (200.0, 5.0)):  # all is carried on, then nothing
        torch.nn.init.constant_(highway.carry.bias, bias)
        torch.nn.init.constant_(highway.transform.bias, 5.0)
        with products_in("bfloat16"):
            assert torch.equal(highway(torch.full((3, 20), 3.0)), torch.full((3, 20), expected))
    x = torch.ones(3, 20)
    x[1, 4] = torch.nan
    with products_in("bfloat16"):
        assert highway(x).isnan().sum() == 20


@needs_it
def test_a_linear_map_and_a_highway_with_their_gradients():
    torch.manual_seed(0)
    highway = Highway(37)
    x = torch.randn(21, 37, requires_grad=True)
    inputs = [x, *highway.parameters()]
    upstream = torch.randn(21, 37)
    with products_in("bfloat16"):
        found = torch.autograd.grad((highway(x) * upstream).sum(), inputs)
    parts = (highway.transform, highway.carry)
    transform, carry = (rounded_linear(x, part.weight, part.bias).float() for part in parts)
    y = torch.sigmoid(carry) * torch.relu(transform) + (1 - torch.sigmoid(carry)) * x
    expected = torch.autograd.grad((y * upstream).sum(), inputs)
    for one, other in zip(found, expected):
        close(one, other.double(), few=0.02)
    y = linear(x, highway.carry.weight, None)
    close(y, rounded(x) @ rounded(highway.carry.weight).T)


def both_ways(lstms, xs, mask, states, begins, inputs, monkeypatch):
    """The layer's results and gradients: the library's, and the definition's from rounded operands in float64."""

    def gradients(results):
        flat = [part for h, after in results for part in (h, *after)]
        generator = torch.Generator().manual_seed(4)
        loss = sum((part * torch.randn(part.shape, generator=generator)).sum() for part in flat)
        return flat, torch.autograd.grad(loss, inputs)

    with products_in("bfloat16"):
        found = gradients(layer(lstms, xs, mask.sum(dim=1), states, begins))
    with monkeypatch.context() as patch:
        patch.setattr(lstm.F, "linear", rounded_linear)
        expected = gradients([each(x, mask, state, begins) for each, x, state in zip(lstms, xs, states)])
    return found, expected


@needs_it
@pytest.mark.parametrize("clips", [(None, None), (0.3, 0.2), (3.0, 3.0)])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("inputs", "cells", "width", "lengths"),
    [
        (1, 1, 1, [1]),
        (5, 11, 7, [3, 9, 0, 1, 4]),
        (33, 40, 31, [6, 6, 2]),
        (64, 96, 32, [7] * 19),
        (40, 70, 65, [9, 8, 8, 1, 0, 5, 3, 3, 2, 2]),
    ],
)
def test_a_layer_is_the_definition_from_rounded_operands(inputs, cells, width, lengths, begun, clips, monkeypatch):
    torch.manual_seed(3)
    config = LSTMConfig(layers=1, cells=cells, width=width, cell_clip=clips[0], projection_clip=clips[1])
    lstms = [ProjectedLSTM(inputs, config) for _ in range(2)]
    for each in lstms:
        torch.nn.init.normal_(each.bias)
    rows, steps = len(lengths), max(lengths)
    mask = torch.arange(steps) < torch.tensor(lengths).unsqueeze(1)
    xs = [torch.randn(rows, steps, inputs, requires_grad=True) for _ in lstms]
    states = [
        LSTMState(torch.randn(rows, width, requires_grad=True), torch.randn(rows, cells, requires_grad=True))
        for _ in lstms
    ]
    begins = (torch.rand(rows, steps) < 0.3) & mask if begun else None
    weights = [parameter for each in lstms for parameter in each.parameters()]
    given = [*xs, *(part for state in states for part in state), *weights]
    found, expected = both_ways(lstms, xs, mask, states, begins, given, monkeypatch)
    # What is a hair from a border is rounded, or clipped, this way here and that way there; then it is fed back.
    for one, other in zip(found[0], expected[0]):
        close(one, other, few=0.1, most=1e-4)
    for one, other in zip(found[1], expected[1]):
        error = (one - other).abs().max() / other.abs().max().clamp(min=1e-2)
        assert error <= 16 * EPS, error
        assert torch.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0) > 0.9995 or (
            other.abs().max() < 1e-6
        )


@needs_it
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("inputs", "cells", "width", "distinct", "lengths"),
    [(1, 1, 1, 1, [1]), (5, 11, 7, 4, [9, 4, 3, 1, 0]), (64, 96, 32, 30, [7] * 40), (40, 70, 65, 50, [8, 8, 5])],
)
def test_a_layer_of_repeated_tokens_is_that_of_all_of_them(
    inputs, cells, width, distinct, lengths, begun, threads
):
    torch.manual_seed(5)
    lstms = [ProjectedLSTM(inputs, LSTMConfig(layers=1, cells=cells, width=width)) for _ in range(2)]
    rows, steps = len(lengths), max(lengths)
    mask = torch.arange(steps) < torch.tensor(lengths).unsqueeze(1)
    xs = [
        Repeated(torch.randn(distinct, inputs, requires_grad=True), torch.randint(distinct, (rows, steps)))
        for _ in lstms
    ]
    states = [LSTMState(torch.randn(rows, width), torch.randn(rows, cells, requires_grad=True)) for _ in lstms]
    begins = (torch.rand(rows, steps) < 0.3) & mask if begun else None
    weights = [parameter for each in lstms for parameter in each.parameters()]
    given = [*(x.values for x in xs), *(state.cell for state in states), *weights]
    upstream = torch.randn(rows, steps, width)

    def results(layers):
        (one, after), (other, _) = layers
        loss = ((one * 0.5 + other) * upstream).sum() + after.cell.sum()
        return [one, other, after.hidden, after.cell], torch.autograd.grad(loss, given)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with products_in("bfloat16"):
            assert repeats(xs, lstms, mask.sum(dim=1))
            found = results(run_layer(lstms, xs, mask, states, begins))
            expected = results(layer(lstms, [x.whole() for x in xs], mask.sum(dim=1), states, begins))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(found[0], expected[0]):
        close(one, other.double(), few=0.1, most=1e-4)
    for one, other in zip(found[1], expected[1]):
        assert (one - other).abs().max() <= 8 * EPS * other.abs().max().clamp(min=1e-2)


def test_repeated_tokens_are_written_out_where_the_definition_runs():
    torch.manual_seed(6)
    lstms = [ProjectedLSTM(4, LSTMConfig(layers=1, cells=8, width=4)) for _ in range(2)]
    xs = [Repeated(torch.randn(3, 4), torch.randint(3, (2, 5))) for _ in lstms]
    mask = torch.ones(2, 5, dtype=torch.bool)
    states = [LSTMState(torch.zeros(2, 4), torch.zeros(2, 8))] * 2
    found = run_layer(lstms, xs, mask, states, None)
    expected = [each(x.whole(), mask, state) for each, x, state in zip(lstms, xs, states)]
    for (one, _), (other, _) in zip(found, expected):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@needs_it
def test_a_backward_pass_is_run_once_and_nothing_of_it_is_kept():
    lstms = [ProjectedLSTM(4, LSTMConfig(layers=1, cells=8, width=4)) for _ in range(2)]
    states = [LSTMState(torch.zeros(1, 4), torch.zeros(1, 8))] * 2
    with products_in("bfloat16"):
        (h, _), _ = layer(lstms, [torch.randn(1, 3, 4)] * 2, torch.tensor([3]), states)
    h.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        h.sum().backward()


@needs_it
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_number_of_threads_changes_no_bit(threads):
    torch.manual_seed(0)
    lstms = [ProjectedLSTM(24, LSTMConfig(layers=1, cells=40, width=24)) for _ in range(2)]
    lengths = torch.tensor([9] * 20 + [4] * 20)
    xs = [torch.randn(40, 9, 24) for _ in lstms]
    states = [LSTMState(torch.zeros(40, 24), torch.zeros(40, 40))] * 2
    h, weight, bias = torch.randn(301, 24), torch.randn(90, 24), torch.randn(90)
    targets = torch.arange(301) % 90

    def all_of_it():
        weights = [weight for each in lstms for weight in each.parameters()]
        with products_in("bfloat16"):
            (one, _), (other, _) = layer(lstms, xs, lengths, states)
        gradients = torch.autograd.grad((one * other).sum(), weights)
        loss, more = bfloat16_softmax.loss_and_gradients(h, weight, bias, targets, None)
        return [one, other, *gradients, loss, *more]

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = all_of_it()
    torch.set_num_threads(threads)
    try:
        assert all(torch.equal(a, b) for a, b in zip(all_of_it(), expected))
    finally:
        torch.set_num_threads(before)


@needs_it
@settings(deadline=None, max_examples=40)
@given(n=st.integers(0, 130), words=st.integers(1, 150), width=st.integers(1, 70), shares=st.booleans())
def test_the_softmax_is_that_of_rounded_operands(n, words, width, shares):
    torch.manual_seed(n + words + width)
    h, weight, bias = torch.randn(n, width), torch.randn(words, width) / width**0.5, torch.randn(words)
    targets = torch.randint(words, (n,))
    shared = torch.rand(words) < 0.7 if shares else None
    loss, (by_h, by_weight, by_bias) = bfloat16_softmax.loss_and_gradients(h, weight, bias, targets, shared)
    logits = rounded(h) @ rounded(weight).T + bias.double()
    if shared is not None:
        own = logits.gather(1, targets.unsqueeze(1))
        logits = logits.masked_fill(~shared, -torch.inf).scatter(1, targets.unsqueeze(1), own)
    logs = torch.log_softmax(logits, dim=1)
    expected = -logs.gather(1, targets.unsqueeze(1)).sum()
    torch.testing.assert_close(loss.double(), expected, rtol=2e-6, atol=1e-5)
    error = logs.exp() - torch.nn.functional.one_hot(targets, words)
    largest = error.abs().max() if n else 1
    assert ((rounded(error.float()) @ rounded(weight) - by_h).abs() <= 3 * EPS * largest).all()
    if n:
        close(by_weight, rounded(error.float()).T @ rounded(h), few=0.05, most=1e-4)
        close(by_bias, error.sum(dim=0), most=2 * EPS)
    else:
        assert not by_weight.any()


@needs_it
def test_the_softmax_of_large_logits_and_of_what_is_no_number():
    h, weight, bias = 100 * torch.randn(8, 16), torch.randn(40, 16), torch.zeros(40)
    targets = torch.arange(8)
    loss, gradients = bfloat16_softmax.loss_and_gradients(h, weight, bias, targets, None)
    expected = torch.nn.functional.cross_entropy(rounded(h) @ rounded(weight).T, targets, reduction="sum")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    assert all(gradient.isfinite().all() for gradient in gradients)
    h[3, 3] = torch.nan
    assert bfloat16_softmax.loss_and_gradients(h, weight, bias, targets, None)[0].isnan()


@needs_it
def test_the_loss_of_the_head_is_close_to_that_in_float32():
    torch.manual_seed(0)
    head = language_head.LanguageHead(200, 24, softmax_width=16)
    h, targets = torch.randn(90, 24, requires_grad=True), torch.randint(-1, 200, (90,))
    results = []
    for precision in ("float32", "bfloat16"):
        with products_in(precision):
            loss = head.full_loss(h, targets)
        results.append([loss, *torch.autograd.grad(loss, [h, *head.parameters()])])
    for one, other in zip(*results):
        assert 0 < (one - other).abs().max() <= 4 * EPS * one.abs().max()
