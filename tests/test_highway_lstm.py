"""The highway LSTM against the paper's equations, a sentence and a token at a time."""

from __future__ import annotations

import pytest
import torch

from elmokit.tasks.nn.highway_lstm import HighwayLSTM


def by_hand(lstm: HighwayLSTM, x: torch.Tensor) -> torch.Tensor:
    """The paper's equations for one sentence [T, I], a token at a time."""
    for layer in lstm.layers:
        size = layer.cells
        u = dict(zip("ifork", layer.state_weight.split(size)))
        w = dict(zip("iforkx", layer.input_weight.split(size)))
        b = dict(zip("ifork", layer.bias.split(size)))
        h = c = x.new_zeros(size)
        rows = {}
        for t in reversed(range(len(x))) if layer.backward_in_time else range(len(x)):
            gate = {name: w[name] @ x[t] + u[name] @ h + b[name] for name in "ifork"}
            i, f, o, r = (gate[name].sigmoid() for name in "ifor")
            c = f * c + i * gate["k"].tanh()
            h = r * (o * c.tanh()) + (1 - r) * (w["x"] @ x[t])
            rows[t] = h
        x = torch.stack([rows[t] for t in range(len(x))])
    return x


def some_lstm(**options) -> HighwayLSTM:
    torch.manual_seed(0)
    return HighwayLSTM(7, 5, 3, **options).double()


def test_a_batch_of_any_lengths_is_what_each_sentence_is_by_hand():
    lstm, lengths = some_lstm(), [4, 1, 6, 0, 6, 2]
    x = torch.randn(6, 8, 7, dtype=torch.float64)
    mask = torch.arange(8) < torch.tensor(lengths).unsqueeze(1)
    output = lstm(x, mask)
    assert output.shape == (6, 8, 5)
    for row, inputs, length in zip(output, x, lengths):
        if length:
            torch.testing.assert_close(row[:length], by_hand(lstm, inputs[:length]))
        assert not row[length:].any()
    assert lstm(x[:, :0], mask[:, :0]).shape == (6, 0, 5)


def test_gradients_are_right_and_padding_has_none():
    lstm = some_lstm()
    x = torch.randn(3, 4, 7, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(4) < torch.tensor([[2], [4], [3]])
    assert torch.autograd.gradcheck(lambda x: lstm(x, mask), (x,))
    lstm(x, mask).sum().backward()
    assert not x.grad[~mask].any()
    assert all(parameter.grad is not None for parameter in lstm.parameters())


def test_layers_alternate_and_begin_orthonormal():
    lstm = some_lstm()
    assert [layer.backward_in_time for layer in lstm.layers] == [False, True, False]
    for layer in lstm.layers:
        for block in (*layer.input_weight.split(5), *layer.state_weight.split(5)):
            torch.testing.assert_close(block @ block.T, torch.eye(5, dtype=torch.float64), atol=1e-5, rtol=0)
        assert layer.bias.tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 15


def test_one_dropout_mask_for_all_tokens_of_a_sentence():
    torch.manual_seed(0)
    lstm = HighwayLSTM(7, 40, 1, 0.5)
    x, mask = torch.randn(2, 9, 7), torch.ones(2, 9, dtype=torch.bool)
    dropped = lstm.train()(x, mask) == 0
    assert 0.2 < dropped.float().mean() < 0.8
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))  # the same cells at every token
    assert not torch.equal(dropped[0], dropped[1])
    assert torch.equal(lstm.eval()(x, mask), lstm(x, mask))
    assert (lstm(x, mask) != 0).all()


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="layers: expected 1 or more, found 0"):
        HighwayLSTM(3, 4, 0)
    with pytest.raises(ValueError, match="dropout: expected 0 or more and less than 1, found 1"):
        HighwayLSTM(3, 4, 1, 1)
