"""The room "Two readers": its numbers are those of `score` and `fill`."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from elmokit import Elmo, UserError, fill, score
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms import readers
from helpers.language_models import MODEL, WORDS, without_head

A, B = "He sat on the bank of the river .", "a bank"


def playground(**models) -> Playground:
    return Playground(SimpleNamespace(models=models, first=next(iter(models))))  # type: ignore[arg-type]


ELMO = Elmo(MODEL)
PLAYGROUND = playground(small=ELMO)


def asked(a=A, b=B, side="a"):
    return readers.Request(a=a, b=b, side=side)


@pytest.mark.parametrize(("side", "text"), [("a", A), ("b", B)])
def test_surprise_is_that_of_the_scores(side, text):
    found = readers.answer(PLAYGROUND, asked(side=side))
    (scores,) = score(ELMO, [text])
    assert found["predicts"]
    assert [word["text"] for word in found["words"]] == text.split()
    for word, scored in zip(found["words"], scores[1:-1], strict=True):
        assert word["unknown"] is scored.unknown is (word["text"] not in WORDS)
        for by in ("forward", "backward"):
            log_p = getattr(scored, by)
            assert word[by]["p"] == pytest.approx(math.exp(log_p), rel=1e-4)
            assert word[by]["bits"] == pytest.approx(-math.log2(math.exp(log_p)), abs=1e-4)
    for by in ("forward", "backward"):
        total = -sum(getattr(scored, by) for scored in scores[1:-1]) / math.log(2)
        assert found["bits"][by] == pytest.approx(total, abs=1e-3)


def test_what_fills_a_place_is_what_fill_gives_and_each_reader_alone():
    found = readers.answer(PLAYGROUND, asked())
    tokens = A.split()
    for k, word in enumerate(found["words"]):
        filled = fill(ELMO, [*tokens[:k], "___", *tokens[k + 1 :]], top=1000, punctuation=True)
        assert [one["word"] for one in word["both"]["expects"]] == [one.word for one in filled[: readers.TOP]]
        for one, other in zip(word["both"]["expects"], filled):
            assert one["p"] == pytest.approx(other.probability, rel=1e-4)
        own = {one.word: one.probability for one in filled}.get(tokens[k])
        assert word["both"]["p"] == (None if own is None else pytest.approx(own, rel=1e-4))
        for by in ("forward", "backward"):
            best = sorted(filled, key=lambda one, by=by: -getattr(one, by))[: readers.TOP]
            assert [one["word"] for one in word[by]["expects"]] == [one.word for one in best]
            for one, other in zip(word[by]["expects"], best):
                assert one["p"] == pytest.approx(math.exp(getattr(other, by)), rel=1e-4)


def test_neither_reader_sees_the_other_side():
    whole, left, right = (
        readers.answer(PLAYGROUND, asked(a=text))["words"]
        for text in (A, "He sat on the unheard b", "밥을 밥을 of the river .")
    )
    for one, other in zip(whole[4]["forward"]["expects"], left[4]["forward"]["expects"]):
        assert one == {"word": other["word"], "p": pytest.approx(other["p"], rel=1e-4)}
    for one, other in zip(whole[4]["backward"]["expects"], right[1]["backward"]["expects"]):
        assert one == {"word": other["word"], "p": pytest.approx(other["p"], rel=1e-4)}
    assert whole[4]["backward"]["expects"] != left[4]["backward"]["expects"]  # else this would show nothing


def test_a_model_without_a_head_says_so():
    headless = playground(plain=Elmo(without_head()))
    assert readers.answer(headless, asked()) == {"model": "plain", "predicts": False}


@pytest.mark.parametrize("predicts", [True, False])
@pytest.mark.parametrize("changes", [{"a": ""}, {"a": " \t"}, {"b": "", "side": "b"}])
def test_an_empty_sentence_is_refused(changes, predicts):
    with pytest.raises(UserError, match="the sentence has no words"):
        readers.answer(PLAYGROUND if predicts else playground(plain=Elmo(without_head())), asked(**changes))


@pytest.mark.parametrize(
    "text", ["___ or ___", "<img src=x onerror=alert(1)>", "x" * 100, "<S> </S> <UNK>", "😀 e\u0301\u202e"]
)
def test_any_text_is_read(text):
    words = readers.answer(PLAYGROUND, asked(a=text))["words"]
    assert [word["text"] for word in words] == ELMO.tokens(text)
    assert all(word["both"]["p"] is None for word in words if word["unknown"])


def test_what_cannot_be_asked_is_not_taken():
    for wrong in ({"side": "c"}, {"a": "a" * 401}, {"more": 1}):
        with pytest.raises(ValidationError):
            readers.Request(**{"a": A, "b": B, "side": "a", **wrong})


def test_the_language_of_both_sentences_says_which_model_reads_either():
    both = playground(en=ELMO, ko=Elmo(without_head()))
    assert readers.answer(both, asked())["model"] == "en"
    assert readers.answer(both, asked(b="밥"))["model"] == "ko"
