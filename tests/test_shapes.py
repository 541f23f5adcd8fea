"""Modules without values: the right shapes, nothing drawn, nothing held."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import LSTMConfig
from elmokit.model.shapes import shapes_only
from elmokit.model.word_encoder import WordEncoderConfig
from helpers.models import small_config


@pytest.mark.parametrize(
    "make",
    [
        lambda: BiLM(small_config()),
        lambda: BiLM(BiLMConfig(WordEncoderConfig(words=9, embedding=4), LSTMConfig(cells=6, width=5))),
        lambda: LanguageHead(7, 8, 5),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Embedding(5, 6), nn.LSTM(3, 4), nn.LayerNorm(3)),
    ],
)
def test_names_and_shapes_are_those_of_a_real_one_and_no_random_number_is_drawn(make):
    real = make()
    before = torch.random.get_rng_state()
    with shapes_only():
        hollow = make()
    assert torch.equal(before, torch.random.get_rng_state())
    assert {tensor.device.type for tensor in hollow.state_dict().values()} == {"meta"}
    shapes = [{name: tensor.shape for name, tensor in module.state_dict().items()} for module in (real, hollow)]
    assert shapes[0] == shapes[1]
    hollow.load_state_dict(real.state_dict(), assign=True)
    assert all(torch.equal(one, two) for one, two in zip(real.parameters(), hollow.parameters()))


def test_outside_weights_are_initialized_as_ever():
    with shapes_only():
        nn.Embedding(3, 4)
    assert nn.Embedding(3, 4).weight.std() > 0
    assert nn.Linear(3, 4).weight.device.type == "cpu"
