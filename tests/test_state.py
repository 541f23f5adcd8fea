from __future__ import annotations

import numpy as np
import pytest
import torch

from elmokit.model.state import CarryState
from helpers.models import make_elmo

TEXT = ["He sat on the bank .", "It was cold", "Stop"]


def test_zero_is_the_default_and_forgets_everything():
    elmo = make_elmo()
    first = elmo.embed(["It was cold"])[0]
    elmo.embed(TEXT)
    np.testing.assert_array_equal(elmo.embed(["It was cold"])[0], first)


def test_carry_goes_on_from_sentence_to_sentence_and_from_call_to_call():
    at_once = make_elmo(state="carry").embed(TEXT)
    elmo = make_elmo(state="carry")
    one_by_one = [elmo.embed([sentence])[0] for sentence in TEXT]
    alone = make_elmo().embed(TEXT)
    for together, single in zip(at_once, one_by_one):
        np.testing.assert_allclose(together, single, atol=1e-6)
    np.testing.assert_allclose(at_once[0], alone[0], atol=1e-6)  # nothing came before
    assert np.abs(at_once[1][1:] - alone[1][1:]).max() > 1e-3  # something did
    np.testing.assert_allclose(at_once[1][0], alone[1][0], atol=1e-6)  # the token layer has no state


def test_carry_can_be_reset():
    elmo = make_elmo(state="carry")
    first = elmo.embed(["It was cold"])[0]
    assert np.abs(elmo.embed(["It was cold"])[0] - first).max() > 1e-3
    elmo.state.reset()
    np.testing.assert_array_equal(elmo.embed(["It was cold"])[0], first)


def test_warm_begins_every_sentence_as_if_it_followed_the_text():
    warm = make_elmo(state="warm", warm_text=TEXT[:2])
    carried = make_elmo(state="carry").embed(TEXT)[2]
    np.testing.assert_allclose(warm.embed(["Stop"])[0], carried, atol=1e-6)
    np.testing.assert_allclose(warm.embed(["It was cold", "Stop", "Stop"])[2], carried, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"state": "warm"}, {"warm_text": ["a"]}, {"state": "hot"}, {"state": "warm", "warm_text": []}]
)
def test_impossible_policies_are_refused(options):
    with pytest.raises(ValueError, match=r"warm|state"):
        make_elmo(**options)


def test_rows_are_carried_each_on_its_own_through_batches_of_any_size():
    elmo = make_elmo()
    carry = CarryState(elmo.bilm)

    @torch.inference_mode()
    def step(sentences):
        output = elmo.bilm(elmo.ids(sentences), carry.before(len(sentences)))
        carry.after(output.state)
        return output.layers[:, :, :1]

    step([["a"], ["b"]])
    step([["c"]])  # row 1 is left as it is
    last = step([["d"], ["d"], ["d"]])  # row 2 is new
    for row, history in enumerate(["a c", "b", ""]):
        state = None
        for token in history.split():
            state = elmo.bilm(elmo.ids([[token]]), state).state
        expected = elmo.bilm(elmo.ids([["d"]]), state).layers
        torch.testing.assert_close(last[:, row], expected[:, 0], atol=1e-6, rtol=0)


def test_no_gradient_flows_into_an_earlier_batch():
    elmo = make_elmo()
    carry = CarryState(elmo.bilm.requires_grad_(True))
    for _ in range(2):
        output = elmo.bilm(elmo.ids([["a", "b"]]), carry.before(1))
        carry.after(output.state)
        output.layers.sum().backward()  # would fail the second time if the first graph were reached
    assert not carry.state.hidden.requires_grad


def test_what_is_carried_follows_the_model_to_another_type():
    elmo = make_elmo()
    carry = CarryState(elmo.bilm)
    carry.after(elmo.bilm(elmo.ids([["a"]]), carry.before(1)).state)
    elmo.bilm.double()
    assert elmo.bilm(elmo.ids([["a"]]), carry.before(1)).layers.dtype == torch.float64
    assert carry.before(0).hidden.shape[2] == 0
