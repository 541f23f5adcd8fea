"""The room of layers: planes, contexts, tags and senses are those of the library, by another way."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import ValidationError

from elmokit import Elmo, UserError
from elmokit.analysis.contexts.marked import MarkedSentence, is_word, nearest, read_marked, word_vectors
from elmokit.analysis.probes.linear import fit
from elmokit.serve.offer import Offer
from elmokit.serve.play import tags
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.layers import Request, answer
from elmokit.serve.play.tags import TagProbes, tags_of
from helpers.language_models import make_model
from helpers.models import make_elmo
from helpers.servers import make_world

A, B = "He sat on the bank of the river .", "She works at a bank today ."


@pytest.fixture(scope="module")
def playground():
    return Playground(Offer({"small": Elmo(make_model())}))


@pytest.fixture(scope="module")
def found(playground):
    return asked(playground)


def asked(playground, a=A, b=B, wa=4, wb=4, **more):
    return answer(playground, Request(**{"a": a, "b": b, "wa": wa, "wb": wb, **more}))


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_points_are_principal_components_of_the_bundled_sentences(playground, found):
    elmo, gallery = playground.offer.models["small"], playground.gallery(A, B)
    for side, text in (("a", A), ("b", B)):
        [own] = elmo.embed([text])
        for j, points in enumerate(found["plane"][side]):
            vectors = gallery.vectors[j].astype(np.float64)
            middle = vectors.mean(axis=0)
            directions = np.linalg.svd(vectors - middle, full_matrices=False)[2][:2]
            expected = (own[j] - middle) @ directions.T
            np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=0.01)


def test_axes_and_background_stay_while_somebody_types(playground, found):
    other = asked(playground, a="Something else entirely", b="", wa=0, wb=-1)
    for name in ("ranges", "background"):
        assert other["plane"][name] == found["plane"][name]
    for (x, y), points in zip(found["plane"]["ranges"], np.array(found["plane"]["background"])):
        assert len(points) == 150
        inside = (points >= [x[0], y[0]]) & (points <= [x[1], y[1]])
        assert inside.all(axis=1).mean() > 0.9
    assert other["plane"]["b"] == [[], [], []]
    assert other["cosine"] is None


def test_the_picked_words_cosines(playground, found):
    elmo = playground.offer.models["small"]
    one, other = elmo.embed([A, B])
    assert found["cosine"] == pytest.approx([cosine(one[j, 4], other[j, 4]) for j in range(3)], abs=1e-5)


def test_contexts_are_those_that_the_library_finds(playground, found):
    elmo, gallery = playground.offer.models["small"], playground.gallery(A, B)
    query = MarkedSentence(elmo.tokens(A), 4, 5)
    sentences = [sentence.tokens for sentence in gallery.sentences]
    assert found["contexts"]["of"] == "bundled"
    assert [layer["layer"] for layer in found["contexts"]["layers"]] == [1, 2]
    for layer in found["contexts"]["layers"]:
        expected = nearest(elmo, query, sentences, layer=layer["layer"])
        assert [(one["place"], one["tokens"]) for one in layer["contexts"]] == [
            (near.sentence.start, near.sentence.tokens) for near in expected
        ]
        np.testing.assert_allclose(
            [one["cosine"] for one in layer["contexts"]], [near.cosine for near in expected], atol=1e-5
        )
        assert all(is_word(one["word"]) for one in layer["contexts"])


def test_a_bundled_sentence_is_not_its_own_neighbour_nor_its_own_sense(playground):
    gallery = playground.gallery(A)
    sentence = gallery.sentences[0]
    text = " ".join(sentence.tokens)
    found = asked(playground, a=text, b="", wa=sentence.start, wb=-1)
    assert all(
        one["tokens"] != sentence.tokens for layer in found["contexts"]["layers"] for one in layer["contexts"]
    )
    vectors = word_vectors(gallery.elmo, gallery.sentences[: sum(map(len, gallery.pairs[0].contexts))])
    first = len(gallery.pairs[0].contexts[0])
    for j, layer in enumerate(found["senses"]["a"]["layers"]):
        own = [cosine(vectors[0, j], other[j]) for other in vectors[1:]]
        assert layer["cosine"] == pytest.approx([np.mean(own[: first - 1]), np.mean(own[first - 1 :])], abs=1e-5)


def test_an_index_is_asked_where_there_is_one(tmp_path):
    world = make_world(tmp_path)
    playground = Playground(Offer({"small": world.elmo}, indexes={"small": world.index}))
    found = asked(playground, wb=-1)["contexts"]
    assert found["of"] == "index"
    assert found["compared"] == world.index.facts.vectors
    for layer in found["layers"]:
        query = read_marked(world.elmo, A.replace("bank", "[bank]"))
        expected = world.index.search(world.elmo, query, layer["layer"], 3)
        assert layer["contexts"] == [near.to_dict() for near in expected]


def test_senses_by_mean_cosine(playground, found):
    gallery = playground.gallery(A, B)
    number = next(i for i, pair in enumerate(gallery.pairs) if pair.word == "bank")
    pair = gallery.pairs[number]
    contexts = [read_marked(gallery.elmo, context) for sense in pair.contexts for context in sense]
    theirs, [own] = word_vectors(gallery.elmo, contexts), gallery.elmo.embed([A])
    first = len(pair.contexts[0])
    shown = found["senses"]["a"]
    assert (shown["word"], tuple(shown["glosses"])) == ("bank", pair.glosses)
    for j, layer in enumerate(shown["layers"]):
        near = [cosine(own[j, 4], other[j]) for other in theirs]
        means = [np.mean(near[:first]), np.mean(near[first:])]
        assert layer["cosine"] == pytest.approx(means, abs=1e-5)
        assert layer["sense"] == (None if j == 0 else int(means[1] > means[0]))  # layer 0 cannot tell


@pytest.mark.parametrize(
    ("word", "expected"),
    [("BANK", "bank"), ("banked", None), ("배를", "배가"), ("배", "배가"), ("타고", "타고"), ("이", None)],
)
def test_whose_senses_are_known(playground, word, expected):
    """In Korean a particle does not make another word."""
    found = asked(playground, a=f"x {word}", b="", wa=1, wb=-1)["senses"]["a"]
    assert (found and found["word"]) == expected


def test_tags_by_layer(playground, monkeypatch, tmp_path):
    elmo = playground.offer.models["small"]
    rows = np.concatenate(elmo.embed([A, B, "a b c d e f g h i j k l m n o p"]), axis=1)
    labels = np.arange(rows.shape[1]) % 3
    fitted = tuple(fit(layer, labels, 3) for layer in rows)
    probes = TagProbes(("ADJ", "NOUN", "X"), fitted, (0.5, 0.6, 0.7), "some text", elmo.digest, "a command")
    probes.save(tmp_path / "tags-small.safetensors")
    monkeypatch.setattr(tags, "FOLDER", tmp_path)
    tags_of.cache_clear()
    try:
        found = asked(playground)["tags"]
        assert asked(Playground(Offer({"other": make_elmo()})))["tags"] is None
    finally:
        tags_of.cache_clear()
    assert (list(found["accuracy"]), found["data"]) == ([0.5, 0.6, 0.7], "some text")
    for side, text in (("a", A), ("b", B)):
        [own] = elmo.embed([text])
        for j, probe in enumerate(fitted):
            parts = [
                part.numpy().astype(np.float64) for part in (probe.mean, probe.scale, probe.weights, probe.bias)
            ]
            scores = (own[j] - parts[0]) / parts[1] @ parts[2] + parts[3]
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            assert [by[j]["tag"] for by in found[side]] == [probes.labels[i] for i in probe.predict(own[j])]
            np.testing.assert_allclose([by[j]["p"] for by in found[side]], shares.max(axis=1), atol=0.02)


@pytest.mark.parametrize(
    ("name", "sentence", "expected"),
    [
        ("en-small", "The children play in the garden .", "DET NOUN VERB ADP DET NOUN PUNCT"),
        ("ko-small", "나는 학교에서 책을 읽었다 .", "PRON ADV NOUN VERB PUNCT"),
    ],
)
def test_the_bundled_models_tell_parts_of_speech(name, sentence, expected):
    elmo = Elmo.from_pretrained(name)
    probes = tags_of(elmo.digest)
    assert probes is not None, "made by tools/play_tags.py, anew with every bundled model"
    shares = probes.probabilities(elmo.embed([sentence])[0])
    np.testing.assert_allclose(shares.sum(axis=2), 1, atol=1e-5)
    right = [[probes.labels[i] for i in layer.argmax(axis=1)] == expected.split() for layer in shares]
    assert any(right[1:])
    assert all(0.8 < accuracy < 1 for accuracy in probes.accuracy)
    assert probes.accuracy[0] < max(probes.accuracy[1:])


def test_what_cannot_be_asked(playground):
    for wrong, words in (
        ({"wa": 9}, "0 to 8, found 9"),
        ({"wb": 7}, "0 to 6, found 7"),
        ({"b": ""}, "it has none"),
    ):
        with pytest.raises(UserError, match=words):
            asked(playground, **wrong)
    for wrong in ({"wa": -2}, {"a": "x" * 401}, {"other": 1}):
        with pytest.raises(ValidationError):
            asked(playground, **wrong)


@pytest.mark.parametrize("text", ["", "😀 \u200d e\u0301", "x" * 100, "<img src=x onerror=alert(1)>"])
def test_whatever_is_typed_has_an_answer(playground, text):
    place = 0 if text else -1
    found = asked(playground, a=text, b="", wa=place, wb=-1)
    json.dumps(found, allow_nan=False)
    assert found["tokens"]["a"] == text.split()
