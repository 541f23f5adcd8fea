"""The room "One word, two sentences": its numbers are the library's, computed here anew."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from elmokit import Elmo, UserError
from elmokit.analysis.contexts.marked import compare_words
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms import contexts, why
from helpers.models import make_elmo

A, B = "He sat on the bank of the river .", "She put her savings in a bank ."
ELMO = make_elmo()
PLAYGROUND = Playground(SimpleNamespace(models={"small": ELMO}, first="small"))  # type: ignore[arg-type]


def asked(a=A, b=B, wa=4, wb=6):
    return contexts.Request(a=a, b=b, wa=wa, wb=wb)


def cosine(one, other) -> float:
    one, other = np.float64(one), np.float64(other)
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def test_cosines_are_those_of_the_picked_words_by_layer():
    found = contexts.answer(PLAYGROUND, asked())
    one, other = (array[:, place] for array, place in zip(ELMO.embed([A, B]), (4, 6)))
    assert found["layers"] == pytest.approx([cosine(*pair) for pair in zip(one, other)], abs=1e-6)
    mean = [array[place] for array, place in zip(ELMO.embed([A, B], layers="mean"), (4, 6))]
    assert found["mean"] == pytest.approx(cosine(*mean), abs=1e-6)
    similar = compare_words(ELMO, [A.replace("bank", "[bank]"), B.replace("bank", "[bank]")])
    assert found["layers"] == pytest.approx(similar.by_layer[:, 0, 1].tolist(), abs=1e-9)
    assert (found["model"], found["words"], found["same"]) == ("small", ["bank", "bank"], True)
    assert found["layers"][0] == pytest.approx(1)  # x_k knows nothing of the sentence
    assert found["layers"][2] < 0.999


def test_other_words_differ_in_every_layer():
    found = contexts.answer(PLAYGROUND, asked(wb=3))
    assert (found["words"], found["same"]) == (["bank", "savings"], False)
    assert all(value < 0.999 for value in found["layers"])


def test_what_is_usual_is_the_mean_over_the_words_of_the_bundled_sentences():
    gallery = PLAYGROUND.gallery(A, B)
    same, other = [], []
    for pair in gallery.pairs:
        senses = [0] * len(pair.contexts[0]) + [1] * len(pair.contexts[1])
        by_layer = compare_words(ELMO, [context for sense in pair.contexts for context in sense]).by_layer
        pairs = [(i, j) for j in range(len(senses)) for i in range(j)]
        same.append(np.mean([by_layer[:, i, j] for i, j in pairs if senses[i] == senses[j]], axis=0))
        other.append(np.mean([by_layer[:, i, j] for i, j in pairs if senses[i] != senses[j]], axis=0))
    found = contexts.answer(PLAYGROUND, asked())["usual"]
    assert found["same"][:-1] == pytest.approx(np.mean(same, axis=0).tolist(), abs=1e-6)
    assert found["other"][:-1] == pytest.approx(np.mean(other, axis=0).tolist(), abs=1e-6)
    assert len(found["same"]) == len(found["other"]) == 4  # the mean of the layers is the last


def test_leaving_out_a_word_is_reading_the_sentence_without_it():
    found = why.answer(PLAYGROUND, asked())
    assert (found["model"], found["layer"]) == ("small", 2)
    for side, text, place in zip(found["sides"], (A, B), (4, 6)):
        tokens = text.split()
        assert (side["tokens"], side["picked"]) == (tokens, place)
        assert side["changes"][place] is None
        whole = ELMO.embed([text])[0][2, place]
        for i in range(len(tokens)):
            if i != place:
                without = ELMO.embed([" ".join(tokens[:i] + tokens[i + 1 :])])[0][2, place - (i < place)]
                assert side["changes"][i] == pytest.approx(1 - cosine(whole, without), abs=1e-5)
        assert max(change for change in side["changes"] if change is not None) > 1e-3


def test_of_a_long_sentence_the_nearest_words_are_left_out():
    words = "a " * 100
    side = why.answer(PLAYGROUND, asked(a=words, wa=50))["sides"][0]
    tried = [i for i, change in enumerate(side["changes"]) if change is not None]
    assert len(tried) == why.MOST_TOKENS // 100 == 15
    assert tried == sorted(tried)
    assert max(abs(i - 50) for i in tried) == 8
    assert 50 not in tried


def test_a_word_by_itself_has_nothing_to_be_left_out():
    side = why.answer(PLAYGROUND, asked(a="bank", wa=0))["sides"][0]
    assert side == {"tokens": ["bank"], "picked": 0, "changes": [None]}


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)> bank", "x" * 100, "밥 e\u0301\u202e 😀 \u200d", "\ufeff a"]
)
@pytest.mark.parametrize("room", [contexts, why])
def test_any_text_is_read(room, text):
    last = len(ELMO.tokens(text)) - 1
    assert room.answer(PLAYGROUND, asked(a=text, wa=last))["model"] == "small"


@pytest.mark.parametrize("room", [contexts, why])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wa": 9}, "the first sentence has 9 words: there is none at place 9"),
        ({"wb": 399}, "the second sentence has 8 words: there is none at place 399"),
        ({"a": "", "wa": 0}, "the first sentence has 0 words"),
        ({"b": "  ", "wb": 0}, "the second sentence has 0 words"),
    ],
)
def test_a_place_without_a_word_is_refused(room, changes, message):
    with pytest.raises(UserError, match=message):
        room.answer(PLAYGROUND, asked(**changes))


@pytest.mark.parametrize("changes", [{"wa": -1}, {"wb": 400}, {"a": "a" * 401}, {"wa": 1.5}])
def test_what_cannot_be_asked_is_not_taken(changes):
    with pytest.raises(ValidationError):
        asked(**changes)
    with pytest.raises(ValidationError):
        contexts.Request(a=A, b=B, wa=0, wb=0, more=1)  # type: ignore[call-arg]


def test_the_bundled_model_tells_what_a_word_is_made_of():
    english, korean = (Elmo.from_pretrained(name) for name in ("en-small", "ko-small"))
    both = Playground(SimpleNamespace(models={"en-small": english, "ko-small": korean}, first="en-small"))  # type: ignore[arg-type]
    found = why.answer(
        both, why.Request(a="The children play in the garden .", b="She wrote a play .", wa=2, wb=3)
    )
    first = found["sides"][0]
    assert found["model"] == "en-small"
    assert first["tokens"][np.argmax([change or 0 for change in first["changes"]])] == "children"
    korean_words = why.Request(a="밤새 눈이 내렸다 .", b="책을 오래 봐서 눈이 아프다 .", wa=1, wb=3)
    assert why.answer(both, korean_words)["model"] == "ko-small"
