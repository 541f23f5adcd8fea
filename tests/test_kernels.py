"""The native LSTMs beside their definition, ProjectedLSTM, whose Python loop they replace."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.model.bilm import BiLM, BiLMConfig, BiLMState
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.kernels import use
from elmokit.model.kernels.layers import by_gate, interleaved
from elmokit.model.kernels.library import available_variants, library
from elmokit.model.kernels.linear import tanh_
from elmokit.model.kernels.recurrent import layer, longest_first, stack, step_order
from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM

VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")


def make(cells, width, layers=2, *, seed=0, **options):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=layers, cells=cells, width=width, **options)
    model = BiLM(BiLMConfig(CharEncoderConfig(filters=((1, 4),), highway=0), config))
    for name, parameter in model.named_parameters():
        if name.endswith("lstms.0.bias"):
            torch.nn.init.normal_(parameter)
    return model.requires_grad_(False)


def by_definition(model, x, mask, state=None):
    """The same, by the loop over time."""
    with use("definition"):
        return model.contextualize(x, mask, state)


def batch(rows, steps, width, lengths, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, steps, width, generator=generator)
    mask = torch.arange(steps) < torch.tensor(lengths).unsqueeze(1)
    return x, mask


def random_state(model, rows, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return BiLMState(*(torch.randn(part.shape, generator=generator) * 0.5 for part in model.zero_state(rows)))


@settings(deadline=None, max_examples=60)
@given(
    cells=st.integers(1, 40),
    width=st.integers(1, 70),
    layers=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    clips=st.tuples(st.sampled_from([None, 0.3, 3.0]), st.sampled_from([None, 0.2, 3.0])),
    skip=st.booleans(),
    started=st.booleans(),
    name=st.sampled_from(VARIANTS or ["none"]),
)
def test_layers_and_states_are_those_of_the_definition(cells, width, layers, lengths, clips, skip, started, name):
    model = make(cells, width, layers, cell_clip=clips[0], projection_clip=clips[1], skip=skip)
    x, mask = batch(len(lengths), max(1, *lengths), width, lengths)
    state = random_state(model, len(lengths)) if started else None
    expected = by_definition(model, x, mask, state)
    with use(name):
        found = model.contextualize(x, mask, state)
    torch.testing.assert_close(found.layers, expected.layers, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.state.hidden, expected.state.hidden, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.state.cell, expected.state.cell, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("cells", "width"), [(1024, 128), (4096, 512)], ids=["small", "original"])
def test_the_published_sizes(cells, width):
    model = make(cells, width)
    for lengths in ([1], [25], [7, 1, 12, 12, 3, 0, 9]):
        x, mask = batch(len(lengths), max(lengths), width, lengths)
        expected, found = by_definition(model, x, mask), model.contextualize(x, mask)
        assert (found.layers - expected.layers).abs().max() <= 1e-5
        assert torch.equal(found.layers, model.contextualize(x, mask).layers)  # no run differs from another


def test_without_the_ends_all_that_is_between_them_is_the_same():
    model = make(24, 8)
    lengths = [2, 7, 3, 5, 1, 0]
    x, mask = batch(6, 7, 8, lengths)
    whole, inner = (model.contextualize(x, mask, ends=ends).layers for ends in (True, False))
    for row, length in enumerate(lengths):
        assert torch.equal(whole[:, row, 1 : length - 1], inner[:, row, 1 : length - 1])
    assert not torch.equal(whole, inner)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 31, 64, 256])
def test_a_row_is_the_same_bits_whatever_stands_beside_it(rows):
    model = make(64, 32)
    lengths = [1 + i % 7 for i in range(rows)]
    x, mask = batch(rows, 7, 32, lengths)
    together = model.contextualize(x, mask).layers
    for row in {0, rows // 2, rows - 1}:
        alone = model.contextualize(x[row : row + 1, : lengths[row]], mask[row : row + 1, : lengths[row]]).layers
        assert torch.equal(together[:, row, : lengths[row]], alone[:, 0])
        assert not together[:, row, lengths[row] :].any()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_number_of_threads_changes_no_bit(threads):
    model = make(64, 32)
    lstms = [list(model.forward_lstms), list(model.backward_lstms)]
    x, mask = batch(40, 11, 32, [11 - i % 5 for i in range(40)])
    x, lengths = x * mask.unsqueeze(-1), mask.sum(dim=1)
    one, several = (stack(lstms, x, lengths, *model.zero_state(40), threads=n) for n in (1, threads))
    assert all(torch.equal(a, b) for a, b in zip(one, several))


def test_several_python_threads_at_once():
    model = make(64, 32)
    batches = [batch(5, 9, 32, [9, 3, 1, 7, 8], seed=i) for i in range(16)]
    expected = [model.contextualize(*one).layers for one in batches]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: model.contextualize(*one).layers, batches * 4))
    assert all(torch.equal(a, b) for a, b in zip(found, expected * 4))


@settings(deadline=None, max_examples=40)
@given(
    cells=st.integers(1, 40),
    width=st.integers(1, 40),
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=7).filter(any),
    clips=st.tuples(st.sampled_from([None, 0.3, 3.0]), st.sampled_from([None, 0.2, 3.0])),
    begun=st.booleans(),
    name=st.sampled_from(VARIANTS or ["none"]),
)
def test_gradients_are_those_of_autograd_through_the_definition(cells, width, lengths, clips, begun, name):
    config = LSTMConfig(layers=1, cells=cells, width=width, cell_clip=clips[0], projection_clip=clips[1])
    torch.manual_seed(3)
    lstms = [ProjectedLSTM(width, config) for _ in range(2)]
    rows, steps = len(lengths), max(lengths)
    mask = torch.arange(steps) < torch.tensor(lengths).unsqueeze(1)
    xs = [torch.randn(rows, steps, width, requires_grad=True) for _ in lstms]
    states = [
        LSTMState(torch.randn(rows, width, requires_grad=True), torch.randn(rows, cells, requires_grad=True))
        for _ in lstms
    ]
    begins = (torch.rand(rows, steps) < 0.3) & mask if begun else None
    weights = [parameter for lstm in lstms for parameter in lstm.parameters()]
    inputs = [*xs, *(part for state in states for part in state), *weights]

    def gradients(results):
        flat = [part for h, after in results for part in (h, *after)]
        generator = torch.Generator().manual_seed(4)
        loss = sum((part * torch.randn(part.shape, generator=generator)).sum() for part in flat)
        return flat, torch.autograd.grad(loss, inputs)

    expected, expected_gradients = gradients(
        [lstm(x, mask, state, begins) for lstm, x, state in zip(lstms, xs, states)]
    )
    with use(name):
        found, found_gradients = gradients(layer(lstms, xs, mask.sum(dim=1), states, begins))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    for one, other in zip(found_gradients, expected_gradients):
        assert (one - other).abs().max() <= 1e-4 * max(1e-2, other.abs().max())


def test_a_backward_pass_is_run_once():
    lstms = [ProjectedLSTM(4, LSTMConfig(layers=1, cells=8, width=4)) for _ in range(2)]
    states = [LSTMState(torch.zeros(1, 4), torch.zeros(1, 8))] * 2
    (h, _), _ = layer(lstms, [torch.randn(1, 3, 4)] * 2, torch.tensor([3]), states)
    h.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        h.sum().backward()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("weights", "error"), [("bfloat16", 0.05), ("float16", 0.01), ("int8", 0.3)])
def test_smaller_weights_are_close_and_a_row_is_still_alone(weights, error, name):
    with use(name):
        model = make(256, 64)
        x, mask = batch(9, 12, 64, [12, 3, 1, 7, 12, 5, 2, 8, 4])
        expected = model.contextualize(x, mask).layers
        model.weights = weights
        found = model.contextualize(x, mask).layers
        assert 0 < (found - expected).abs().max() < error
        assert torch.cosine_similarity(found[1:, mask], expected[1:, mask], dim=-1).min() > 0.99
        for row in range(9):
            alone = model.contextualize(x[row : row + 1], mask[row : row + 1]).layers
            assert torch.equal(found[:, row], alone[:, 0])


def test_a_model_that_has_run_can_be_copied_and_pickled():
    model = make(16, 8)
    x, mask = batch(2, 3, 8, [3, 2])
    expected = model.contextualize(x, mask).layers
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.contextualize(x, mask).layers, expected)


def test_other_shapes_are_refused_before_they_are_read():
    model = make(16, 8)
    x, mask = batch(2, 3, 8, [3, 2])
    state = model.zero_state(2)
    with pytest.raises(ValueError, match=r"x: expected \(2, 3, 8\), found \(2, 3, 7\)"):
        model.contextualize(x[..., :7], mask)
    with pytest.raises(ValueError, match="cell: expected"):
        model.contextualize(x, mask, BiLMState(state.hidden, state.cell[..., :-1]))
    with pytest.raises(ValueError, match="hidden: expected"):
        model.run((x, x), mask, BiLMState(state.hidden[..., :-1], state.cell))
    with pytest.raises(ValueError, match="begins: expected"):
        model.run((x, x), mask, state, begins=mask[:, :-1])


def test_other_types_and_devices_take_the_definition():
    model = make(16, 8).double()
    x, mask = batch(2, 3, 8, [3, 2])
    assert model.contextualize(x.double(), mask).layers.dtype == torch.float64
    meta = make(16, 8).to("meta")
    assert meta.contextualize(x.to("meta"), mask.to("meta")).layers.shape == (3, 2, 3, 16)


def test_gates_are_woven_and_unwoven():
    weight = torch.randn(4 * 11, 3)
    woven = interleaved(weight)
    assert woven.shape == (4 * 16, 3)
    torch.testing.assert_close(woven[8:16], weight[11:19])  # eight forget gates follow eight input gates
    torch.testing.assert_close(by_gate(woven, 11), weight)


def test_steps_in_the_order_in_which_they_are_run():
    assert step_order(torch.tensor([3, 1, 0]), 3).tolist() == [0, 3, 1, 2]
    assert longest_first(torch.tensor([3, 3, 1])) is None
    assert longest_first(torch.tensor([1, 3, 2, 3])).tolist() == [1, 3, 2, 0]


def test_tanh_is_within_five_ten_millionths():
    x = np.concatenate([np.linspace(-12, 12, 400_000), np.geomspace(1e-30, 1e-2, 400_000)]).astype(np.float32)
    for name in VARIANTS:
        with use(name):
            y = tanh_(torch.from_numpy(x.copy())).numpy()
        assert np.abs(y - np.tanh(x.astype(np.float64))).max() < 5e-7


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_values_that_are_no_numbers_do_not_spread_to_other_rows(value):
    model = make(32, 16)
    x, mask = batch(3, 4, 16, [4, 4, 4])
    clean = model.contextualize(x, mask).layers
    x[1, 2, 3] = value
    dirty = model.contextualize(x, mask).layers
    assert torch.equal(dirty[:, [0, 2]], clean[:, [0, 2]])
    assert torch.equal(dirty.isnan(), by_definition(model, x, mask).layers.isnan())


def test_both_clips_may_be_absent():
    model = make(16, 8, cell_clip=None, projection_clip=None)
    assert dataclasses.asdict(model.config.lstm)["cell_clip"] is None
    x, mask = batch(2, 6, 8, [6, 6])
    found = model.contextualize(x * 50, mask).layers
    torch.testing.assert_close(found, by_definition(model, x * 50, mask).layers, atol=1e-4, rtol=1e-5)
