"""A word's nearest neighbours, as in the paper's Table 4: static vectors' beside the biLM's contexts, by layer.

Static vectors know one word of all its senses; the biLM's upper layers find contexts in which it means the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.corpus import check_layers, read_contexts, unit
from elmokit.analysis.contexts.index import ContextIndex, open_index
from elmokit.analysis.contexts.marked import MarkedSentence, Near, read_marked, word_vectors
from elmokit.analysis.model import Model, open_model
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError, listed_paths
from elmokit.formats.word_vectors import read_word_vectors
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Cell, Exhibit, layer_name
from elmokit.text.columns import Column, Columns, Format, asked_columns
from elmokit.text.corpus import BadLine


class NearWord(NamedTuple):
    cosine: float
    word: str


@dataclass(frozen=True)
class Neighbours:
    query: MarkedSentence
    static: tuple[NearWord, ...] | None  # None without a file; none of them where the file lacks the word
    which_layers: tuple[int, ...]
    contexts: tuple[tuple[Near, ...], ...]  # of each layer, the nearest first
    compared: int  # vectors of a layer

    def exhibit(self, number: int = 1) -> Exhibit:
        """Table 4: a row per neighbour; `number` tells several of them apart by their files' names."""
        rows: list[tuple[Cell, ...]] = [
            ("static vectors", rank, near.word, near.cosine, "") for rank, near in enumerate(self.static or (), 1)
        ]
        for layer, contexts in zip(self.which_layers, self.contexts):
            for rank, near in enumerate(contexts, 1):
                rows.append((layer_name(layer), rank, near.sentence.word, near.cosine, near.sentence.marked))
        return Exhibit(
            name=f"neighbours-{number}",
            title=self.query.marked,
            paper="Table 4",
            columns=("source", "rank", "neighbour", "cosine", "its sentence"),
            rows=tuple(rows),
            notes=(
                f"{self.compared:,} words compared by cosine; one per sentence, the query's own left out.",
                *(() if self.static is None or self.static else (f"No static vector for {self.query.word}.",)),
            ),
            digits=3,
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        static = (
            None if self.static is None else [{"word": n.word, "cosine": round(n.cosine, 6)} for n in self.static]
        )
        by_layer = [
            {"layer": layer, "contexts": [near.to_dict() for near in contexts]}
            for layer, contexts in zip(self.which_layers, self.contexts)
        ]
        query = self.query
        return {
            "query": query.tokens,
            "word": query.word,
            "place": query.start,
            "static": static,
            "layers": by_layer,
            "compared": self.compared,
        }


def neighbours(
    model: Model,
    sentence: str,
    *,
    corpus: Sequence[str | Path] = (),
    index: str | Path | ContextIndex | None = None,
    vectors: str | Path | None = None,
    which_layers: Sequence[int] | None = None,
    most: int = 5,
    split: bool = False,
    limit: int | None = None,
    tokenizer: str | None = None,
    on_bad_line: BadLine = "refuse",
    text_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    on_progress: OnProgress = silent,
) -> Neighbours:
    """The contexts nearest to the [marked] word's: of a corpus, or of an index that was built from one.

    corpus         files (also compressed), folders or patterns, one sentence per line.
    index          a folder that `ContextIndex.build` made, or an open one.
    vectors        a file of static word vectors (GloVe, word2vec, fastText), whose neighbours stand beside them.
    which_layers   by default all, or all that the index has.
    split          lines of the corpus are paragraphs: split them into sentences first.
    limit          no more than so many words of the corpus, the first ones.
    tokenizer      instead of the model's own, for a corpus and a model given by its name.
    """
    if (index is None) == (not corpus):
        raise UserError("where to look: expected either a corpus (--corpus TEXT) or an index (--index FOLDER)")
    if index is not None:
        if limit is not None or tokenizer is not None or split:
            raise UserError("split, limit and tokenizer go with a corpus: an index has its own")
        elmo, opened = open_index(model, index)
        query = read_marked(elmo, sentence)
        return index_neighbours(elmo, query, opened, which_layers=which_layers, most=most, vectors=vectors)
    elmo = open_model(model, tokenizer)
    return corpus_neighbours(
        elmo,
        read_marked(elmo, sentence),
        corpus,
        which_layers=which_layers,
        most=most,
        vectors=vectors,
        split=split,
        limit=limit,
        on_bad_line=on_bad_line,
        columns=asked_columns(text_column, None, header, table_format),
        on_progress=on_progress,
    )


def corpus_neighbours(
    elmo: Elmo,
    query: MarkedSentence,
    sources: Sequence[str | Path],
    *,
    which_layers: Sequence[int] | None = None,
    most: int = 5,
    vectors: str | Path | None = None,
    split: bool = False,
    limit: int | None = None,
    on_bad_line: BadLine = "refuse",
    columns: Columns | None = None,
    on_progress: OnProgress = silent,
) -> Neighbours:
    """Every word of a corpus is embedded and compared; only the nearest are kept. For more than one question
    of a large corpus, build a `ContextIndex`."""
    _check_most(most)
    chosen = check_layers(elmo, which_layers)
    static = None if vectors is None else static_neighbours(vectors, query, most)
    own = unit(word_vectors(elmo, [query])[0, list(chosen)])  # [L, D]
    best: list[list[Near]] = [[] for _ in chosen]
    compared = 0
    contexts = read_contexts(
        elmo,
        sources,
        chosen,
        split=split,
        limit=limit,
        on_bad_line=on_bad_line,
        columns=columns,
        on_progress=on_progress,
    )
    for context in contexts:
        compared += len(context.places)
        if context.tokens == query.tokens:
            continue
        cosines = np.einsum("lwd,ld->lw", context.layers, own)
        for near, row in zip(best, cosines):
            place = context.places[int(row.argmax())]
            _keep(near, Near(float(row.max()), MarkedSentence(context.tokens, place, place + 1)), most)
    if not compared:
        raise UserError(f"{listed_paths(sources)}: expected text with words to compare, found none")
    return Neighbours(query, static, chosen, tuple(map(tuple, best)), compared)


def index_neighbours(
    elmo: Elmo,
    query: MarkedSentence,
    index: ContextIndex,
    *,
    which_layers: Sequence[int] | None = None,
    most: int = 5,
    vectors: str | Path | None = None,
    exact: bool = False,
) -> Neighbours:
    """As `corpus_neighbours`, from an index of the corpus; by default of every layer that the index has."""
    _check_most(most)
    chosen = check_layers(elmo, index.facts.which_layers if which_layers is None else which_layers)
    static = None if vectors is None else static_neighbours(vectors, query, most)
    index.check(elmo)
    (own,) = word_vectors(elmo, [query])  # [L, D]
    contexts = tuple(
        tuple(index.nearest(own[layer], layer, most, without=query.tokens, exact=exact)) for layer in chosen
    )
    return Neighbours(query, static, chosen, contexts, index.facts.vectors)


def static_neighbours(path: str | Path, query: MarkedSentence, most: int) -> tuple[NearWord, ...]:
    """The words nearest to the marked one by a file's vectors, itself left out; of several tokens, to their mean.

    A token is looked up as it is written, else in lower case: most files know only that.
    """
    words, table = read_word_vectors(path)
    rows = {word: row for row, word in enumerate(words)}
    marked = query.tokens[query.start : query.end]
    forms = [[rows[form] for form in (token, token.lower()) if form in rows] for token in marked]
    asked = [known[0] for known in forms if known]
    if not asked:
        return ()
    without = sorted({row for known in forms for row in known})
    return _nearest_words(words, table, asked, without, most)


def _nearest_words(
    words: list[str], table: NDArray[np.float32], asked: list[int], without: list[int], most: int
) -> tuple[NearWord, ...]:
    lengths = np.linalg.norm(table, axis=1)  # not `unit`: a copy of the file's table is gigabytes
    cosines = table @ unit(table[asked].mean(axis=0)) / np.maximum(lengths, 1e-12)
    cosines[without] = -np.inf
    order = np.argsort(-cosines, kind="stable")[: min(most, len(words) - len(without))]
    return tuple(NearWord(float(cosines[row]), words[row]) for row in order)


def _keep(best: list[Near], new: Near, most: int) -> None:
    """Put it among the best, if it is one of them; a line that the corpus has twice is one sentence."""
    if len(best) == most and new.cosine <= best[-1].cosine:
        return
    if any(near.sentence.tokens == new.sentence.tokens for near in best):
        return
    best.append(new)
    best.sort(key=lambda near: -near.cosine)  # stable: of equals the first in the text comes first
    del best[most:]


def _check_most(most: int) -> None:
    if most < 1:
        raise UserError(f"top: expected 1 or more, found {most}")
