from __future__ import annotations

import numpy as np
import pytest

from elmokit.analysis.contexts.marked import compare_words, cosines, nearest, read_marked, word_vectors
from helpers.models import make_elmo

ELMO = make_elmo(tokenizer="words")


@pytest.mark.parametrize(
    ("sentence", "tokens", "word"),
    [
        ("He sat on the [bank].", ["He", "sat", "on", "the", "bank", "."], "bank"),
        ("[배]가 달다.", ["배가", "달다", "."], "배가"),  # the token that the mark lies in
        ("in [New York] City", ["in", "New", "York", "City"], "New York"),
        (r"a list \[1\] of [things]", ["a", "list", "[", "1", "]", "of", "things"], "things"),
        ("[don't]", ["do", "n't"], "do n't"),
    ],
)
def test_the_marked_word_is_found_in_the_sentence_as_it_is_read(sentence, tokens, word):
    marked = read_marked(ELMO, sentence)
    assert marked.tokens == tokens
    assert marked.word == word


@pytest.mark.parametrize("sentence", ["none", "[two] [words]", "empty []", "blank [ ]", ""])
def test_exactly_one_word_must_be_marked(sentence):
    with pytest.raises(ValueError, match=r"brackets"):
        read_marked(ELMO, sentence)


def test_vectors_are_those_of_the_word_in_its_sentence():
    marked = [read_marked(ELMO, s) for s in ("the [bank] .", "a [big bank]")]
    vectors = word_vectors(ELMO, marked)
    np.testing.assert_allclose(vectors[0], ELMO.embed(["the bank ."])[0][:, 1], atol=1e-6)
    np.testing.assert_allclose(vectors[1], ELMO.embed(["a big bank"])[0][:, 1:].mean(axis=1), atol=1e-6)


def test_cosines_by_layer():
    vectors = np.array(
        [[[1, 0], [1, 1]], [[0, 2], [2, 2]], [[0, 0], [-1, -1]]], dtype=np.float32
    )  # [S, layers, D]
    first, second = cosines(vectors)
    np.testing.assert_allclose(first, [[1, 0, 0], [0, 1, 0], [0, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(second, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]], atol=1e-12)


def test_the_nearest_contexts_are_those_of_all_that_are_nearest():
    sentences = [elmo_tokens.split() for elmo_tokens in ("a b c", "the bank .", "c b a", "the bank of it", ". 12")]
    query = read_marked(ELMO, "by the [bank] of it")
    own = word_vectors(ELMO, [query])[0, 2]
    by_hand = []
    for tokens in sentences[:4]:
        vectors = ELMO.embed([tokens], layers=2)[0]
        near = [
            v @ own / np.linalg.norm(v) / np.linalg.norm(own) if t != "." else -2 for t, v in zip(tokens, vectors)
        ]
        by_hand.append((max(near), tokens, int(np.argmax(near))))
    by_hand.sort(key=lambda each: -each[0])
    found = nearest(ELMO, query, sentences, layer=2, most=3)
    assert [(near.sentence.tokens, near.sentence.start) for near in found] == [each[1:] for each in by_hand[:3]]
    np.testing.assert_allclose([near.cosine for near in found], [each[0] for each in by_hand[:3]], rtol=1e-5)
    assert nearest(ELMO, query, [query.tokens, ["."], []], layer=1) == []  # itself, and what is no word


def test_marked_words_are_compared_two_by_two():
    sentences = ["the [bank] of it", "a [bank]", "[two words] here"]
    found = compare_words(ELMO, sentences)
    expected = cosines(word_vectors(ELMO, [read_marked(ELMO, sentence) for sentence in sentences]))
    np.testing.assert_array_equal(found.by_layer, expected)
    assert list(found.pairs()) == [(0, 1), (0, 2), (1, 2)]
    rows = found.to_list()
    assert (rows[2]["first"], rows[2]["second"]) == tuple(sentences[1:])
    assert rows[2]["cosine"] == pytest.approx(expected[:, 1, 2], abs=1e-6)
    for few in ([], ["a [bank]"], "a [bank]"):
        with pytest.raises(ValueError, match="two sentences or more"):
            compare_words(ELMO, few)
