"""Why a word's vector is what it is: each other word is left out in turn, and the sentence read again."""

from __future__ import annotations

from typing import Any

from elmokit.analysis.contexts.marked import MarkedSentence
from elmokit.embed.similarity import cosines
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.contexts import Picked, picked_words

MOST_TOKENS = 1500  # read for one sentence: all words of one of 39 and fewer, the nearest ones of a longer one

Request = Picked


def answer(playground: Playground, request: Picked) -> dict[str, Any]:
    """By 1 - cosine of the top layer's vectors, with the word and without it; null where it was not tried."""
    name, elmo = playground.model_for(request.a, request.b)
    words = picked_words(elmo, request)
    places = [_left_out(word) for word in words]
    sentences = [word.tokens for word in words]
    for word, chosen in zip(words, places):
        sentences += [[*word.tokens[:place], *word.tokens[place + 1 :]] for place in chosen]
    top = elmo.layers - 1
    vectors = iter(elmo.embed(sentences, layers=top))
    whole = [next(vectors)[word.start] for word in words]
    sides = []
    for word, chosen, own in zip(words, places, whole):
        changes: list[float | None] = [None] * len(word.tokens)
        for place in chosen:
            without = next(vectors)[word.start - (place < word.start)]
            changes[place] = 1 - float(cosines(own[None], without[None])[0, 0])
        sides.append({"tokens": word.tokens, "picked": word.start, "changes": changes})
    return {"model": name, "layer": top, "sides": sides}


def _left_out(word: MarkedSentence) -> list[int]:
    """The places of the other words, or of the nearest of them where all would take too long."""
    others = [place for place in range(len(word.tokens)) if place != word.start]
    others.sort(key=lambda place: abs(place - word.start))
    return sorted(others[: MOST_TOKENS // len(word.tokens)])
