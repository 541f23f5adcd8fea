"""Words that are kept are the words that would be computed: whatever was read before, and by whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.embed.embedder import Elmo
from elmokit.embed.token_layer import TokenLayer
from elmokit.model.kernels import variant
from elmokit.model.kernels.reading import packed_model
from elmokit.text.batches import pad

ELMO = Elmo.from_recipe("tiny")
native = pytest.mark.skipif(variant() == "torch", reason="words are kept where the native library computes them")


def computed(elmo, sentences):
    """By the model itself, from padded ids."""
    ids = torch.from_numpy(pad(elmo.mapper, sentences, boundaries=True))
    mask = (ids > 0).any(dim=-1)
    with torch.inference_mode():
        return elmo.bilm.encoder(ids) * mask.unsqueeze(-1), mask


def fresh(**options):
    return TokenLayer(ELMO.bilm, ELMO.mapper, **options)


sentences = st.lists(st.lists(st.text(min_size=1, max_size=12), max_size=6), max_size=5)


@native
@settings(deadline=None, max_examples=40)
@given(st.lists(sentences, min_size=1, max_size=4))
@torch.inference_mode()
def test_kept_words_are_computed_words_to_the_bit(batches):
    layer = fresh(room=0)
    for batch in batches:
        if not batch:
            assert layer(batch)[0].shape == (0, 0, 32)
            continue
        (x, mask), (expected, expected_mask) = layer(batch), computed(ELMO, batch)
        assert torch.equal(mask, expected_mask)
        assert torch.equal(x, expected)


@native
@torch.inference_mode()
def test_a_word_is_computed_once():
    layer, encoder, seen = fresh(), packed_model(ELMO.bilm).encoder, []
    for sentences in ([["one", "two", "one"], ["two"]], [["two", "three"]], [["three", "one"]]):
        with layer.placed(sentences, encoder) as tokens:
            seen.append(len(tokens.ids))
    assert seen == [4, 1, 0]  # <S>, </S>, one, two; three


@native
@torch.inference_mode()
def test_words_whose_computation_failed_are_not_known():
    layer, encoder = fresh(), packed_model(ELMO.bilm).encoder
    with pytest.raises(MemoryError), layer.placed([["one"]], encoder):
        raise MemoryError
    with layer.placed([["one"]], encoder) as tokens:
        assert len(tokens.ids) == 3


@torch.inference_mode()
def test_what_is_kept_is_bounded_and_a_batch_larger_than_that_still_runs():
    layer = fresh(room=0)
    for start in range(0, 5000, 300):
        layer([[f"word{i}" for i in range(start, start + 300)]])
        assert len(layer) < 1024
    many = [[f"other{i}" for i in range(3000)]]
    assert torch.equal(layer(many)[0], computed(ELMO, many)[0])
    assert torch.equal(layer([["a"]])[0], computed(ELMO, [["a"]])[0])
    assert len(layer) < 1024


@torch.inference_mode()
def test_words_of_ten_thousand_characters_are_not_hoarded():
    layer = fresh(room=100_000)
    for i in range(30):
        layer([[f"{i}" + "x" * 10_000]])
        assert layer._table is None or layer._table.characters <= 100_000


def test_other_weights_other_words():
    elmo = Elmo.from_recipe("tiny", seed=1)
    before = elmo.embed([["one", "two"]])[0]
    with torch.no_grad():
        elmo.bilm.encoder.projection.weight.mul_(2)
    after = elmo.embed([["one", "two"]])[0]
    assert abs(after - before).max() > 0.1
    with torch.inference_mode():
        x, mask = computed(elmo, [["one", "two"]])
        expected = elmo.bilm.contextualize(x, mask).layers[:, 0, 1:-1].numpy()
    assert (after == expected).all()


def test_several_threads_at_once():
    texts = [[[f"w{(i * j) % 97}" for j in range(12)] for _ in range(3)] for i in range(40)]
    expected = [Elmo(ELMO.checkpoint).embed(text) for text in texts]
    shared = Elmo(ELMO.checkpoint)
    shared.token_layer.room = 0
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(shared.embed, texts))
    for one, other in zip(found, expected):
        assert all((a == b).all() for a, b in zip(one, other))


def test_unknown_ways_to_keep_weights_are_refused():
    with pytest.raises(ValueError, match="float32, bfloat16, float16, int8 or auto, found 'int4'"):
        Elmo(ELMO.checkpoint, weights="int4")


@native
@pytest.mark.parametrize("weights", ["bfloat16", "float16", "int8"])
def test_smaller_weights_are_near_and_not_the_same_in_any_layer(weights):
    exact = ELMO.embed([["a", "longer", "sentence", "of", "words"]])[0]
    near = Elmo.from_recipe("tiny", weights=weights).embed([["a", "longer", "sentence", "of", "words"]])[0]
    for one, other in zip(near, exact):
        assert 0 < abs(one - other).max() < 0.1
