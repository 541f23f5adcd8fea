"""The mix: ELMo_k = gamma sum_j s_j h_kj, with all that the page needs to move s and gamma without asking again.

A mix m = sum_j s_j h_j has a length, and a cosine with another, that follow from the products of layers alone:
m.m' = sum_ij s_i s_j h_i.h'_j. Of each context its products go to the page in place of its vectors.

Shapes: L layers, D width, C contexts with a marked word, P = L (L + 1) / 2 products, M mixes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from elmokit.errors import UserError
from elmokit.serve.play.gallery import Gallery, language_of
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences

# The shares and gamma that tasks learned at their input with en-small, means of three seeds: docs/results.md,
# "The layer weights that were learned" (tests/test_play_mix.py reads them there).
LEARNED: dict[str, tuple[tuple[float, float, float], float]] = {
    "ner": ((0.289, 0.351, 0.360), 1.136),
    "srl": ((0.233, 0.349, 0.418), 0.967),
    "squad": ((0.357, 0.376, 0.267), 0.753),
    "entailment": ((0.418, 0.288, 0.294), 0.982),
    "coref": ((0.346, 0.333, 0.321), 1.069),
    "sentiment": ((0.357, 0.318, 0.325), 0.777),
    "pos": ((0.387, 0.324, 0.289), 1.225),
}
SHOWN = 5  # contexts
KEPT, MIXES = 3 * SHOWN, 250  # of so many mixes, so many contexts each: the nearest of any mix are among them
DIGITS = 5

Matrix = NDArray[np.float64]


class Request(Sentences):
    wa: int = Field(ge=-1, le=10_000)
    wb: int = Field(ge=-1, le=10_000)


def answer(playground: Playground, request: Request) -> dict[str, Any]:
    name, elmo = playground.model_for(request.a, request.b)
    tokens = {"a": elmo.tokens(request.a), "b": elmo.tokens(request.b)}
    _check(tokens["a"], request.wa, "first")
    picked = [("a", request.wa)]
    if tokens["b"]:  # one sentence can be mixed as well, but not compared
        _check(tokens["b"], request.wb, "second")
        picked.append(("b", request.wb))
    layers = elmo.embed([tokens[side] for side, _ in picked])
    vectors = {side: array[:, at].astype(np.float64) for (side, at), array in zip(picked, layers)}
    gallery = playground.gallery(request.a, request.b)
    return {
        "model": name,
        "language": language_of(request.a, request.b),
        "words": {side: tokens[side][at] for side, at in picked},
        "vectors": {side: own.round(DIGITS).tolist() for side, own in vectors.items()},
        "contexts": contexts(gallery, vectors["a"], tokens["a"]),
        "of": len(gallery.sentences),
        "shown": SHOWN,
        "learned": [
            {"task": task, "s": list(s), "gamma": gamma}
            for task, (s, gamma) in LEARNED.items()
            if len(s) == elmo.layers
        ],
    }


def contexts(gallery: Gallery, own: Matrix, tokens: list[str]) -> list[dict[str, Any]]:
    """Those that are nearest to the word [L, D] by any mix, and the products that their cosines need."""
    marked, theirs = _marked(gallery)
    between = products(own, marked)  # [C, P]
    squares = products(own, own[np.newaxis])[0]
    near = by_mixes(_mixes(len(own)), squares, between, theirs)  # [M, C]
    near[:, [sentence.tokens == tokens for sentence in gallery.sentences]] = -np.inf  # itself is no neighbour
    kept = np.unique(np.argsort(-near, axis=1)[:, :KEPT])
    senses = [gloss for pair in gallery.pairs for gloss, some in zip(pair.glosses, pair.contexts) for _ in some]
    return [
        {
            "tokens": gallery.sentences[number].tokens,
            "start": gallery.sentences[number].start,
            "end": gallery.sentences[number].end,
            "sense": senses[number],
            "between": between[number].round(DIGITS).tolist(),
            "own": theirs[number].round(DIGITS).tolist(),
        }
        for number in kept.tolist()
        if np.isfinite(near[0, number])
    ]


def products(one: Matrix, others: Matrix) -> Matrix:
    """[L, D] or [C, L, D], and [C, L, D] -> [C, P]: h_i.h'_j; for i < j the mean of both ways round."""
    both = np.matmul(one, others.swapaxes(1, 2))  # [C, L, L]
    rows, columns = np.triu_indices(both.shape[1])
    return np.asarray((both + both.swapaxes(1, 2))[:, rows, columns] / 2)


def by_mixes(shares: Matrix, squares: Matrix, between: Matrix, theirs: Matrix) -> Matrix:
    """The cosines [M, C] of mixed vectors, by shares [M, L] and products."""
    rows, columns = np.triu_indices(shares.shape[1])
    pairs = shares[:, rows] * shares[:, columns] * np.where(rows == columns, 1, 2)  # [M, P]
    lengths = np.sqrt(np.maximum((pairs @ squares)[:, np.newaxis] * (pairs @ theirs.T), 1e-24))
    return np.asarray(pairs @ between.T / lengths)


@lru_cache(maxsize=8)
def _marked(gallery: Gallery) -> tuple[Matrix, Matrix]:
    """The marked words' vectors [C, L, D], and the products [C, P] of each with itself."""
    vectors = np.stack(
        [layers[:, s.start : s.end].mean(axis=1) for layers, s in zip(gallery.layers, gallery.sentences)]
    ).astype(np.float64)
    return vectors, products(vectors, vectors)


@lru_cache(maxsize=8)
def _mixes(layers: int) -> Matrix:
    """Each layer alone, and mixes from all over: more of them near the corners and edges."""
    drawn = np.random.default_rng(0).dirichlet(np.full(layers, 0.6), MIXES)
    return np.concatenate([np.eye(layers), drawn])


def _check(tokens: list[str], at: int, which: str) -> None:
    if not 0 <= at < len(tokens):
        raise UserError(
            f"expected a word of the {which} sentence, 0 to {len(tokens) - 1}, found {at}"
            if tokens
            else f"expected a {which} sentence with a word in it, found none"
        )
