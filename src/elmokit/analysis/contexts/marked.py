"""One word in several contexts: sentences with a [marked] word, and how near the words' vectors are by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError

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


def read_marked(elmo: Elmo, sentence: str) -> MarkedSentence:
    r"""'He sat on the [bank] .' -> its tokens and where the marked one is. \[ and \] are plain brackets.

    The sentence is read as if nothing were marked: the mark in [배]가 means the token 배가, if that is one.
    """
    marks = list(_MARKED.finditer(sentence))
    if len(marks) != 1:
        raise UserError(f"expected one word in [brackets], found {len(marks)} in {sentence!r}")
    mark = marks[0]
    before, word, after = (
        re.sub(r"\\([\[\]])", r"\1", part)
        for part in (sentence[: mark.start()], mark.group(1), sentence[mark.end() :])
    )
    text, begin, stop = before + word + after, len(before), len(before + word)
    spans = elmo.tokenizer.spans(text)
    inside = [i for i, (start, end) in enumerate(spans) if start < stop and end > begin]
    if not inside:
        raise UserError(f"the brackets in {sentence!r} hold no word")
    return MarkedSentence(elmo.tokens(text), inside[0], inside[-1] + 1)


def word_vectors(elmo: Elmo, sentences: Sequence[MarkedSentence]) -> NDArray[np.float32]:
    """The marked words' vectors [S, layers, D]; that of several tokens is their mean."""
    layers = elmo.embed([sentence.tokens for sentence in sentences])
    return np.stack([array[:, s.start : s.end].mean(axis=1) for s, array in zip(sentences, layers)])


class Near(NamedTuple):
    cosine: float
    sentence: MarkedSentence


def nearest(
    elmo: Elmo, query: MarkedSentence, sentences: Sequence[Sequence[str]], *, layer: int, most: int = 3
) -> list[Near]:
    """The tokens of `sentences` whose vectors in a layer are nearest to the marked word's, one a sentence at most.

    What is no word (punctuation, numbers) is passed over. For a few thousand sentences: all are compared.
    """
    (wanted,) = word_vectors(elmo, [query])[:, layer].astype(np.float64)
    wanted /= np.linalg.norm(wanted) or 1.0
    found = []
    for tokens, vectors in zip(sentences, elmo.stream(sentences, layers=layer)):
        words = [i for i, token in enumerate(tokens) if is_word(token)]
        if list(tokens) == query.tokens or not words:
            continue
        near = vectors[words] @ wanted / np.maximum(np.linalg.norm(vectors[words], axis=-1), 1e-12)
        place = words[int(near.argmax())]
        found.append(Near(float(near.max()), MarkedSentence(list(tokens), place, place + 1)))
    return sorted(found, key=lambda each: -each.cosine)[:most]


def cosines(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """[S, layers, D] -> the cosine of every pair by layer [layers, S, S]; 0 beside a vector of zeros."""
    by_layer = vectors.astype(np.float64).swapaxes(0, 1)
    lengths = np.linalg.norm(by_layer, axis=-1, keepdims=True)
    unit = np.divide(by_layer, lengths, out=np.zeros_like(by_layer), where=lengths > 0)
    result: NDArray[np.float64] = unit @ unit.swapaxes(1, 2)
    return result
