from __future__ import annotations

import dataclasses

import pytest
import torch

from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM

CONFIG = LSTMConfig(layers=1, cells=12, width=5)


def fresh(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    lstm = ProjectedLSTM(5, config)
    torch.nn.init.normal_(lstm.bias)
    return lstm


def zeros(rows, config=CONFIG, dtype=torch.float32):
    return LSTMState(torch.zeros(rows, config.width, dtype=dtype), torch.zeros(rows, config.cells, dtype=dtype))


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # oneDNN has none; torch says so once
def test_without_clipping_it_is_torchs_projected_lstm():
    config = dataclasses.replace(CONFIG, cell_clip=None, projection_clip=None, forget_bias=0.5)
    ours = fresh(config)
    theirs = torch.nn.LSTM(5, 12, proj_size=5, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input_weight)
        theirs.weight_hh_l0.copy_(ours.hidden_weight)
        theirs.weight_hr_l0.copy_(ours.projection_weight)
        theirs.bias_ih_l0.copy_(ours.bias)
        theirs.bias_hh_l0.zero_()
        theirs.bias_hh_l0[12:24] = 0.5  # the forget gate
    x = torch.randn(3, 7, 5)
    start = LSTMState(torch.randn(3, 5), torch.randn(3, 12))
    h, after = ours(x, torch.ones(3, 7, dtype=torch.bool), start)
    expected, (hidden, cell) = theirs(x, (start.hidden[None], start.cell[None]))
    torch.testing.assert_close(h, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(after.hidden, hidden[0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(after.cell, cell[0], atol=1e-6, rtol=1e-5)


def test_cell_and_output_stay_within_their_bounds_and_reach_them():
    lstm = fresh(dataclasses.replace(CONFIG, cell_clip=0.5, projection_clip=0.25))
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(5)
    h, after = lstm(torch.randn(4, 20, 5), torch.ones(4, 20, dtype=torch.bool), zeros(4))
    assert after.cell.abs().max() == 0.5
    assert h.abs().max() == 0.25


def test_a_sequence_in_two_parts_with_the_state_handed_on_is_the_whole():
    lstm, x, mask = fresh(), torch.randn(2, 9, 5), torch.ones(2, 9, dtype=torch.bool)
    whole, end = lstm(x, mask, zeros(2))
    first, middle = lstm(x[:, :4], mask[:, :4], zeros(2))
    second, after = lstm(x[:, 4:], mask[:, 4:], middle)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(after.cell, end.cell)


def test_padding_gives_zeros_and_changes_no_state():
    lstm, x = fresh(), torch.randn(2, 6, 5)
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
    h, after = lstm(x, mask, zeros(2))
    short, expected = lstm(x[:1, :3], mask[:1, :3], zeros(1))
    assert not h[0, 3:].any()
    torch.testing.assert_close(h[0, :3], short[0])
    torch.testing.assert_close(after.hidden[0], expected.hidden[0])
    torch.testing.assert_close(after.cell[0], expected.cell[0])


def test_gradients_agree_with_numerical_ones():
    torch.manual_seed(1)
    config = LSTMConfig(layers=1, cells=3, width=2, cell_clip=3.0, projection_clip=3.0)
    lstm = ProjectedLSTM(2, config).double()
    x = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()

    def run(x, *parameters):
        h, after = torch.func.functional_call(
            lstm,
            dict(zip(dict(lstm.named_parameters()), parameters)),
            (x, mask, zeros(2, config, torch.float64)),
        )
        return h, after.cell

    assert torch.autograd.gradcheck(run, (x, *lstm.parameters()))


@pytest.mark.parametrize("wrong", [{"cells": 0}, {"width": -1}, {"cell_clip": 0.0}, {"layers": 0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        dataclasses.replace(CONFIG, **wrong)


def test_where_something_begins_the_state_is_forgotten():
    lstm, x = fresh(), torch.randn(2, 6, 5)
    mask = torch.ones(2, 6, dtype=torch.bool)
    begins = torch.tensor([[0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1]]).bool()
    start = LSTMState(torch.randn(2, 5), torch.randn(2, 12))
    h, after = lstm(x, mask, start, begins)
    carried = lstm(x[:1, :2], mask[:1, :2], LSTMState(start.hidden[:1], start.cell[:1]))[0]
    torch.testing.assert_close(h[0, :2], carried[0])
    anew, end = lstm(x[:1, 2:], mask[:1, 2:], zeros(1))
    torch.testing.assert_close(h[0, 2:], anew[0])
    torch.testing.assert_close(after.cell[0], end.cell[0])
    torch.testing.assert_close(h[1, :5], lstm(x[1:, :5], mask[1:, :5], zeros(1))[0][0])
