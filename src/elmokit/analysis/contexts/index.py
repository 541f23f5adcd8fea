"""An index on disk of a corpus' token vectors: which contexts are nearest to this one, in a given layer.

Few vectors are all compared. From EXACT_BELOW on, those of a layer are also put into partitions by k-means, as
codes of one byte for 8 numbers (product quantization); a search reads the codes of the partitions nearest to the
query, then compares the best with the vectors themselves. benchmarks/index.py measures how fast that is, and how
much of what a full search finds it finds.

Shapes: L layers kept, D width.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.corpus import check_layers, read_contexts, unit
from elmokit.analysis.contexts.index_files import (
    EXACT_BELOW,
    SENTENCES,
    TOKENS,
    IndexFacts,
    column,
    lancedb_module,
    read_facts,
    write_index,
)
from elmokit.analysis.contexts.marked import MarkedSentence, Near, read_marked, word_vectors
from elmokit.analysis.model import Model, open_model
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent
from elmokit.text.columns import Column, Format, asked_columns
from elmokit.text.corpus import BadLine

PROBES = 40  # partitions that a search reads
CANDIDATES = 400  # the best by their codes, which are compared exactly; more where many are asked for


class Rows(NamedTuple):
    """The nearest vectors, the nearest first."""

    sentences: NDArray[np.int64]  # where each one's sentence begins in sentences.jsonl
    places: NDArray[np.int64]
    cosines: NDArray[np.float64]


class ContextIndex:
    """An index on disk: `build` makes one, `open` finds it again."""

    def __init__(self, folder: Path, facts: IndexFacts, table: Any) -> None:
        self.folder = folder
        self.facts = facts
        self._table = table

    @classmethod
    def build(
        cls,
        model: Model,
        sources: Sequence[str | Path],
        folder: str | Path,
        *,
        which_layers: Sequence[int] | None = None,
        split: bool = False,
        limit: int | None = None,
        everything: bool = False,
        tokenizer: str | None = None,
        on_bad_line: BadLine = "refuse",
        text_column: Column | None = None,
        header: bool | None = None,
        table_format: Format | None = None,
        exact_below: int = EXACT_BELOW,
        overwrite: bool = False,
        on_progress: OnProgress = silent,
    ) -> ContextIndex:
        """Embed a corpus (files, folders, patterns, "-"; one sentence per line) and keep its vectors.

        which_layers  None is all of them.
        split         lines are paragraphs: split them into sentences first.
        limit         no more than so many vectors, the first ones.
        everything    punctuation and numbers too.
        tokenizer     instead of the model's own, for a model given by its name.
        text_column   of tables (.csv, .tsv, .jsonl): by name or number; header, table_format as of `embed_file`.
        exact_below   with fewer vectors all are compared, and no partitions are made.
        """
        elmo = open_model(model, tokenizer)
        chosen = check_layers(elmo, which_layers)
        facts = IndexFacts(
            model=elmo.digest,
            tokenizer=elmo.tokenizer.config,
            which_layers=chosen,
            width=elmo.width,
            sources=tuple(map(str, sources)),
            split=split,
            everything=everything,
        )
        contexts = read_contexts(
            elmo,
            sources,
            chosen,
            split=split,
            limit=limit,
            everything=everything,
            on_bad_line=on_bad_line,
            columns=asked_columns(text_column, None, header, table_format),
            on_progress=on_progress,
        )
        write_index(
            Path(folder), facts, contexts, exact_below=exact_below, overwrite=overwrite, on_progress=on_progress
        )
        return cls.open(folder, elmo)

    @classmethod
    def open(cls, folder: str | Path, elmo: Elmo | None = None) -> ContextIndex:
        """`elmo`, if given, must be what the index was built with: vectors of two models do not compare."""
        folder = Path(folder)
        facts = read_facts(folder)
        lancedb = lancedb_module()
        with _damage(folder):
            table = lancedb.connect(str(folder)).open_table(TOKENS)
            rows = table.count_rows()
        if rows != facts.vectors:
            raise UserError(f"{folder}: expected {facts.vectors:,} vectors, found {rows:,}: build the index again")
        index = cls(folder, facts, table)
        if elmo is not None:
            index.check(elmo)
        return index

    def check(self, elmo: Elmo) -> None:
        """Refuse a model whose vectors are not those of the index."""
        facts, digest, tokenizer = self.facts, elmo.digest, elmo.tokenizer.config
        if facts.model != digest:
            raise UserError(
                f"{self.folder} was built with another model (its digest is {facts.model[:12]}, this one's is "
                f"{digest[:12]}): open it with that model, or build an index with this one"
            )
        if facts.tokenizer != tokenizer:
            raise UserError(
                f"{self.folder} was built with the tokenizer {facts.tokenizer.name!r} "
                f"({facts.tokenizer.normalize}), found {tokenizer.name!r} ({tokenizer.normalize}): use the same"
            )

    def search(
        self, elmo: Elmo, query: MarkedSentence, layer: int, most: int = 10, *, exact: bool = False
    ) -> list[Near]:
        """The contexts nearest to the marked word's, its own sentence left out, at most one per sentence."""
        self.check(elmo)
        self._check_layer(layer)
        (vectors,) = word_vectors(elmo, [query])  # [L, D]
        return self.nearest(vectors[layer], layer, most, without=query.tokens, exact=exact)

    def nearest(
        self, vector: NDArray[Any], layer: int, most: int, *, without: Sequence[str] = (), exact: bool = False
    ) -> list[Near]:
        """As `search`, for a vector [D]; `without` are the tokens of the sentence to leave out."""
        if most < 1:
            raise UserError(f"top: expected 1 or more, found {most}")
        exact = exact or not self.facts.partitions
        count = min(4 * most, self.facts.vectors)
        while True:
            rows = self.rows(vector, layer, count, exact=exact)
            found = self._one_per_sentence(rows, most, without)
            if len(found) == most or (count == self.facts.vectors and exact):
                return found
            # Many tokens of the same few sentences; or the partitions that were read hold no more.
            exact = exact or len(rows.cosines) < count or count == self.facts.vectors
            count = min(4 * count, self.facts.vectors)

    def rows(self, vector: NDArray[Any], layer: int, count: int, *, exact: bool = False) -> Rows:
        """The `count` vectors of a layer that are nearest to one [D], whatever their sentences."""
        self._check_layer(layer)
        if np.shape(vector) != (self.facts.width,):
            raise UserError(f"expected a vector of {self.facts.width} numbers, found {np.shape(vector)}")
        near_to = unit(np.asarray(vector))
        with _damage(self.folder):
            query = self._table.search(near_to, vector_column_name=column(layer))
            query = query.distance_type("dot").limit(count).select(["sentence", "place", "_distance"])
            if exact or not self.facts.partitions:
                query = query.bypass_vector_index()
            else:
                query = query.nprobes(PROBES).refine_factor(max(4, CANDIDATES // count))
            found = query.to_arrow()
        distances = found["_distance"].to_numpy().astype(np.float64)
        return Rows(found["sentence"].to_numpy(), found["place"].to_numpy(), 1 - distances)

    def _one_per_sentence(self, rows: Rows, most: int, without: Sequence[str]) -> list[Near]:
        found: dict[tuple[str, ...], Near] = {}  # a line that the corpus has twice is one sentence
        with (self.folder / SENTENCES).open("rb") as file:
            for begin, place, cosine in zip(*(column.tolist() for column in rows)):
                tokens = self._tokens(file, begin)
                if tokens != list(without) and tuple(tokens) not in found:
                    found[tuple(tokens)] = Near(cosine, MarkedSentence(tokens, place, place + 1))
                if len(found) == most:
                    break
        return list(found.values())

    def _tokens(self, file: BinaryIO, begin: int) -> list[str]:
        with _damage(self.folder):
            file.seek(begin)
            tokens: list[str] = json.loads(file.readline())
        return tokens

    def _check_layer(self, layer: int) -> None:
        if layer not in self.facts.which_layers:
            known = ", ".join(map(str, self.facts.which_layers))
            raise UserError(f"{self.folder} has vectors of layer {known}, found layer {layer}")


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """What LanceDB raises for files that are not as they were written, in one line."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder}: the index cannot be read, build it again: {first}") from None


def open_index(model: Model, index: str | Path | ContextIndex) -> tuple[Elmo, ContextIndex]:
    """An index, and the model to search it with; one given by its name is opened with the index's tokenizer."""
    facts = index.facts if isinstance(index, ContextIndex) else read_facts(index)
    elmo = open_model(model, facts.tokenizer if isinstance(model, str | Path) else None)
    if isinstance(index, ContextIndex):
        index.check(elmo)
        return elmo, index
    return elmo, ContextIndex.open(index, elmo)


class SearchResult(NamedTuple):
    query: MarkedSentence
    layer: int
    contexts: list[Near]  # the nearest first

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "query": self.query.tokens,
            "word": self.query.word,
            "layer": self.layer,
            "contexts": [near.to_dict() for near in self.contexts],
        }


def search_index(
    model: Model,
    index: str | Path | ContextIndex,
    sentence: str,
    *,
    layer: int | None = None,
    most: int = 10,
    exact: bool = False,
) -> SearchResult:
    """The contexts of an index nearest to the [marked] word's, at most one per sentence.

    layer   by default the topmost that the index has.
    exact   compare every vector: slower, and misses none.
    """
    elmo, opened = open_index(model, index)
    query = read_marked(elmo, sentence)
    layer = opened.facts.which_layers[-1] if layer is None else layer
    return SearchResult(query, layer, opened.search(elmo, query, layer, most, exact=exact))
