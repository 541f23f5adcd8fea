"""Which path runs, for which tensors: the one predicate, and what follows from it under torch.autocast."""

from __future__ import annotations

import pytest
import torch

from elmokit import Elmo
from elmokit.model.bilm import run_layer
from elmokit.model.kernels import use, variant
from elmokit.model.kernels.bfloat16 import available, products_in
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import LSTMConfig, LSTMState, ProjectedLSTM
from helpers.models import make_elmo, random_bilm, small_config

NATIVE = variant() not in ("torch", "definition")
INFERENCE = Path.NATIVE_INFERENCE if NATIVE else Path.TORCH_INFERENCE
TRAINING = Path.NATIVE_TRAINING if NATIVE else Path.DEFINITION
BFLOAT16 = Path.BFLOAT16_TRAINING if available() else TRAINING
SENTENCES = [["He", "sat", "on", "the", "bank"], ["Stop"]]
autocast = torch.autocast("cpu", dtype=torch.bfloat16)


def test_gradients_make_it_training():
    x, weight = torch.zeros(2), torch.zeros(2, requires_grad=True)
    assert path_for(x, x) is INFERENCE
    assert path_for(x, weight) is TRAINING
    assert path_for(x, x, training=True) is TRAINING
    assert path_for(x, weight, training=False) is INFERENCE
    with torch.no_grad():
        assert path_for(x, weight) is INFERENCE
        assert path_for(x, weight, training=True) is TRAINING


@pytest.mark.parametrize("kind", [{"dtype": torch.float64}, {"dtype": torch.float16}, {"device": "meta"}])
def test_the_library_knows_floats_in_this_machines_memory(kind):
    x = torch.zeros(2).to(**kind)
    assert path_for(x, x) is Path.TORCH_INFERENCE
    assert path_for(x, x, training=True) is Path.DEFINITION
    assert path_for(x, torch.zeros(2)) is Path.DEFINITION  # what is done in place has one type, on one device
    assert path_for(torch.zeros(2), x) is Path.DEFINITION


def test_bfloat16_is_for_training_and_where_it_is_asked_for():
    x, weight = torch.zeros(2), torch.zeros(2, requires_grad=True)
    with products_in("bfloat16"):
        assert path_for(x, weight) is BFLOAT16
        assert path_for(x, training=True) is BFLOAT16
        assert path_for(x) is INFERENCE
        assert path_for(x.double(), weight) is Path.DEFINITION
        with products_in("float32"):
            assert path_for(x, weight) is TRAINING
    assert path_for(x, weight) is TRAINING


def test_what_was_chosen_is_what_runs():
    x, weight = torch.zeros(2), torch.zeros(2, requires_grad=True)
    with use("torch"), products_in("bfloat16"):
        assert path_for(x) is Path.TORCH_INFERENCE
        assert path_for(x, weight) is Path.DEFINITION
    with use("definition"), products_in("bfloat16"):
        assert path_for(x) is path_for(x, weight) is Path.DEFINITION
    if NATIVE:
        with use("portable"), products_in("bfloat16"):  # that variant has no such products
            assert path_for(x, weight) is Path.NATIVE_TRAINING
    assert [path.name for path in Path if path.native] == [
        "NATIVE_INFERENCE",
        "NATIVE_TRAINING",
        "BFLOAT16_TRAINING",
    ]


def test_under_autocast_the_modules_run_as_they_are_written():
    x, weight = torch.zeros(2), torch.zeros(2, requires_grad=True)
    with autocast, products_in("bfloat16"):
        assert path_for(x) is path_for(x, weight) is path_for(x, training=True) is Path.DEFINITION
        with torch.autocast("cpu", enabled=False):
            assert path_for(x) is INFERENCE
        assert path_for(x.to("meta")) is Path.TORCH_INFERENCE  # autocast is that of a device
    assert path_for(x) is INFERENCE


def test_autocast_gives_a_bilm_the_precision_that_torch_chooses():
    bilm = random_bilm(small_config())
    ids = torch.from_numpy(make_elmo().mapper.begin).repeat(2, 3, 1)
    with torch.no_grad():
        exact = bilm(ids).layers
        with autocast:
            found = bilm(ids).layers
            with use("definition"):
                expected = bilm(ids).layers
    assert torch.equal(found, expected)
    assert 0 < (found - exact).abs().max() < 0.2


def test_autocast_while_training_a_layer_and_its_loss():
    torch.manual_seed(0)
    lstms = [ProjectedLSTM(4, LSTMConfig(layers=1, cells=8, width=4)) for _ in range(2)]
    x, mask = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    states = [LSTMState(torch.zeros(2, 4), torch.zeros(2, 8))] * 2
    weights = [weight for lstm in lstms for weight in lstm.parameters()]

    def gradients():
        with autocast, products_in("bfloat16"):
            (h, _), (other, _) = run_layer(lstms, (x, x), mask, states, None)
        return torch.autograd.grad((h * other).sum(), weights)

    found = gradients()
    with use("definition"):
        assert all(torch.equal(one, other) for one, other in zip(found, gradients()))
    head = LanguageHead(9, 4)
    with products_in("bfloat16"), torch.autocast("cpu", enabled=False):
        assert head.full_loss(x, torch.zeros(2, 3, dtype=torch.int64)).dtype == torch.float32


def test_words_that_autocast_computed_are_not_kept():
    elmo = Elmo.from_recipe("tiny")
    with autocast:
        rough = elmo.embed(SENTENCES)
        assert all((a == b).all() for a, b in zip(rough, elmo.embed(SENTENCES)))
    exact = Elmo.from_recipe("tiny").embed(SENTENCES)
    found = elmo.embed(SENTENCES)
    assert all((a == b).all() for a, b in zip(found, exact))
    assert any((a != b).any() for a, b in zip(rough, exact))
