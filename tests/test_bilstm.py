"""The biLSTM of the tasks, beside torch's own on each sentence alone."""

from __future__ import annotations

import torch
from torch import nn

from elmokit.tasks.nn.bilstm import BiLSTM, reversed_positions
from elmokit.tasks.nn.dropout import VariationalDropout


def test_it_is_torchs_bidirectional_lstm_of_each_sentence_alone():
    torch.manual_seed(0)
    ours = BiLSTM(5, 4, layers=2)
    theirs = nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer in (0, 1):
            for suffix, direction in (("", ours.forwards), ("_reverse", ours.backwards)):
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    getattr(theirs, f"{name}_l{layer}{suffix}").copy_(getattr(direction[layer], f"{name}_l0"))
    lengths = [3, 7, 1, 0]
    x = torch.randn(4, 7, 5, requires_grad=True)
    mask = torch.arange(7) < torch.tensor(lengths).unsqueeze(1)
    output = ours(x, mask)
    assert output.shape == (4, 7, 8)
    for row, length in enumerate(lengths):
        if length:
            torch.testing.assert_close(output[row, :length], theirs(x[row : row + 1, :length])[0][0])
        assert not output[row, length:].any()
    output.sum().backward()
    assert not x.grad[~mask].any()  # what is padded changes nothing
    assert ours(torch.zeros(2, 0, 5), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0, 8)


def test_reversed_twice_is_as_before():
    mask = torch.arange(6) < torch.tensor([[4], [6], [0]])
    positions = reversed_positions(mask)
    assert positions.tolist()[0] == [3, 2, 1, 0, 4, 5]
    assert torch.equal(positions.gather(1, positions), torch.arange(6).expand(3, 6))


def test_a_sentence_has_one_dropout_mask():
    dropout = VariationalDropout(0.5)
    dropped = dropout(torch.ones(8, 5, 20))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert dropout.eval()(torch.ones(1, 1, 3)).tolist() == [[[1.0] * 3]]
