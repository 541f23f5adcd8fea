"""The words of a corpus in their sentences, with their unit vectors by layer.

Shapes: L layers chosen, W words of a sentence, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.marked import is_word
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, Progress, silent
from elmokit.text.batches import windows
from elmokit.text.columns import Columns
from elmokit.text.corpus import BadLine, CorpusReader


class Context(NamedTuple):
    """A sentence, and the unit vectors of those of its tokens that are compared."""

    tokens: list[str]
    places: list[int]  # W of them
    layers: NDArray[np.float32]  # [L, W, D]


def check_layers(elmo: Elmo, which_layers: Sequence[int] | None) -> tuple[int, ...]:
    """The chosen layers in their order, each once; None is all of them."""
    if which_layers is None:
        return tuple(range(elmo.layers))
    wrong = [layer for layer in which_layers if not 0 <= layer < elmo.layers]
    if wrong or not which_layers:
        found = ", ".join(map(str, wrong)) or "none"
        raise UserError(f"layers: this model has layers 0 to {elmo.layers - 1}, found {found}")
    return tuple(sorted(set(which_layers)))


def read_contexts(
    elmo: Elmo,
    sources: Sequence[str | Path],
    which_layers: Sequence[int],
    *,
    split: bool = False,
    limit: int | None = None,
    everything: bool = False,
    on_bad_line: BadLine = "refuse",
    columns: Columns | None = None,
    on_progress: OnProgress = silent,
) -> Iterator[Context]:
    """The sentences of a corpus, one per line, with their vectors; a window of them is in memory at one time.

    split     lines are paragraphs: split them into sentences first.
    limit     no more than so many vectors, the first ones.
    columns   where the text of tables is.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more tokens, found {limit}")
    lines = CorpusReader(sources, on_bad_line, columns)
    asked: Any = which_layers[0] if len(which_layers) == 1 else "all"
    done = 0
    sentences = _sentences(elmo, lines, split, limit, everything)
    for window in windows(sentences, elmo.window_tokens, lambda pair: len(pair[0])):
        arrays = elmo.stream([tokens for tokens, _ in window], layers=asked)
        for (tokens, places), array in zip(window, arrays):
            layers = array[None] if array.ndim == 2 else array[list(which_layers)]  # [L, T, D]
            yield Context(tokens, places, unit(layers[:, places]))
            done += len(places)
        share = lines.fraction() if limit is None else done / limit
        on_progress(Progress("embedding", done, round(done / share) if share else done))


def _sentences(
    elmo: Elmo, lines: CorpusReader, split: bool, limit: int | None, everything: bool
) -> Iterator[tuple[list[str], list[int]]]:
    left = limit
    texts = (text for line in lines for text in (elmo.tokenizer.sentences(line.text) if split else [line.text]))
    for text in texts:
        tokens = elmo.tokens(text)
        places = [i for i, token in enumerate(tokens) if everything or is_word(token)][:left]
        if places:
            yield tokens, places
        if left is not None:
            left -= len(places)
            if left == 0:
                return


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Each of length 1, so that dot products are cosines; zeros stay zeros."""
    vectors = vectors.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: NDArray[np.float32] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return result
