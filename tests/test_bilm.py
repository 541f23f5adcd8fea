from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.checkpoint import Checkpoint
from elmokit.formats.bilm_hdf5 import write_bilm
from elmokit.model.bilm import BiLM, BiLMConfig, add_boundaries, reverse
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.text.batches import pad
from elmokit.text.characters import ByteMapper
from elmokit.text.tokens import TokenizerConfig
from helpers.models import SENTENCES, make_elmo, random_bilm, small_config
from reference import ReferenceBiLM

MAPPER = ByteMapper()
BILM = random_bilm(small_config())
TOKENS = st.lists(st.text(max_size=6), max_size=9)


@torch.inference_mode()
def run(sentences, bilm=BILM, state=None):
    return bilm(torch.from_numpy(pad(MAPPER, sentences, boundaries=True)), state)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"layers": 1},
        {"layers": 3},
        {"skip": False},
        {"cell_clip": None, "projection_clip": None},
        {"cell_clip": 0.4, "projection_clip": 0.3},
    ],
)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_all_layers_agree_with_the_numpy_reference(tmp_path, change, activation):
    config = small_config(**change)
    config = dataclasses.replace(config, encoder=dataclasses.replace(config.encoder, activation=activation))
    bilm = random_bilm(config)
    write_bilm(Checkpoint(bilm, MAPPER, TokenizerConfig()), tmp_path / "o.json", tmp_path / "w.hdf5")
    reference = ReferenceBiLM(tmp_path / "o.json", tmp_path / "w.hdf5")
    sentences = [s.split() for s in SENTENCES]
    layers = run(sentences, bilm).layers
    for row, sentence in enumerate(sentences):
        expected, _ = reference.layers(sentence)
        ours = layers[:, row, 1 : len(sentence) + 1].numpy()
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=0)


def test_filters_that_make_the_width_need_no_projection(tmp_path):
    config = small_config()
    encoder = dataclasses.replace(config.encoder, filters=((1, 3), (2, 5)), projection=False)
    bilm = random_bilm(dataclasses.replace(config, encoder=encoder))
    write_bilm(Checkpoint(bilm, MAPPER, TokenizerConfig()), tmp_path / "o.json", tmp_path / "w.hdf5")
    expected, _ = ReferenceBiLM(tmp_path / "o.json", tmp_path / "w.hdf5").layers(["bank"])
    np.testing.assert_allclose(run([["bank"]], bilm).layers[:, 0, 1:2].numpy(), expected, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(TOKENS, min_size=1, max_size=6), st.randoms())
def test_a_sentence_is_the_same_in_any_batch_and_order(sentences, random):
    together = run(sentences).layers
    order = list(range(len(sentences)))
    random.shuffle(order)
    shuffled = run([sentences[i] for i in order]).layers
    for row, i in enumerate(order):
        length = len(sentences[i]) + 2
        alone = run([sentences[i]]).layers[:, 0]
        torch.testing.assert_close(together[:, i, :length], alone, atol=1e-6, rtol=0)
        torch.testing.assert_close(shuffled[:, row, :length], alone, atol=1e-6, rtol=0)
        assert not together[:, i, length:].any()


@settings(max_examples=25, deadline=None)
@given(TOKENS.filter(len), TOKENS, TOKENS)
def test_forward_layers_see_no_right_context_and_backward_layers_no_left(shared, other, another):
    width = BILM.config.lstm.width
    # the same tokens on the left, another right context (and another length)
    left, right = run([shared + other]).layers[:, 0], run([shared + another]).layers[:, 0]
    n = len(shared) + 1  # with <S>
    torch.testing.assert_close(left[:, :n, :width], right[:, :n, :width], atol=1e-6, rtol=0)
    # the same tokens on the right, another left context
    left, right = run([other + shared]).layers[:, 0], run([another + shared]).layers[:, 0]
    torch.testing.assert_close(left[:, -n:, width:], right[:, -n:, width:], atol=1e-6, rtol=0)


def test_the_context_on_the_other_side_does_matter():
    width = BILM.config.lstm.width
    one, two = run([["a", "b"]]).layers[:, 0], run([["a", "c"]]).layers[:, 0]
    assert (one[1:, 1, width:] - two[1:, 1, width:]).abs().max() > 1e-3  # backward sees the right
    one, two = run([["b", "a"]]).layers[:, 0], run([["c", "a"]]).layers[:, 0]
    assert (one[1:, 2, :width] - two[1:, 2, :width]).abs().max() > 1e-3  # forward sees the left


