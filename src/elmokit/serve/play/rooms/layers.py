"""Layers: all tokens in two dimensions, the contexts nearest to the picked word, its part of speech and its sense.

Shapes: L layers, T tokens of a sentence, N of all bundled sentences, D width, S contexts of a word's two senses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from elmokit.analysis.contexts.marked import MarkedSentence, Near, cosines, is_word
from elmokit.analysis.probes.pairs import LIKE
from elmokit.embed.embedder import Elmo
from elmokit.embed.similarity import unit_rows
from elmokit.errors import UserError
from elmokit.serve.play.gallery import Gallery
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences
from elmokit.serve.play.tags import tags_of
from elmokit.text.jamo import compose

BACKGROUND = 150  # points of the bundled sentences, always the same
EDGE = 0.005  # of the bundled words, left out at each end of an axis: a few lie far off
NEAREST = 3
# What may follow a Korean noun without changing which word it is; the longer ones first.
PARTICLES = ("에서", "으로", "에게", "까지", "부터", *"이가을를은는에의로도만과와")


class Request(Sentences):
    """The places of the picked words; -1 where a sentence has none."""

    wa: int = Field(ge=-1)
    wb: int = Field(ge=-1)


def answer(playground: Playground, request: Request) -> dict[str, Any]:
    name, elmo = playground.model_for(request.a, request.b)
    gallery = playground.gallery(request.a, request.b)
    tokens = [elmo.tokens(text) for text in (request.a, request.b)]
    picked = [request.wa, request.wb]
    for side, sentence, place in zip("ab", tokens, picked):
        if place >= len(sentence) and place >= 0:
            there = f"0 to {len(sentence) - 1}" if sentence else "but it has none"
            raise UserError(f"w{side}: expected a word of the sentence, {there}, found {place}")
    layers = elmo.embed(tokens)
    return {
        "tokens": dict(zip("ab", tokens)),
        "picked": dict(zip("ab", picked)),
        "plane": _plane(gallery, layers),
        "cosine": _cosine(layers, picked),
        "contexts": _contexts(playground, name, gallery, tokens[0], picked[0], layers[0]),
        "tags": _tags(elmo, layers),
        "senses": {
            side: senses(gallery, sentence, place, own)
            for side, sentence, place, own in zip("ab", tokens, picked, layers)
            if 0 <= place < len(sentence)
        },
        "sense_words": [pair.word for pair in gallery.pairs],
    }


# Two dimensions


@dataclass(frozen=True)
class _Frame:
    """What does not change while somebody types."""

    ranges: list[list[list[float]]]  # by layer, the ends of both axes
    background: list[list[list[float]]]  # by layer, points
    words: NDArray[np.bool_]  # [N], which tokens are words
    starts: list[int]  # where each sentence begins among the N tokens


_frames: WeakKeyDictionary[Gallery, _Frame] = WeakKeyDictionary()


def _frame(gallery: Gallery) -> _Frame:
    if gallery not in _frames:
        words = np.array([is_word(token) for sentence in gallery.sentences for token in sentence.tokens])
        starts = [0, *accumulate(len(sentence.tokens) for sentence in gallery.sentences[:-1])]
        flat = projected(gallery, gallery.vectors[:, words])  # a full stop lies far from all words, and often
        some = flat[:, np.linspace(0, flat.shape[1] - 1, BACKGROUND).round().astype(int)]
        ends = np.quantile(flat, [EDGE, 1 - EDGE], axis=1).transpose(1, 2, 0)  # [L, 2, 2]
        _frames[gallery] = _Frame(_rounded(ends), _rounded(some), words, starts)
    return _frames[gallery]


def projected(gallery: Gallery, layers: NDArray[np.float32]) -> NDArray[np.float32]:
    """[L, T, D] -> [L, T, 2]"""
    middle, directions = gallery.plane
    flat: NDArray[np.float32] = np.matmul(layers - middle[:, None], directions)
    return flat


def _plane(gallery: Gallery, layers: list[NDArray[np.float32]]) -> dict[str, Any]:
    frame = _frame(gallery)
    points = {side: _rounded(projected(gallery, own)) for side, own in zip("ab", layers)}
    return {"ranges": frame.ranges, "background": frame.background, **points}


def _cosine(layers: list[NDArray[np.float32]], picked: list[int]) -> list[float] | None:
    """Of the two picked words, by layer; None where there is only one."""
    if not all(0 <= place < own.shape[1] for own, place in zip(layers, picked)):
        return None
    near: list[float] = cosines(np.stack([own[:, place] for own, place in zip(layers, picked)]))[:, 0, 1].tolist()
    return near


def _rounded(array: NDArray[Any]) -> Any:
    return np.round(array.astype(np.float64), 3).tolist()


# Nearest contexts


def _contexts(
    playground: Playground, name: str, gallery: Gallery, tokens: list[str], place: int, layers: NDArray[np.float32]
) -> dict[str, Any]:
    """Of the picked word of the first sentence, above layer 0: from an index where there is one."""
    if place < 0:
        return {"of": "bundled", "compared": 0, "layers": []}
    index = playground.offer.indexes.get(name)
    if index is not None:
        chosen = [layer for layer in index.facts.which_layers if layer > 0]
        found = [index.nearest(layers[layer, place], layer, NEAREST, without=tokens) for layer in chosen]
        compared = index.facts.vectors
    else:
        chosen = list(range(1, len(layers)))
        found = [nearest(gallery, layer, layers[layer, place], tokens) for layer in chosen]
        compared = len(gallery.tokens)
    return {
        "of": "bundled" if index is None else "index",
        "compared": compared,
        "layers": [
            {"layer": layer, "contexts": [context.to_dict() for context in contexts]}
            for layer, contexts in zip(chosen, found)
        ],
    }


def nearest(gallery: Gallery, layer: int, vector: NDArray[np.float32], without: list[str]) -> list[Near]:
    """As analysis/contexts/marked.py's `nearest`, of sentences whose vectors are at hand."""
    near = np.where(_frame(gallery).words, gallery.units[layer] @ unit_rows(vector[None])[0], -np.inf)
    starts = _frame(gallery).starts
    best = np.maximum.reduceat(near, starts)  # of each sentence
    found = []
    for i in np.argsort(-best, kind="stable"):
        tokens = gallery.sentences[i].tokens
        if tokens == without or best[i] == -np.inf:
            continue
        place = int(near[starts[i] : starts[i] + len(tokens)].argmax())
        found.append(Near(float(best[i]), MarkedSentence(tokens, place, place + 1)))
        if len(found) == NEAREST:
            break
    return found


