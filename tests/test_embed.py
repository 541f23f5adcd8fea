from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit import Elmo, ScalarMix, score
from helpers.models import SENTENCES, make_elmo

ELMO = make_elmo(batch_tokens=40)  # small: several batches and windows even for a few sentences
TOKEN = st.text(max_size=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(TOKEN, max_size=12), max_size=30))
def test_one_array_a_sentence_in_order_equal_to_embedding_it_alone(sentences):
    together = ELMO.embed(sentences)
    assert [array.shape for array in together] == [(3, len(s), 16) for s in sentences]
    for sentence, array in zip(sentences, together):
        np.testing.assert_allclose(array, ELMO.embed([sentence])[0], atol=1e-6, rtol=0)


def test_text_and_its_tokens_are_the_same(elmo):
    text = "He sat on the bank ."
    np.testing.assert_array_equal(elmo.embed([text])[0], elmo.embed([text.split()])[0])


def test_layers_are_chosen_by_number_average_and_weights(elmo):
    everything = elmo.embed(SENTENCES)

    def check(layers, expected):
        for array, chosen in zip(everything, elmo.embed(SENTENCES, layers=layers)):
            np.testing.assert_allclose(chosen, expected(array), atol=1e-6)

    for layer in (0, 1, 2, -1):
        check(layer, lambda array, layer=layer: array[layer])
    check("mean", lambda array: array.mean(axis=0))
    check([0.5, 0.0, 2.0], lambda array: 0.5 * array[0] + 2 * array[2])
    check(np.array([0, 1, 0]), lambda array: array[1])
    check(ScalarMix(3, weights=[0, 9e9, 0], gamma=3.0), lambda array: 3 * array[1])


def test_pooling_is_over_the_sentences_own_tokens(elmo):
    everything = elmo.embed(SENTENCES)
    for array, mean, most in zip(
        everything, elmo.embed(SENTENCES, pooling="mean"), elmo.embed(SENTENCES, pooling="max", layers=1)
    ):
        if array.shape[1]:
            np.testing.assert_allclose(mean, array.mean(axis=1), atol=1e-6)
            np.testing.assert_allclose(most, array[1].max(axis=0), atol=1e-6)
        else:
            assert not mean.any()
            assert most.shape == (16,)


def test_half_precision_output(elmo):
    for full, half in zip(elmo.embed(SENTENCES), elmo.embed(SENTENCES, dtype=np.float16)):
        assert half.dtype == np.float16
        np.testing.assert_array_equal(full.astype(np.float16), half)


def test_boundaries_can_be_kept(elmo):
    for inner, outer in zip(elmo.embed(SENTENCES), elmo.embed(SENTENCES, boundaries=True)):
        np.testing.assert_array_equal(inner, outer[:, 1:-1])


def test_an_array_does_not_keep_its_batch_in_memory(elmo):
    array = elmo.embed(SENTENCES)[0]
    assert array.base is None or array.base.nbytes == array.nbytes


def test_stream_takes_any_iterable_and_reads_no_further_than_a_window():
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "He sat ."

    stream = ELMO.stream(endless())
    for _ in range(10):
        assert next(stream).shape == (3, 3, 16)
    assert taken <= ELMO.window_tokens // 5 + 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(monkeypatch):
    monkeypatch.setattr(ELMO.token_layer, "room", 0)  # as little as it can be: 1,024 words are kept

    def consume(count):
        held = 0
        tracemalloc.start()
        for vectors in ELMO.stream(f"sentence number {i}" for i in range(count)):
            held += vectors.nbytes
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, held  # bytes at most at a time, bytes of all that was given

    consume(2000)
    few, many = consume(2000), consume(8000)
    # A tenth of what keeping it would take: the rest is the interpreter's own coming and going (some 50 kB).
    assert many[0] - few[0] < 0.1 * (many[1] - few[1])
    assert len(ELMO.token_layer) < 1024


@pytest.mark.parametrize(
    "token",
    ["", " ", "\0", "x" * 10_000, "밥" * 10_000, "👩‍👩‍👧‍👦", "a\u0301\u0301\u0301", "\ud800", "\U0010ffff", "\n"],
)
def test_strange_tokens_have_finite_vectors(elmo, token):
    (array,) = elmo.embed([["a", token, "b"]])
    assert array.shape == (3, 3, 16)
    assert np.isfinite(array).all()


def test_composed_and_decomposed_text_are_the_same(elmo):
    np.testing.assert_array_equal(elmo.embed(["caf\u00e9"])[0], elmo.embed(["cafe\u0301"])[0])


