"""The room of letters: what it shows of a word is what the library computes, by another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from elmokit import Elmo, UserError
from elmokit.checkpoint import Checkpoint
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.lstm import LSTMConfig
from elmokit.model.word_encoder import WordEncoderConfig
from elmokit.serve.offer import Offer
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.letters import Request, answer
from elmokit.serve.play.spelling import slips, spelling
from elmokit.text.characters import ByteMapper, LexiconMapper
from elmokit.text.jamo import INITIAL, JamoMapper, standing_alone
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import WordMapper
from helpers.language_models import WORDS, make_model
from helpers.models import make_elmo

SENTENCE = "He sat on the bank ."
BOW, EOW = 258, 259


@pytest.fixture(scope="module")
def playground():
    return Playground(Offer({"small": Elmo(make_model())}))


def asked(playground, a=SENTENCE, place=4, **more):
    return answer(playground, Request(**{"a": a, "b": "", "side": "a", "place": place, **more}))


def x_of(elmo, word):
    return elmo.embed([[word]])[0][0, 0, : elmo.width // 2].astype(np.float64)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_x_k_and_its_cosines_are_those_of_layer_0(playground):
    elmo = playground.offer.models["small"]
    found = asked(playground, spelling="bnak", of="bank")
    for word, vector in zip(("bank", "bnak"), found["x"]):
        np.testing.assert_allclose(vector, x_of(elmo, word), atol=1e-4)
    assert found["cosine"] == pytest.approx(cosine(x_of(elmo, "bank"), x_of(elmo, "bnak")), abs=1e-5)
    for slip in found["slips"]:
        assert slip["cosine"] == pytest.approx(cosine(x_of(elmo, "bank"), x_of(elmo, slip["word"])), abs=1e-5)


def test_nearest_words_are_those_of_the_vocabulary(playground):
    elmo = playground.offer.models["small"]
    own = x_of(elmo, "bank")
    words = [word for word in WORDS if any(map(str.isalpha, word))]
    by_cosine = sorted((word for word in words if word != "bank"), key=lambda word: -cosine(own, x_of(elmo, word)))
    found = asked(playground)
    assert [near["word"] for near in found["word"]["nearest"]] == by_cosine[:6]
    mean = np.mean([cosine(own, x_of(elmo, word)) for word in words])
    assert found["by_chance"]["mean"] == pytest.approx(mean, abs=1e-5)
    assert found["by_chance"]["words"] == len(words)
    for one in found["by_chance"]["random"]:
        assert one["word"] != "bank"
        assert one["cosine"] == pytest.approx(cosine(own, x_of(elmo, one["word"])), abs=1e-5)


@pytest.mark.parametrize("word", ["bank", "밥을", "x" * 100])
def test_filters_fire_where_a_sum_over_their_window_says(playground, word):
    elmo = playground.offer.models["small"]
    encoder = elmo.bilm.encoder
    ids = np.array(elmo.mapper.spell(word)) + 1
    embedding = encoder.character_embedding.weight.detach().numpy()[ids]  # [C, E]
    values, starts, widths = [], [], []
    for part in encoder.convolutions:
        weight, bias = part.weight.detach().numpy(), part.bias.detach().numpy()
        width = weight.shape[2]
        for one, offset in zip(weight, bias):
            sums = [(embedding[t : t + width].T * one).sum() + offset for t in range(len(ids) - width + 1)]
            values.append(max(0.0, max(sums)))
            starts.append(int(np.argmax(sums)))
            widths.append(width)
    found = asked(playground, a=word, place=0)["word"]
    order = np.argsort(-np.array(values), kind="stable")[:8]
    assert [one["number"] for one in found["filters"]] == [i for i in order if values[i] > 0]
    for one in found["filters"]:
        assert one["value"] == pytest.approx(values[one["number"]], abs=1e-3)
        assert (one["start"], one["width"]) == (starts[one["number"]], widths[one["number"]])
    assert found["firing"] == sum(value > 0 for value in values)
    assert found["of"] == len(values)

    x = np.array(values)  # and the gates that these meet
    for shown, highway in zip(found["gates"], encoder.highway, strict=True):
        linear = {name: p.detach().numpy() for name, p in highway.named_parameters()}
        gate = 1 / (1 + np.exp(-(linear["carry.weight"] @ x + linear["carry.bias"])))
        assert shown["new"] == pytest.approx(gate.mean(), abs=1e-4)
        assert shown["histogram"] == np.histogram(gate, 10, (0, 1))[0].tolist()
        new = np.maximum(0, linear["transform.weight"] @ x + linear["transform.bias"])
        x = gate * new + (1 - gate) * x


def test_bytes_and_letters_of_korean():
    spelled = spelling(ByteMapper(), "밥")
    assert spelled.ids == [BOW, 235, 176, 165, EOW]
    assert spelled.groups == [("BOW", 0, 1), ("밥", 1, 4), ("EOW", 4, 5)]
    spelled = spelling(JamoMapper(), "밥a")
    assert spelled.letters == ["BOW", "ㅂ", "ㅏ", "ㅂ", "a", "EOW"]
    assert spelled.groups[1:3] == [("밥", 1, 4), ("a", 4, 5)]
    assert spelling(JamoMapper(), "밥") == spelling(JamoMapper(), "\u1107\u1161\u11b8")  # decomposed
    assert [standing_alone(i) for i in (INITIAL, INITIAL + 19, INITIAL + 40)] == ["ㄱ", "ㅏ", "ㄱ"]


@pytest.mark.parametrize("word", ["x" * 48, "밥" * 16, "é" * 24])
@pytest.mark.parametrize("mapper", [ByteMapper(), ByteMapper(published=True)])
def test_a_word_that_is_too_long_is_shown_as_far_as_it_is_read(mapper, word):
    whole, longer = spelling(mapper, word), spelling(mapper, word + word[0])
    assert whole.whole
    assert not longer.whole
    assert longer.ids == whole.ids
    assert longer.groups == whole.groups
    assert whole.groups[-1] == ("EOW", 49, 50)


def test_other_spellers():
    published = ByteMapper(published=True)
    assert spelling(published, "<S>").groups[1] == ("<S>", 1, 2)
    lists = {name: i for i, name in enumerate(["<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>", "a"])}
    spelled = spelling(LexiconMapper(lists, None), "ab")
    assert spelled.letters == ["BOW", "a", "b", "EOW"]
    assert spelled.ids[1:3] == [6, 4]
    assert spelling(WordMapper(["a"]), "a") is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("bank", {"doubled": "bannk", "missing": "bak", "swapped": "bnak"}),
        ("a", {"doubled": "aa"}),
        ("oo", {"doubled": "ooo", "missing": "o"}),
        ("e\u0301a", {"doubled": "e\u0301aa", "missing": "e\u0301", "swapped": "ae\u0301"}),
        ("배를", {"vowel": "베를", "consonant": "빼를"}),
        ("눈이", {"vowel": "뉸이", "consonant": "룬이"}),
        ("iPad를", {"vowel": "iPad룰", "consonant": "iPad늘"}),
    ],
)
def test_slips(word, expected):
    assert slips(word) == expected


def test_a_spelling_is_for_the_word_that_it_was_typed_for(playground):
    assert asked(playground)["other"]["text"] == "bannk"
    assert asked(playground, spelling="bnak", of="bank")["other"]["text"] == "bnak"
    assert asked(playground, spelling="bnak", of="sat")["other"]["text"] == "bannk"
    found = asked(playground, spelling="<img src=x onerror=alert(1)>", of="bank")["other"]
    assert "".join(group["text"] for group in found["groups"][1:-1]) == "<img src=x onerror=alert(1)>"


def test_the_other_sentence(playground):
    assert asked(playground, b="b a", side="b", place=1)["word"]["text"] == "a"


def test_what_cannot_be_asked(playground):
    with pytest.raises(UserError, match="0 to 5, found 6"):
        asked(playground, place=6)
    with pytest.raises(UserError, match="it has none"):
        asked(playground, a="", place=0)
    for wrong in ({"place": -1}, {"spelling": "x" * 101}, {"side": "c"}, {"other": 1}):
        with pytest.raises(ValidationError):
            asked(playground, **wrong)


def test_a_model_without_a_vocabulary_has_the_words_of_the_bundled_sentences():
    found = asked(Playground(Offer({"small": make_elmo()})))
    assert found["by_chance"]["words"] > 100
    assert len(found["word"]["nearest"]) == 6


def test_a_model_of_word_vectors_says_that_it_has_no_letters():
    mapper = WordMapper(["a"])
    config = BiLMConfig(
        WordEncoderConfig(words=mapper.table_sizes[1], embedding=8), LSTMConfig(layers=2, cells=8, width=8)
    )
    torch.manual_seed(0)
    elmo = Elmo(Checkpoint(BiLM(config), mapper, TokenizerConfig("whitespace")))
    with pytest.raises(UserError, match="no letters"):
        asked(Playground(Offer({"words": elmo})))
