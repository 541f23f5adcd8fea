"""One word in several contexts: sentences with a [marked] word, and how near the words' vectors are by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.model import Model, open_model
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent, watched

_MARKED = re.compile(r"(?<!\\)\[(.*?)(?<!\\)\]")


class MarkedSentence(NamedTuple):
    tokens: list[str]
    start: int  # the marked tokens are tokens[start:end]
    end: int

    @property
    def word(self) -> str:
        return " ".join(self.tokens[self.start : self.end])

    @property
    def marked(self) -> str:
        return " ".join([*self.tokens[: self.start], f"[{self.word}]", *self.tokens[self.end :]])


def is_word(token: str) -> bool:
    """Punctuation and numbers are no words."""
    return any(letter.isalpha() for letter in token)


class Unmarked(NamedTuple):
    text: str  # without the brackets
    begin: int  # the marked characters are text[begin:end]
    end: int


def unmarked(sentence: str) -> Unmarked:
    r"""'He sat on the [bank] .' -> its text, and where the mark was. \[ and \] are plain brackets."""
    marks = list(_MARKED.finditer(sentence))
    if len(marks) != 1:
        raise UserError(f"expected one word in [brackets], found {len(marks)} in {sentence!r}")
    mark = marks[0]
    before, word, after = (
        re.sub(r"\\([\[\]])", r"\1", part)
        for part in (sentence[: mark.start()], mark.group(1), sentence[mark.end() :])
    )
    return Unmarked(before + word + after, len(before), len(before + word))


def read_marked(elmo: Elmo, sentence: str) -> MarkedSentence:
    r"""'He sat on the [bank] .' -> its tokens and where the marked one is. \[ and \] are plain brackets.

    The sentence is read as if nothing were marked: the mark in [배]가 means the token 배가, if that is one.
    """
    text, begin, stop = unmarked(sentence)
    spans = elmo.tokenizer.spans(text)
    inside = [i for i, (start, end) in enumerate(spans) if start < stop and end > begin]
    if not inside:
        raise UserError(f"the brackets in {sentence!r} hold no word")
    return MarkedSentence(elmo.tokens(text), inside[0], inside[-1] + 1)


def word_vectors(
    elmo: Elmo, sentences: Sequence[MarkedSentence], on_progress: OnProgress = silent
) -> NDArray[np.float32]:
    """The marked words' vectors [S, L, D]; that of several tokens is their mean."""
    arrays = elmo.stream([sentence.tokens for sentence in sentences])
    watching = watched(arrays, len(sentences), "embedding", on_progress)
    # zip asks for the array first, so that the last one is reported too.
    return np.stack([layers[:, s.start : s.end].mean(axis=1) for layers, s in zip(watching, sentences)])


class Near(NamedTuple):
    """A context that is near to another."""

    cosine: float
    sentence: MarkedSentence

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the context's word, its place from 0, and its sentence as text and by tokens."""
        return {
            "cosine": round(self.cosine, 6),
            "word": self.sentence.word,
            "place": self.sentence.start,
            "sentence": " ".join(self.sentence.tokens),
            "tokens": self.sentence.tokens,
        }


def nearest(
    elmo: Elmo, query: MarkedSentence, sentences: Sequence[Sequence[str]], *, layer: int, most: int = 3
) -> list[Near]:
    """The tokens of `sentences` whose vectors in a layer are nearest to the marked word's: at most one each.

    What is no word (punctuation, numbers) is passed over. For a few thousand sentences: all are compared.
    """
    (own,) = word_vectors(elmo, [query])[:, layer].astype(np.float64)  # [D]
    own /= np.linalg.norm(own) or 1.0
    found = []
    for tokens, vectors in zip(sentences, elmo.stream(sentences, layers=layer)):
        words = [i for i, token in enumerate(tokens) if is_word(token)]
        if list(tokens) == query.tokens or not words:
            continue
        near = vectors[words] @ own / np.maximum(np.linalg.norm(vectors[words], axis=-1), 1e-12)
        place = words[int(near.argmax())]
        found.append(Near(float(near.max()), MarkedSentence(list(tokens), place, place + 1)))
    return sorted(found, key=lambda each: -each.cosine)[:most]


def cosines(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """[S, L, D] -> the cosine of every pair by layer [L, S, S]; 0 beside a vector of zeros."""
    by_layer = vectors.astype(np.float64).swapaxes(0, 1)
    lengths = np.linalg.norm(by_layer, axis=-1, keepdims=True)
    unit = np.divide(by_layer, lengths, out=np.zeros_like(by_layer), where=lengths > 0)
    result: NDArray[np.float64] = unit @ unit.swapaxes(1, 2)
    return result


@dataclass(frozen=True)
class Similarity:
    sentences: tuple[str, ...]  # as they were given
    marked: tuple[MarkedSentence, ...]
    by_layer: NDArray[np.float64]  # [L, S, S], the cosine of every two of them

    def pairs(self) -> Iterator[tuple[int, int]]:
        return combinations(range(len(self.sentences)), 2)

    def to_list(self) -> list[dict[str, Any]]:
        """Ready for JSON: every pair, and its cosine by layer."""
        return [
            {
                "first": self.sentences[i],
                "second": self.sentences[j],
                "cosine": [round(float(cosine), 6) for cosine in self.by_layer[:, i, j]],
            }
            for i, j in self.pairs()
        ]


def compare_words(model: Model, sentences: Sequence[str], *, tokenizer: str | None = None) -> Similarity:
    """How near the [marked] words of two or more sentences are, by layer."""
    if isinstance(sentences, str) or len(sentences) < 2:
        found = "one" if isinstance(sentences, str) or sentences else "none"
        raise UserError(f"expected two sentences or more to compare, found {found}")
    elmo = open_model(model, tokenizer)
    marked = tuple(read_marked(elmo, sentence) for sentence in sentences)
    return Similarity(tuple(sentences), marked, cosines(word_vectors(elmo, marked)))