def test_nothing_gives_nothing(elmo):
    assert elmo.embed([]) == []
    assert elmo.embed([""])[0].shape == (3, 0, 16)
    assert elmo.embed([[]], layers=1)[0].shape == (0, 16)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ("He sat", {}, "put it in a list"),
        ([["a", 3]], {}, "found 3"),
        (["a"], {"layers": 3}, "layers 0 to 2, found 3"),
        (["a"], {"layers": "top"}, "found 'top'"),
        (["a"], {"layers": [1.0]}, "expected 3 finite weights"),
        (["a"], {"layers": ["a", "b", "c"]}, "expected 3 finite weights"),
        (["a"], {"layers": None}, "expected 3 finite weights"),
        (["a"], {"layers": [1.0, float("nan"), 0]}, "expected 3 finite weights"),
        (["a"], {"pooling": "sum"}, "pooling"),
        (["a"], {"dtype": "int8"}, "dtype"),
        (["a"], {"dtype": "quarter"}, "dtype"),
        (["a"], {"layers": ScalarMix(3, layer_norm="batch")}, "depend on the batch"),
    ],
)
def test_what_cannot_be_done_is_said(elmo, sentences, options, message):
    with pytest.raises(ValueError, match=message):
        elmo.embed(sentences, **options)


def test_options_are_refused_before_the_first_sentence_is_read(elmo):
    with pytest.raises(ValueError, match="layers"):
        elmo.stream(iter([]), layers=9)


def test_a_recipe_gives_a_fresh_model_from_its_seed_and_leaves_the_random_numbers_alone():
    before = torch.random.get_rng_state()
    one, two, other = (Elmo.from_recipe("tiny", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(one.embed(["bank"])[0], two.embed(["bank"])[0])
    assert np.abs(one.embed(["bank"])[0] - other.embed(["bank"])[0]).max() > 1e-3
    assert one.tokens("It's here.") == ["It", "'s", "here", "."]


def test_another_tokenizer_can_be_used():
    assert make_elmo(tokenizer="words").tokens("It's here.") == ["It", "'s", "here", "."]
    assert make_elmo().tokens("It's here.") == ["It's", "here."]
    with pytest.raises(ValueError, match="unknown tokenizer"):
        make_elmo(tokenizer="chars")
    with pytest.raises(ValueError, match="batch_tokens"):
        make_elmo(batch_tokens=0)


def test_another_tokenizer_than_the_models_comes_with_a_warning():
    with pytest.warns(UserWarning, match="tokenizer 'korean': this model was trained with 'words'") as caught:
        Elmo.from_pretrained("en-small", tokenizer="korean")
    assert [warning.filename for warning in caught] == [__file__]  # about the line of whoever asked for it
    with pytest.warns(UserWarning, match="trained with 'words'"):
        list(score("en-small", ["He sat ."], tokenizer="korean"))


@pytest.mark.parametrize("tokenizer", [None, "words", "whitespace"])
def test_no_warning_of_the_models_own_tokenizer_nor_of_text_that_is_tokenized(tokenizer, recwarn):
    Elmo.from_pretrained("en-small", tokenizer=tokenizer)
    make_elmo(tokenizer=tokenizer)  # trained on tokens that somebody else made: who knows which
    assert not list(recwarn)


def test_threads_agree():
    """Several Python threads may share one model under `zero`: nothing is remembered."""
    from concurrent.futures import ThreadPoolExecutor

    expected = ELMO.embed(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        for arrays in pool.map(ELMO.embed, [SENTENCES] * 8):
            for array, right in zip(arrays, expected):
                np.testing.assert_array_equal(array, right)


def test_given_word_vectors_take_the_place_of_characters(tmp_path):
    (tmp_path / "glove.txt").write_text("bank 1 2 3 4\nriver 5 6 7 8\n")
    elmo = Elmo.from_vectors(tmp_path / "glove.txt", "tiny", seed=3)
    known, unknown, capital = elmo.embed([["bank", "xyz", "Bank"]], layers=0)[0]
    np.testing.assert_array_equal(known, capital)
    assert np.abs(known - unknown).max() > 1e-3
    elmo.save(tmp_path / "model")
    again = Elmo.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(again.embed(["the river bank"])[0], elmo.embed(["the river bank"])[0])


def test_a_device_that_is_not_there_is_said():
    for device in ("cuda:99", "abacus"):
        with pytest.raises(ValueError, match=f"device '{device}' cannot be used"):
            make_elmo(device=device)


def test_a_sentence_longer_than_any_batch_and_any_block_of_steps(elmo):
    tokens = [f"w{i % 7}" for i in range(1000)]
    (array,) = elmo.embed([tokens])
    (padded, _) = elmo.embed([tokens, tokens[:990]])
    assert array.shape == (3, 1000, 16)
    np.testing.assert_allclose(array, padded, atol=1e-6)