def test_layer_0_is_the_token_twice_and_knows_no_context():
    layers = run([["a", "b"], ["b", "a", "c"]]).layers
    width = BILM.config.lstm.width
    torch.testing.assert_close(layers[0, 0, 1, :width], layers[0, 0, 1, width:])
    torch.testing.assert_close(layers[0, 0, 1], layers[0, 1, 2], atol=1e-6, rtol=0)


def test_the_state_carries_a_text_on_as_the_reference_does(published_pair):
    reference = ReferenceBiLM(*published_pair)
    bilm = make_elmo().bilm
    state, expected_state = None, None
    for sentence in ["He sat on the bank .", "It was cold", "Stop"]:
        output = run([sentence.split()], bilm, state)
        expected, expected_state = reference.layers(sentence.split(), expected_state)
        np.testing.assert_allclose(output.layers[:, 0, 1:-1].numpy(), expected, atol=1e-5)
        state = output.state
    np.testing.assert_allclose(state.cell[1, 0, 0].numpy(), expected_state[1][0][1], atol=1e-5)


def test_a_state_of_other_rows_is_refused():
    state = run([["a"], ["b"]]).state
    with pytest.raises(ValueError, match="expected a state of 3 rows, found 2"):
        run([["a"], ["b"], ["c"]], state=state)


def test_padding_between_tokens_is_refused():
    ids = torch.from_numpy(pad(MAPPER, [["a", "b", "c"]], boundaries=False))
    ids[0, 1] = 0
    with pytest.raises(ValueError, match="padding between tokens"):
        BILM(ids)


def test_an_empty_batch_gives_an_empty_output():
    output = run([])
    assert output.layers.shape == (3, 0, 2, 16)
    assert output.state.hidden.shape == (2, 2, 0, 8)


def test_boundaries_are_put_around_each_row():
    ids = torch.from_numpy(pad(MAPPER, [["a", "b"], ["c"], []], boundaries=False))
    with_boundaries = add_boundaries(ids, torch.from_numpy(MAPPER.begin), torch.from_numpy(MAPPER.end))
    expected = pad(MAPPER, [["a", "b"], ["c"], []], boundaries=True)
    assert (with_boundaries.numpy() == expected).all()


def test_reversing_twice_is_nothing_and_padding_stays():
    x = torch.arange(12.0).view(2, 3, 2)
    lengths = torch.tensor([3, 2])
    once = reverse(x, lengths)
    assert once[1].tolist() == [x[1, 1].tolist(), x[1, 0].tolist(), x[1, 2].tolist()]
    assert torch.equal(reverse(once, lengths), x)


@pytest.mark.slow
def test_gradients_of_the_whole_model_agree_with_numerical_ones():
    config = BiLMConfig(
        CharEncoderConfig(embedding=2, filters=((1, 2), (2, 3)), highway=1, activation="tanh"),
        dataclasses.replace(small_config().lstm, cells=3, width=2),
    )
    torch.manual_seed(0)
    bilm = BiLM(config).double()
    ids = torch.from_numpy(pad(ByteMapper(max_characters_per_token=6), [["ab", "c"], ["d"]], boundaries=True))

    def run(*parameters):
        named = dict(zip(dict(bilm.named_parameters()), parameters))
        return torch.func.functional_call(bilm, named, (ids,)).layers

    assert torch.autograd.gradcheck(run, tuple(bilm.parameters()), atol=1e-4)


def test_tokens_shorter_than_the_widest_filter_are_refused():
    ids = torch.from_numpy(pad(ByteMapper(max_characters_per_token=3), [["a"]], boundaries=True))
    encoder = dataclasses.replace(small_config().encoder, filters=((5, 2),))
    with pytest.raises(ValueError, match="filters of width 5 need 5 characters"):
        random_bilm(dataclasses.replace(small_config(), encoder=encoder))(ids)


def test_the_meta_device_is_enough_to_know_the_shapes():
    with torch.device("meta"):
        bilm = BiLM(small_config())
    assert all(parameter.is_meta for parameter in bilm.parameters())


def test_cutting_words_to_their_length_changes_nothing():
    """Words of every length, alone and among much longer ones: the windows of padding are all alike."""
    words = ["a" * n for n in range(60)] + ["밥" * n for n in range(1, 20)]
    together = BILM.encoder(torch.from_numpy(pad(MAPPER, [words], boundaries=True)))[0, 1:-1]
    for word, x in zip(words, together):
        alone = BILM.encoder(torch.from_numpy(pad(MAPPER, [[word]], boundaries=False)))[0, 0]
        torch.testing.assert_close(x, alone, atol=1e-6, rtol=0)
