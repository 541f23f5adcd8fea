"""From letters to x_k: a word's ids, the filters that fire, the highway's gates, the vector; also misspelled.

Shapes: F filters in all, P width of x_k, V words of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.analysis.contexts.marked import is_word
from elmokit.embed.embedder import Elmo
from elmokit.embed.similarity import Matrix, unit_rows
from elmokit.errors import UserError
from elmokit.model.char_encoder import CharEncoder, Highway
from elmokit.pretrain.any_model import checkpoint_to_read
from elmokit.serve.play.gallery import Gallery
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences
from elmokit.serve.play.spelling import Spelling, slips, spelling
from elmokit.text.vocabulary import SPECIALS

MOST_WORDS = 6000  # of the vocabulary, the most frequent: read once, in about half a second
FILTERS, NEAREST, BINS = 8, 6, 10
LONGEST = 100  # characters of a word that somebody types


class Request(Sentences):
    """A word by its sentence and its place in it; how it is misspelled, and which word that was meant for."""

    side: Literal["a", "b"]
    place: int = Field(ge=0)
    spelling: str = Field(default="", max_length=LONGEST)
    of: str = Field(default="", max_length=400)


def questions(a: str, b: str, wa: int, wb: int) -> list[dict[str, Any]]:
    """What the page asks, by either word, as long as nobody misspells it: for an export."""
    given = {"a": a, "b": b, "spelling": "", "of": ""}
    return [{**given, "side": side, "place": place} for side, place in (("a", wa), ("b", wb))]


def answer(playground: Playground, request: Request) -> dict[str, Any]:
    _, elmo = playground.model_for(request.a, request.b)
    tokens = elmo.tokens(request.b if request.side == "b" else request.a)
    if request.place >= len(tokens):
        there = f"0 to {len(tokens) - 1}" if tokens else "but it has none"
        raise UserError(f"place: expected a word of the sentence, {there}, found {request.place}")
    word = tokens[request.place]
    likely = slips(word)
    typed = request.spelling if request.of == word else ""
    [other] = elmo.tokens([typed or next(iter(likely.values()), word)])
    own, another = look_into(elmo, [word, other])
    words = words_of(elmo, playground.gallery(request.a, request.b))
    vectors = token_vectors(elmo, [word, other, *likely.values()])
    units = unit_rows(vectors)
    near = words.units @ units[:2].T  # [V, 2]
    return {
        "word": {**own, **_around(words, word, near[:, 0])},
        "other": {**another, **_around(words, other, near[:, 1]), "typed": bool(typed)},
        "cosine": float(units[0] @ units[1]),
        "slips": [
            {"kind": kind, "word": slip, "cosine": float(unit @ units[0])}
            for (kind, slip), unit in zip(likely.items(), units[2:])
        ],
        "by_chance": {
            "mean": float(near[:, 0].mean()),
            "words": len(words.words),
            "random": _random_words(words, word, near[:, 0]),
        },
        "x": [[round(float(number), 4) for number in vector] for vector in vectors[:2]],
    }


def look_into(elmo: Elmo, words: list[str]) -> list[dict[str, Any]]:
    """What happens to each word on its way to x_k, module by module."""
    encoder = checkpoint_to_read(elmo).bilm.encoder
    spelled = [spelling(elmo.mapper, word) for word in words]
    if not isinstance(encoder, CharEncoder) or not encoder.config.filters:
        raise UserError(
            "this model looks words up in a table: it has no letters to show. Serve one that spells them"
        )
    with torch.inference_mode():
        ids = _ids(elmo, words)
        values, windows = convolved(encoder, ids)
        gates, x = [], values
        for highway in encoder.highway:
            assert isinstance(highway, Highway)
            gates.append([_gate(highway, row) for row in x])
            x = highway(x, encoder.weights)
    widths = [width for width, count in encoder.config.filters for _ in range(count)]
    seen = []
    for n, (word, how) in enumerate(zip(words, spelled)):
        assert how is not None  # an encoder with filters has a mapper that spells
        best = values[n].argsort(descending=True, stable=True)[:FILTERS].tolist()
        filters = [
            {"number": i, "width": widths[i], "value": round(float(values[n, i]), 4), "start": int(windows[n, i])}
            for i in best
            if values[n, i] > 0
        ]
        firing = int((values[n] > 0).sum())
        own = {"text": word, "filters": filters, "firing": firing, "of": len(widths)}
        seen.append({**own, **_shown(how, elmo), "gates": [layer[n] for layer in gates]})
    return seen


def convolved(encoder: CharEncoder, ids: Tensor) -> tuple[Tensor, Tensor]:
    """ids [N, W] of words -> what each filter makes of them [N, F], and where its window begins [N, F]."""
    characters = encoder.character_embedding(encoder._characters(ids)).transpose(1, 2)  # [N, E, C]
    activation = F.relu if encoder.config.activation == "relu" else torch.tanh
    best = [convolve(characters).max(dim=-1) for convolve in encoder.convolutions]
    values, windows = (torch.cat([one[part] for one in best], dim=1) for part in (0, 1))
    return activation(values), windows


def _gate(highway: Highway, x: Tensor) -> dict[str, Any]:
    """How much of x [F] is replaced by something new: 1 all of it, 0 nothing."""
    gate = torch.sigmoid(highway.carry(x)).numpy()
    counts, _ = np.histogram(gate, bins=BINS, range=(0.0, 1.0))
    return {"new": float(gate.mean()), "histogram": counts.tolist()}


def _shown(spelled: Spelling, elmo: Elmo) -> dict[str, Any]:
    kind = getattr(elmo.mapper, "kind", "")
    return {
        "kind": kind,  # bytes, jamo or lexicon
        "ids": spelled.ids,
        "letters": spelled.letters,
        "groups": [{"text": text, "start": start, "end": end} for text, start, end in spelled.groups],
        "whole": spelled.whole,
        "room": elmo.mapper.width,
    }


def _ids(elmo: Elmo, words: list[str]) -> Tensor:  # [N, W]
    ids = np.zeros((len(words), elmo.mapper.width), dtype=np.int64)
    for row, word in zip(ids, words):
        elmo.mapper.fill(row, word)
    return torch.from_numpy(ids)


def token_vectors(elmo: Elmo, words: list[str]) -> Matrix:  # [N, P]
    """x_k of each, which layer 0 has twice."""
    encoder: nn.Module = checkpoint_to_read(elmo).bilm.encoder
    with torch.inference_mode():
        x: Matrix = encoder.encode(_ids(elmo, words)).numpy()  # type: ignore[operator]
    return x


@dataclass(frozen=True)
class Words:
    words: list[str]  # V
    units: Matrix  # [V, P]


_words: WeakKeyDictionary[Elmo, Words] = WeakKeyDictionary()


def words_of(elmo: Elmo, gallery: Gallery) -> Words:
    """The most frequent of the model's own words; the bundled sentences' where it has none."""
    if elmo not in _words:
        vocabulary = checkpoint_to_read(elmo).vocabulary
        listed = vocabulary.words if vocabulary else sorted({word for s in gallery.sentences for word in s.tokens})
        words = [word for word in listed if is_word(word) and word not in SPECIALS][:MOST_WORDS]
        _words[elmo] = Words(words, unit_rows(token_vectors(elmo, words)))
    return _words[elmo]


def _around(words: Words, word: str, near: NDArray[np.float32]) -> dict[str, Any]:
    """The words nearest to one, by their cosines [V] to it."""
    order = (i for i in np.argsort(-near, kind="stable") if words.words[i] != word)
    return {"nearest": [{"word": words.words[i], "cosine": float(near[i])} for i, _ in zip(order, range(NEAREST))]}


def _random_words(words: Words, word: str, near: NDArray[np.float32]) -> list[dict[str, Any]]:
    """Two words that have nothing to do with it: by chance, yet the same ones whenever it is asked for."""
    others = [i for i, other in enumerate(words.words) if other != word]
    chosen = np.random.default_rng(crc32(word.encode("utf-8", "replace"))).permutation(others)[:2].tolist()
    return [{"word": words.words[i], "cosine": float(near[i])} for i in chosen]
