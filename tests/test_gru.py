"""The biGRU beside torch's own on each sentence alone: outputs, and gradients of everything."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from elmokit.tasks.nn.gru import BiGRU, orders

NAMES = ("input_weight", "state_weight", "bias", "state_bias")


def mask_of(lengths: list[int], count: int) -> Tensor:
    return torch.arange(count) < torch.tensor(lengths, dtype=torch.int64).unsqueeze(1)


def make(inputs: int, cells: int, dtype: torch.dtype = torch.float32) -> BiGRU:
    """With biases that are not zero."""
    ours = BiGRU(inputs, cells).to(dtype)
    for parameter in ours.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return ours


def torchs(ours: BiGRU) -> nn.GRU:
    """torch's GRU with the weights of ours. It has biases of r and z twice: half of ours each."""
    cells = ours.width // 2
    theirs = nn.GRU(ours.input_weight.shape[-1], cells, batch_first=True, bidirectional=True).to(ours.bias.dtype)
    with torch.no_grad():
        for direction, suffix in enumerate(("_l0", "_l0_reverse")):
            half, rest = ours.bias[direction, : 2 * cells] / 2, ours.bias[direction, 2 * cells :]
            theirs.get_parameter("weight_ih" + suffix).copy_(ours.input_weight[direction])
            theirs.get_parameter("weight_hh" + suffix).copy_(ours.state_weight[direction])
            theirs.get_parameter("bias_ih" + suffix).copy_(torch.cat([half, rest]))
            theirs.get_parameter("bias_hh" + suffix).copy_(torch.cat([half, ours.state_bias[direction]]))
    return theirs


def gradients(gru: nn.GRU) -> dict[str, Tensor]:
    """torch's, by the names of ours."""
    cells = gru.hidden_size
    found = {
        name: torch.stack([gru.get_parameter(name + suffix).grad for suffix in ("_l0", "_l0_reverse")])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    parts = (*list(found.values())[:3], found["bias_hh"][:, 2 * cells :])
    return dict(zip(NAMES, parts))


def compare(lengths: list[int], count: int, inputs: int, cells: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    close = {"atol": 1e-5, "rtol": 1e-5} if dtype is torch.float32 else {"atol": 1e-10, "rtol": 1e-10}
    ours = make(inputs, cells, dtype)
    theirs = torchs(ours)
    x = torch.randn(len(lengths), count, inputs, dtype=dtype, requires_grad=True)
    gradient = torch.randn(len(lengths), count, 2 * cells, dtype=dtype)  # of the output
    output = ours(x, mask_of(lengths, count))
    assert output.shape == gradient.shape
    (output * gradient).sum().backward()
    x_gradient, x.grad = x.grad, None
    loss = 0.0 * sum(parameter.sum() for parameter in theirs.parameters())
    for row, length in enumerate(lengths):
        assert not output[row, length:].any()
        assert not x_gradient[row, length:].any()
        if length:
            expected = theirs(x[row : row + 1, :length])[0][0]
            torch.testing.assert_close(output[row, :length], expected, **close)
            loss = loss + (expected * gradient[row, :length]).sum()
    loss.backward()
    for name, expected in gradients(theirs).items():
        torch.testing.assert_close(ours.get_parameter(name).grad, expected, **close)
    torch.testing.assert_close(x_gradient, torch.zeros_like(x) if x.grad is None else x.grad, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_it_is_torchs_of_each_sentence_alone_and_so_are_its_gradients(dtype):
    compare([6, 9, 1, 0, 4], 9, inputs=5, cells=7, dtype=dtype)


def test_long_sentences():
    compare([120, 90], 120, inputs=20, cells=32, dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=5), st.integers(0, 3), st.integers(1, 4), st.integers(1, 5))
def test_any_lengths_and_sizes(lengths, padding, inputs, cells):
    compare(lengths, max(lengths, default=0) + padding, inputs, cells, torch.float64)


def test_gradients_are_those_of_differences():
    torch.manual_seed(0)
    ours, mask = make(2, 3, torch.float64), mask_of([4, 2], 4)
    weights = [ours.get_parameter(name).detach().requires_grad_() for name in NAMES]

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(ours, dict(zip(NAMES, weights)), (x, mask))

    assert torch.autograd.gradcheck(run, (torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True), *weights))


def test_what_is_padded_changes_nothing():
    torch.manual_seed(0)
    ours, mask = make(3, 4), mask_of([5, 2, 0], 5)
    x, found = torch.randn(3, 5, 3), []
    for padding in (0.0, 1e4, -1e30):
        given = torch.where(mask.unsqueeze(-1), x, padding).requires_grad_()
        ours.zero_grad()
        output = ours(given, mask)
        output.square().sum().backward()
        assert not given.grad[~mask].any()
        found.append([output.detach(), given.grad, *(parameter.grad for parameter in ours.parameters())])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_without_gradients_nothing_is_kept_and_the_output_is_the_same():
    torch.manual_seed(0)
    ours, x, mask = make(3, 4), torch.randn(2, 5, 3), mask_of([5, 3], 5)
    expected, saved = ours(x, mask), []
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(saved.append, lambda kept: kept):
        output = ours.eval()(x, mask)
    assert not output.requires_grad
    assert not saved
    assert torch.equal(output, expected)


def test_the_backward_pass_can_run_twice():
    ours, x, mask = make(3, 4), torch.randn(2, 5, 3, requires_grad=True), mask_of([5, 3], 5)
    loss = ours(x, mask).square().sum()
    inputs = [x, *ours.parameters()]
    first, second = torch.autograd.grad(loss, inputs, retain_graph=True), torch.autograd.grad(loss, inputs)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(("size", "count"), [(2, 0), (0, 3), (0, 0)])
def test_nothing_to_read(size, count):
    ours, x = make(5, 4), torch.zeros(size, count, 5, requires_grad=True)
    output = ours(x, torch.zeros(size, count, dtype=torch.bool))
    assert output.shape == (size, count, 8)
    output.sum().backward()
    assert x.grad.shape == x.shape
    assert not any(parameter.grad.any() for parameter in ours.parameters())


def test_it_starts_with_orthogonal_states_and_no_bias():
    torch.manual_seed(0)
    ours = BiGRU(10, 6)
    for gate in ours.state_weight.view(6, 6, 6):  # three of each direction
        torch.testing.assert_close(gate @ gate.T, torch.eye(6))
    bound = (6 / (10 + 18)) ** 0.5  # Glorot's, of a direction
    assert 0.9 * bound < ours.input_weight.abs().max() <= bound
    assert not ours.bias.any()
    assert not ours.state_bias.any()


def test_orders_are_inverse_and_the_second_direction_is_reversed():
    to_steps, to_tokens = orders(mask_of([3, 1], 3))
    assert torch.equal(to_steps[to_tokens], torch.arange(12))
    places = to_steps.view(3, 2, 2)  # [T, 2, B], a place in [B, T, 2] each
    assert (places // 2 % 3).tolist() == [[[0, 0], [2, 0]], [[1, 1], [1, 1]], [[2, 2], [0, 2]]]