# What layers know


def _tags(elmo: Elmo, layers: list[NDArray[np.float32]]) -> dict[str, Any] | None:
    """By sentence and token, each layer's likeliest tag and its probability."""
    probes = tags_of(elmo.digest)
    if probes is None:
        return None
    sides = {}
    for side, own in zip("ab", layers):
        shares = probes.probabilities(own)  # [L, T, K]
        best = shares.argmax(axis=2)
        sides[side] = [
            [{"tag": probes.labels[best[j, t]], "p": round(float(shares[j, t].max()), 4)} for j in range(len(own))]
            for t in range(own.shape[1])
        ]
    return {**sides, "accuracy": probes.accuracy, "data": probes.data}


def senses(gallery: Gallery, tokens: list[str], place: int, layers: NDArray[np.float32]) -> dict[str, Any] | None:
    """The mean cosine of a word [L, T, D] to the contexts of each of its senses, by layer."""
    number = _pair_of(gallery, tokens[place])
    if number is None:
        return None
    pair = gallery.pairs[number]
    first = sum(len(contexts) for other in gallery.pairs[:number] for contexts in other.contexts)
    of_sense = [sense for sense, contexts in enumerate(pair.contexts) for _ in contexts]
    vectors, which = [layers[:, place]], []
    for at, sense in enumerate(of_sense, start=first):
        sentence = gallery.sentences[at]
        if sentence.tokens != tokens:  # a bundled sentence itself has nothing to learn from itself
            vectors.append(gallery.layers[at][:, sentence.start : sentence.end].mean(axis=1))
            which.append(sense)
    near = cosines(np.stack(vectors))[:, 0, 1:]  # [L, S]
    by_layer = []
    for own in near:
        means = [float(own[np.array(which) == sense].mean()) for sense in (0, 1)]
        alike = abs(means[0] - means[1]) < LIKE
        by_layer.append({"cosine": means, "sense": None if alike else int(means[1] > means[0])})
    example = [gallery.sentences[first + of_sense.index(sense)].marked for sense in (0, 1)]
    return {"word": pair.word, "glosses": pair.glosses, "examples": example, "layers": by_layer}


def _pair_of(gallery: Gallery, word: str) -> int | None:
    """The bundled pair of a word: itself, in whatever case; in Korean also with another particle."""
    for form in (_folded, _stem):
        for number, pair in enumerate(gallery.pairs):
            if form(pair.word) == form(word):
                return number
    return None


def _folded(word: str) -> str:
    return compose(word).lower()


def _stem(word: str) -> str:
    word = _folded(word)
    return next((word[: -len(end)] for end in PARTICLES if word.endswith(end) and word != end), word)
