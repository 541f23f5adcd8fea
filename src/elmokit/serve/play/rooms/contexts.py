"""One word, two sentences: how near the two picked words are, by layer, and what such numbers are elsewhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from elmokit.analysis.contexts.marked import MarkedSentence, cosines, word_vectors
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.serve.play.gallery import Gallery
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import MOST, Sentences


class Picked(Sentences):
    """Two sentences, and the place of a word in each."""

    wa: int = Field(ge=0, lt=MOST)
    wb: int = Field(ge=0, lt=MOST)


Request = Picked


def picked_words(elmo: Elmo, request: Picked) -> list[MarkedSentence]:
    """Both sentences as the model reads them."""
    found = []
    for which, text, place in (("first", request.a, request.wa), ("second", request.b, request.wb)):
        tokens = elmo.tokens(text)
        if place >= len(tokens):
            raise UserError(
                f"the {which} sentence has {len(tokens)} words: there is none at place {place}, counted from 0"
            )
        found.append(MarkedSentence(tokens, place, place + 1))
    return found


def answer(playground: Playground, request: Picked) -> dict[str, Any]:
    name, elmo = playground.model_for(request.a, request.b)
    words = picked_words(elmo, request)
    nearness = cosines(_with_mean(word_vectors(elmo, words)))[:, 0, 1].tolist()
    usual = usual_cosines(playground.gallery(request.a, request.b))
    return {
        "model": name,
        "words": [word.word for word in words],
        "same": words[0].word == words[1].word,  # what has one vector per word takes them for one
        "layers": nearness[:-1],
        "mean": nearness[-1],
        "usual": {"same": usual[0].tolist(), "other": usual[1].tolist()},
    }


def _with_mean(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """[S, L, D] -> [S, L + 1, D], the last one being the mean of the layers."""
    return np.concatenate([vectors, vectors.mean(axis=1, keepdims=True)], axis=1)


@lru_cache(maxsize=8)
def usual_cosines(gallery: Gallery) -> NDArray[np.float64]:
    """[2, L + 1]: of a word in two of the bundled contexts, on average: in the same sense, in another sense."""
    same, other, first = [], [], 0
    for pair in gallery.pairs:
        senses = np.repeat([0, 1], [len(contexts) for contexts in pair.contexts])
        last = first + len(senses)
        vectors = np.stack(
            [
                layers[:, sentence.start : sentence.end].mean(axis=1)
                for layers, sentence in zip(gallery.layers[first:last], gallery.sentences[first:last])
            ]
        )
        by_layer = cosines(_with_mean(vectors))  # [L + 1, S, S]
        alike = senses[:, None] == senses
        same.append(by_layer[:, alike & ~np.eye(len(senses), dtype=bool)].mean(axis=1))
        other.append(by_layer[:, ~alike].mean(axis=1))
        first = last
    return np.stack([np.mean(same, axis=0), np.mean(other, axis=0)])
