from __future__ import annotations

import copy

import pytest
import torch

from elmokit import ElmoLayer, ScalarMix
from elmokit.model.elmo import LayerMixes
from helpers.models import make_elmo

SENTENCES = [["He", "sat", "down"], ["Stop"], []]


def test_it_is_the_mix_of_the_bilms_layers(elmo):
    layer = elmo.layer(dropout=0.0, gamma=2.0)
    mixed, mask, _ = layer(elmo.ids(SENTENCES))
    expected = elmo.embed(SENTENCES, layers="mean")
    assert mask.sum(dim=1).tolist() == [3, 1, 0]
    for row, array in enumerate(expected):
        torch.testing.assert_close(mixed[0][row, : len(array)], 2 * torch.from_numpy(array), atol=1e-6, rtol=0)
        assert not mixed[0][row, len(array) :].any()


def test_boundaries_can_be_kept(elmo):
    layer = elmo.layer(dropout=0.0, keep_boundaries=True)
    mixed, mask, _ = layer(elmo.ids(SENTENCES))
    assert mask.sum(dim=1).tolist() == [5, 3, 2]
    for row, array in enumerate(elmo.embed(SENTENCES, layers="mean", boundaries=True)):
        torch.testing.assert_close(mixed[0][row, : len(array)], torch.from_numpy(array), atol=1e-6, rtol=0)


def test_each_place_learns_weights_of_its_own(elmo):
    layer = elmo.layer(places=2, dropout=0.0, regularizer=0.5)
    with torch.no_grad():
        layer.mixes[1].weights.copy_(torch.tensor([0.0, 3.0, -1.0]))
    first, second = layer(elmo.ids(SENTENCES)).mixes
    assert (first - second).abs().max() > 1e-3
    assert layer.penalty().item() == pytest.approx(0.5 * 10)
    assert layer.width == 16


def test_a_frozen_bilm_gets_no_gradient_and_stays_as_it_is(elmo):
    layer = elmo.layer()
    before = copy.deepcopy(layer.bilm.state_dict())
    model = torch.nn.Sequential()
    model.elmo, model.out = layer, torch.nn.Linear(16, 2)
    model.train()
    assert not layer.bilm.training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.out(layer(elmo.ids(SENTENCES)).mixes[0]).square().sum().backward()
    optimizer.step()
    assert layer.mixes[0].weights.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in layer.bilm.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.bilm.state_dict().items())


def test_a_trainable_bilm_learns(elmo):
    layer = elmo.layer(train_bilm=True)
    layer(elmo.ids(SENTENCES)).mixes[0].square().sum().backward()
    missing = [name for name, parameter in layer.bilm.named_parameters() if parameter.grad is None]
    assert missing == []
    assert layer.bilm.forward_lstms[0].hidden_weight.grad.abs().sum() > 0
    assert layer.train().bilm.training
    assert not layer.eval().bilm.training


def test_dropout_only_while_training(elmo):
    layer = elmo.layer(dropout=0.5)
    ids = elmo.ids([["word"] * 50])
    torch.manual_seed(0)
    dropped = layer.train()(ids).mixes[0]
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    assert torch.equal(layer.eval()(ids).mixes[0], layer(ids).mixes[0])


def test_one_layer_can_be_selected(elmo):
    layer = elmo.layer(which_layers=[2], dropout=0.0)
    mixed = layer(elmo.ids([["He", "sat"]])).mixes[0][0]
    torch.testing.assert_close(
        mixed, torch.from_numpy(elmo.embed([["He", "sat"]], layers=2)[0]), atol=1e-6, rtol=0
    )


def test_the_state_is_handed_back_and_can_be_passed_on(elmo):
    layer = elmo.layer(dropout=0.0)
    first = layer(elmo.ids([["He", "sat"]]))
    second = layer(elmo.ids([["and", "stayed"]]), first.state)
    carried = make_elmo(state="carry").embed([["He", "sat"], ["and", "stayed"]], layers="mean")
    torch.testing.assert_close(second.mixes[0][0], torch.from_numpy(carried[1]), atol=1e-6, rtol=0)


def test_its_parameters_save_and_load_with_the_model_around_it(elmo):
    layer = elmo.layer(places=2)
    with torch.no_grad():
        layer.mixes[1].gamma.fill_(3.0)
    again = make_elmo().layer(places=2)
    again.load_state_dict(layer.state_dict())
    ids = elmo.ids(SENTENCES)
    assert torch.equal(layer.eval()(ids).mixes[1], again.eval()(ids).mixes[1])


@pytest.mark.parametrize("boundaries", [False, True])
def test_layers_that_are_computed_already_are_mixed_as_if_the_bilm_ran(elmo, boundaries):
    layer = elmo.layer(places=2, dropout=0.5).train()
    with torch.no_grad():
        layer.mixes[1].weights.copy_(torch.tensor([0.0, 3.0, -1.0]))
    arrays = elmo.embed(SENTENCES, boundaries=boundaries)
    longest = max(array.shape[1] for array in arrays)
    layers = torch.zeros(3, len(arrays), longest, 16)
    mask = torch.zeros(len(arrays), longest, dtype=torch.bool)
    for row, array in enumerate(arrays):
        layers[:, row, : array.shape[1]] = torch.from_numpy(array)
        mask[row, : array.shape[1]] = True
    torch.manual_seed(0)
    expected = layer(elmo.ids(SENTENCES))
    torch.manual_seed(0)
    given = layer.mix(layers, mask, boundaries=boundaries)
    assert torch.equal(given.mask, expected.mask)
    assert given.state is None
    for one, other in zip(given.mixes, expected.mixes, strict=True):
        assert torch.equal(one == 0, other == 0)  # the same are dropped
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_without_its_bilm_it_is_the_same_module(elmo):
    alone = LayerMixes([ScalarMix(3, regularizer=0.5) for _ in range(2)], dropout=0.0)
    layer = elmo.layer(places=2, dropout=0.0, regularizer=0.5)
    with torch.no_grad():
        layer.mixes[1].weights.copy_(torch.tensor([0.0, 3.0, -1.0]))
    alone.load_state_dict({k: v for k, v in layer.state_dict().items() if not k.startswith("bilm.")})
    layers, mask = torch.randn(3, 2, 4, 16), torch.ones(2, 4, dtype=torch.bool)
    assert torch.equal(alone.mix(layers, mask).mixes[1], layer.mix(layers, mask).mixes[1])
    assert alone.penalty() == layer.penalty()


def test_no_place_is_refused(elmo):
    with pytest.raises(ValueError, match="places"):
        ElmoLayer(elmo.bilm, elmo.mapper, 0)
