"""The LSTMs by PyTorch's operations, for reading, beside their definition: ProjectedLSTM, step by step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.model.bilm import reverse
from elmokit.model.kernels import steps
from elmokit.model.kernels.steps import stack
from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM


def make(cells, width, layers=2, *, seed=0, dtype=torch.float32, **options):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=layers, cells=cells, width=width, **options)
    lstms = [[ProjectedLSTM(width, config).to(dtype) for _ in range(layers)] for _ in range(2)]
    for direction in lstms:
        torch.nn.init.normal_(direction[0].bias)
    return lstms


def batch(lengths, width, *, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor(lengths)
    x = torch.randn(len(lengths), max(1, *lengths), width, generator=generator, dtype=dtype)
    return x * (torch.arange(x.shape[1]) < counts.unsqueeze(1)).unsqueeze(-1), counts


def state(lstms, rows, *, scale=0.5, dtype=torch.float32):
    config = lstms[0][0].config
    generator = torch.Generator().manual_seed(2)
    sizes = [(2, config.layers, rows, size) for size in (config.width, config.cells)]
    return [torch.randn(size, generator=generator, dtype=dtype) * scale for size in sizes]


@torch.no_grad()
def by_definition(lstms, x, lengths, hidden, cell):
    mask = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
    layers, after_hidden, after_cell = [[], []], torch.empty_like(hidden), torch.empty_like(cell)
    for direction in (0, 1):
        y = reverse(x, lengths) if direction else x
        for layer, lstm in enumerate(lstms[direction]):
            h, after = lstm(y, mask, LSTMState(hidden[direction, layer], cell[direction, layer]))
            y = h + y if lstm.config.skip and layer else h
            after_hidden[direction, layer], after_cell[direction, layer] = after
            layers[direction].append(reverse(y, lengths) if direction else y)
    both = [torch.cat([x, x], dim=-1), *(torch.cat(pair, dim=-1) for pair in zip(*layers))]
    return torch.stack(both), after_hidden, after_cell


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@settings(deadline=None, max_examples=40)
@given(
    cells=st.integers(1, 40),
    width=st.integers(1, 40),
    layers=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=11),
    clips=st.tuples(st.sampled_from([None, 0.3, 3.0]), st.sampled_from([None, 0.2, 3.0])),
    skip=st.booleans(),
    scale=st.sampled_from([0, 0.5]),
    most=st.sampled_from([1, 13, steps.TOKENS]),
)
def test_layers_and_states_are_those_of_the_definition(
    dtype, error, cells, width, layers, lengths, clips, skip, scale, most
):
    options = {"cell_clip": clips[0], "projection_clip": clips[1], "skip": skip}
    lstms = make(cells, width, layers, dtype=dtype, **options)
    x, counts = batch(lengths, width, dtype=dtype)
    start = state(lstms, len(lengths), scale=scale, dtype=dtype)
    given = [part.clone() for part in (x, *start)]
    found = stack(lstms, x, counts, *start, tokens=most)
    for one, other in zip(found, by_definition(lstms, x, counts, *start)):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, atol=error, rtol=0)
    assert all(torch.equal(before, now) for before, now in zip(given, (x, *start)))
    assert not any(part.requires_grad for part in found)


def test_a_small_model_of_the_published_kind():
    lstms = make(1024, 128)
    for lengths in ([1], [25], [7, 1, 12, 12, 3, 0, 9]):
        x, counts = batch(lengths, 128)
        start = state(lstms, len(lengths))
        for one, other in zip(stack(lstms, x, counts, *start), by_definition(lstms, x, counts, *start)):
            assert (one - other).abs().max() <= 1e-5


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 31])
def test_a_row_does_not_depend_on_what_stands_beside_it(rows):
    lstms = make(256, 64)
    lengths = [1 + i % 7 for i in range(rows)]
    x, counts = batch(lengths, 64)
    start = state(lstms, rows)
    together = stack(lstms, x, counts, *start)
    for row in {0, rows // 2, rows - 1}:
        here = slice(row, row + 1)
        alone = stack(lstms, x[here, : lengths[row]], counts[here], *(part[:, :, here] for part in start))
        found = [together.layers[:, here, : lengths[row]], together.hidden[:, :, here], together.cell[:, :, here]]
        for one, other in zip(found, alone):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
        assert not together.layers[:, row, lengths[row] :].any()


def test_values_that_are_no_numbers_do_not_spread_to_other_rows():
    lstms = make(32, 16)
    x, counts = batch([4, 2, 4, 1, 3], 16)
    start = state(lstms, 5)
    clean = stack(lstms, x, counts, *start).layers
    x[1, 1, 3] = float("nan")
    dirty = stack(lstms, x, counts, *start).layers
    assert torch.equal(dirty[:, [0, 2, 3, 4]], clean[:, [0, 2, 3, 4]])
    expected = by_definition(lstms, x, counts, *start)[0]
    assert torch.equal(dirty[:, 1, :2].isnan(), expected[:, 1, :2].isnan())
    assert not dirty[:, 1, 2:].any()  # padding stays zero


def test_shapes_are_known_without_values():
    lstms = [[lstm.to("meta") for lstm in direction] for direction in make(16, 8, layers=3)]
    start = [part.to("meta") for part in state(lstms, 5)]
    found = stack(lstms, torch.empty(5, 7, 8, device="meta"), torch.empty(5, dtype=int, device="meta"), *start)
    assert [tuple(part.shape) for part in found] == [(4, 5, 7, 16), (2, 3, 5, 8), (2, 3, 5, 16)]
    assert all(part.is_meta for part in found)


def test_no_rows():
    lstms = make(16, 8)
    found = stack(lstms, torch.empty(0, 3, 8), torch.empty(0, dtype=int), *state(lstms, 0))
    assert [tuple(part.shape) for part in found] == [(3, 0, 3, 16), (2, 2, 0, 8), (2, 2, 0, 16)]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_every_mode_gives_the_same_without_gradients(mode):
    lstms = make(64, 32)
    x, counts = batch([9, 3, 0, 7, 8], 32)
    start = state(lstms, 5)
    expected = stack(lstms, x, counts, *start)
    with mode():
        found = stack(lstms, *batch([9, 3, 0, 7, 8], 32), *state(lstms, 5))
    assert all(torch.equal(one, other) for one, other in zip(found, expected))
    assert not any(part.requires_grad for part in found)
