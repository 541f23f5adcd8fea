"""The room of the mix: what it sends is enough for the page's numbers to be ScalarMix's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import Elmo, ScalarMix, UserError
from elmokit.embed.similarity import cosines
from elmokit.serve.offer import Offer
from elmokit.serve.play.gallery import Gallery
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.mix import LEARNED, SHOWN, Request, answer
from helpers.language_models import make_model

DOCS = Path(__file__).parent.parent / "docs"
A, B = "He sat on the bank of the river .", "She put her savings in a bank ."
ASKED = Request(a=A, b=B, wa=4, wb=6)
MIXES = [(1, 0, 0), (0, 0, 1), (0, 1, 0), (1, 1, 1), (0.2, 0.5, 0.3), (0.01, 0.04, 0.95), (0.5, 0.5, 0)]


@pytest.fixture(scope="module")
def playground() -> Playground:
    return Playground(Offer({"small": Elmo(make_model())}))


def mixed(layers: np.ndarray, s: tuple[float, ...], gamma: float = 1.0) -> np.ndarray:
    """The library's: [L, T, D] -> [T, D]."""
    weights = np.log(np.maximum(np.asarray(s, dtype=np.float64), 1e-30)).tolist()
    mix = ScalarMix(len(layers), weights=weights, gamma=gamma)
    with torch.no_grad():
        return mix(torch.from_numpy(np.asarray(layers, dtype=np.float32))[:, None])[0].numpy()


def products(values: list[float], s: np.ndarray) -> float:
    """As page/rooms/mix.js counts: products of i <= j, those of i < j twice."""
    pairs = [(i, j) for i in range(len(s)) for j in range(i, len(s))]
    return sum((1 if i == j else 2) * s[i] * s[j] * value for (i, j), value in zip(pairs, values, strict=True))


def shares_for(elmo: Elmo, s: tuple[float, ...]) -> np.ndarray:
    """Of models with another number of layers than three, the first of them."""
    own = np.resize(np.asarray(s, dtype=np.float64), elmo.layers) + 0.0
    return own / own.sum() if own.sum() else np.full(elmo.layers, 1 / elmo.layers)


@pytest.mark.parametrize("s", MIXES)
def test_vectors_and_cosine_are_those_of_scalar_mix(playground: Playground, s: tuple[float, ...]) -> None:
    elmo = playground.offer.models["small"]
    found = answer(playground, ASKED)
    shares = shares_for(elmo, s)
    theirs = {
        side: mixed(elmo.embed([elmo.tokens(text)])[0], tuple(shares), 1.7)[at]
        for side, text, at in (("a", A, 4), ("b", B, 6))
    }
    ours = {side: 1.7 * shares @ np.asarray(found["vectors"][side]) for side in "ab"}
    for side in "ab":
        np.testing.assert_allclose(ours[side], theirs[side], atol=1e-5 * (1 + np.abs(theirs[side]).max()))
    cosine = ours["a"] @ ours["b"] / np.linalg.norm(ours["a"]) / np.linalg.norm(ours["b"])
    assert cosine == pytest.approx(cosines(theirs["a"][None], theirs["b"][None])[0, 0], abs=1e-4)
    assert found["words"] == {"a": "bank", "b": "bank"}


def nearest_by_the_library(elmo: Elmo, gallery: Gallery, shares: np.ndarray, tokens: list[str], at: int) -> list:
    own = mixed(elmo.embed([tokens])[0], tuple(shares))[at]
    near = []
    for sentence, layers in zip(gallery.sentences, gallery.layers):
        if sentence.tokens != tokens:
            word = mixed(layers, tuple(shares))[sentence.start : sentence.end].mean(axis=0)
            near.append((float(cosines(own[None], word[None])[0, 0]), sentence.marked))
    return sorted(near, reverse=True)[:SHOWN]


@pytest.mark.parametrize("s", [*MIXES, *np.random.default_rng(5).dirichlet([1, 1, 1], 5).tolist()])
@pytest.mark.parametrize(("text", "at"), [(A, 4), ("이 배를 타고 갔다 .", 1)])
def test_the_nearest_of_any_mix_are_among_those_that_are_sent(
    playground: Playground, s: tuple[float, ...], text: str, at: int
) -> None:
    elmo, gallery = playground.offer.models["small"], playground.gallery(text)
    found = answer(playground, Request(a=text, b="", wa=at, wb=-1))
    shares = shares_for(elmo, tuple(s))
    own = shares @ np.asarray(found["vectors"]["a"])
    ours = sorted(
        (
            products(one["between"], shares) / np.sqrt((own @ own) * products(one["own"], shares))
            for one in found["contexts"]
        ),
        reverse=True,
    )[:SHOWN]
    expected = nearest_by_the_library(elmo, gallery, shares, elmo.tokens(text), at)
    np.testing.assert_allclose(ours, [cosine for cosine, _ in expected], atol=2e-4)


def test_a_sentence_of_the_gallery_is_not_its_own_neighbour(playground: Playground) -> None:
    sentence = playground.gallery("a").sentences[0]
    text = " ".join(sentence.tokens)
    assert playground.offer.models["small"].tokens(text) == sentence.tokens
    found = answer(playground, Request(a=text, b="", wa=sentence.start, wb=-1))
    assert len(found["contexts"]) >= SHOWN
    assert sentence.tokens not in [one["tokens"] for one in found["contexts"]]


def test_learned_shares_are_those_of_the_results() -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    table = page[page.index("<!-- weights -->") : page.index("<!-- end weights -->")]
    rows = re.findall(r"^\| (\w+) \| input \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| 3 \|$", table, re.M)
    assert {task: (tuple(map(float, s)), float(gamma)) for task, *s, gamma in rows} == LEARNED


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"a": "", "b": B, "wa": 0, "wb": 0}, "first sentence with a word"),
        ({"a": " ", "b": "", "wa": -1, "wb": -1}, "first sentence with a word"),
        ({"a": A, "b": B, "wa": 9, "wb": 0}, "word of the first sentence, 0 to 8, found 9"),
        ({"a": A, "b": B, "wa": 0, "wb": -1}, "word of the second sentence, 0 to 7, found -1"),
    ],
)
def test_a_word_that_is_not_there(playground: Playground, body: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        answer(playground, Request.model_validate(body))


@pytest.mark.parametrize(
    "word", ["<img src=x onerror=alert(1)>".replace(" ", ""), "x" * 100, "👩‍👩‍👧", "\u202e밥"]
)
def test_any_word_has_a_mix(playground: Playground, word: str) -> None:
    found = answer(playground, Request(a=word, b=word, wa=0, wb=0))
    assert np.isfinite(np.asarray(found["vectors"]["a"])).all()
    assert len(found["contexts"]) >= SHOWN
