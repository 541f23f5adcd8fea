from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit import ScalarMix

LAYERS = torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
WEIGHTS = st.lists(st.floats(-5, 5), min_size=3, max_size=3)


def softmax(w):
    exponents = np.exp(np.asarray(w, dtype=np.float64))
    return exponents / exponents.sum()


@given(WEIGHTS, st.floats(-3, 3))
def test_it_is_gamma_times_the_softmax_weighted_sum(weights, gamma):
    mixed = ScalarMix(3, weights=weights, gamma=gamma)(LAYERS)
    expected = gamma * np.einsum("l,lbtd->btd", softmax(weights), LAYERS.double().numpy())
    np.testing.assert_allclose(mixed.detach().numpy(), expected, atol=1e-5)


def test_it_begins_as_the_plain_average():
    torch.testing.assert_close(ScalarMix(3)(list(LAYERS)), LAYERS.mean(dim=0))
    torch.testing.assert_close(ScalarMix(3)(LAYERS), LAYERS.mean(dim=0))


@given(WEIGHTS, st.floats(-9, 9))
def test_a_constant_added_to_all_weights_changes_nothing(weights, constant):
    """bilm-tf takes softmax(w + 1/L): the same."""
    one, two = ScalarMix(3, weights=weights), ScalarMix(3, weights=[w + constant for w in weights])
    torch.testing.assert_close(one(LAYERS), two(LAYERS), atol=1e-5, rtol=1e-4)


def test_layer_norm_of_the_batch_is_that_of_bilm_tf():
    """One mean and variance of a layer over all unmasked positions and dimensions together."""
    weights = [0.3, -0.2, 1.0]
    mixed = ScalarMix(3, weights=weights, gamma=0.7, layer_norm="batch")(LAYERS, MASK)
    expected = 0
    for share, layer in zip(softmax(weights), LAYERS.double().numpy()):
        real = layer[MASK.numpy()]
        expected = expected + 0.7 * share * (layer - real.mean()) / real.std()
    np.testing.assert_allclose(mixed.detach().numpy()[MASK], expected[MASK.numpy()], atol=1e-5)


def test_layer_norm_of_a_token_needs_no_batch():
    mix = ScalarMix(3, layer_norm="token")
    torch.testing.assert_close(mix(LAYERS)[1:, :2], mix(LAYERS[:, 1:, :2]))
    torch.testing.assert_close(
        ScalarMix(3, which_layers=[1], layer_norm="token")(LAYERS).std(-1, correction=0), torch.ones(2, 4)
    )


def test_layers_that_are_not_selected_do_not_count():
    mix = ScalarMix(3, which_layers=[2])
    torch.testing.assert_close(mix(LAYERS), LAYERS[2])
    torch.testing.assert_close(ScalarMix(3, which_layers=[0, -1])(LAYERS), (LAYERS[0] + LAYERS[2]) / 2)
    changed = LAYERS.clone()
    changed[0] = float("nan")
    assert torch.isfinite(ScalarMix(3, which_layers=[1, 2])(changed)).all()


def test_the_penalty_pulls_the_weights_to_the_average():
    mix = ScalarMix(3, weights=[1.0, 2.0, -2.0], regularizer=0.1)
    assert mix.penalty().item() == pytest.approx(0.1 * 9)
    optimizer = torch.optim.SGD(mix.parameters(), lr=1.0)
    for _ in range(100):
        optimizer.zero_grad()
        mix.penalty().backward()
        optimizer.step()
    torch.testing.assert_close(mix.shares(), torch.full((3,), 1 / 3))


def test_weights_and_gamma_are_learned_unless_they_are_fixed():
    target = 2 * LAYERS[1]
    mix = ScalarMix(3)
    optimizer = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (mix(LAYERS) - target).square().mean().backward()
        optimizer.step()
    assert mix.shares()[1] > 0.95
    assert mix.gamma.item() == pytest.approx(2, abs=0.05)
    assert not any(p.requires_grad for p in ScalarMix(3, trainable=False).parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, "expected 3 weights"),
        ({"which_layers": []}, "which_layers"),
        ({"which_layers": [1, 1]}, "which_layers"),
        ({"layer_norm": "all"}, "layer_norm"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ScalarMix(3, **options)


def test_weights_belong_to_the_layers_in_the_order_given():
    mixed = ScalarMix(3, which_layers=[2, 0, 1], weights=[9e9, 0.0, 0.0])(LAYERS)
    torch.testing.assert_close(mixed, LAYERS[2])


def test_wrong_inputs_are_refused():
    with pytest.raises(ValueError, match="expected 2 layers, found 3"):
        ScalarMix(2)(LAYERS)
    with pytest.raises(ValueError, match="needs the mask"):
        ScalarMix(3, layer_norm="batch")(LAYERS)
    with pytest.raises(IndexError):
        ScalarMix(3, which_layers=[3])
