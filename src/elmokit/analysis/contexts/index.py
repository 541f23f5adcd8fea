"""An index on disk of a corpus' token vectors: which contexts are nearest to this one, in a given layer.

Few vectors are all compared. From EXACT_BELOW on, those of a layer are also put into partitions by k-means, as
codes of one byte for 8 numbers (product quantization); a search reads the codes of the partitions nearest to the
query, then compares the best with the vectors themselves. benchmarks/index.py measures how fast that is, and how
much of what a full search finds it finds.

Shapes: L layers kept, W words of a sentence, N vectors, D width.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.index_files import (
    EXACT_BELOW,
    SENTENCES,
    TOKENS,
    Context,
    IndexFacts,
    column,
    lancedb_module,
    read_facts,
    write_index,
)
from elmokit.analysis.contexts.marked import MarkedSentence, Near, is_word, word_vectors
from elmokit.embed.arrays import Report, silent
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.text.batches import windows
from elmokit.text.corpus import BadLine, CorpusReader

PROBES = 40  # partitions that a search reads
CANDIDATES = 400  # the best by their codes, which are compared exactly; more where many are wanted


class Rows(NamedTuple):
    """The nearest vectors, the nearest first."""

    sentences: NDArray[np.int64]  # where each one's sentence begins in sentences.jsonl
    places: NDArray[np.int64]
    cosines: NDArray[np.float64]


def check_layers(elmo: Elmo, layers: Sequence[int] | None) -> tuple[int, ...]:
    """The layers in their order, each once; None is all of them."""
    if layers is None:
        return tuple(range(elmo.layers))
    wrong = [layer for layer in layers if not 0 <= layer < elmo.layers]
    if wrong or not layers:
        found = ", ".join(map(str, wrong)) or "none"
        raise UserError(f"layers: this model has layers 0 to {elmo.layers - 1}, found {found}")
    return tuple(sorted(set(layers)))


def read_contexts(
    elmo: Elmo,
    sources: Sequence[str | Path],
    layers: Sequence[int],
    *,
    split: bool = False,
    limit: int | None = None,
    everything: bool = False,
    on_bad_line: BadLine = "refuse",
    report: Report = silent,
) -> Iterator[Context]:
    """The sentences of a corpus, one a line, with their vectors; a window of them is in memory at one time.

    split   lines are paragraphs: split them into sentences first.
    limit   no more than so many vectors, the first ones.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more tokens, found {limit}")
    lines = CorpusReader(sources, on_bad_line)
    wanted: Any = layers[0] if len(layers) == 1 else "all"
    done = 0
    sentences = _sentences(elmo, lines, split, limit, everything)
    for window in windows(sentences, elmo.window_tokens, lambda pair: len(pair[0])):
        arrays = elmo.stream([tokens for tokens, _ in window], layers=wanted)
        for (tokens, places), array in zip(window, arrays):
            kept = array[None] if array.ndim == 2 else array[list(layers)]
            yield Context(tokens, places, unit(kept[:, places]))
            done += len(places)
        share = lines.fraction() if limit is None else done / limit
        report("embedding", done, round(done / share) if share else done)


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


class ContextIndex:
    """An index that is there: `build` makes one, `open` finds it again."""

    def __init__(self, folder: Path, facts: IndexFacts, table: Any) -> None:
        self.folder = folder
        self.facts = facts
        self._table = table

    @classmethod
    def build(
        cls,
        elmo: Elmo,
        sources: Sequence[str | Path],
        folder: str | Path,
        *,
        layers: Sequence[int] | None = None,
        split: bool = False,
        limit: int | None = None,
        everything: bool = False,
        on_bad_line: BadLine = "refuse",
        exact_below: int = EXACT_BELOW,
        overwrite: bool = False,
        report: Report = silent,
    ) -> ContextIndex:
        """Embed a corpus (files, folders, patterns, "-"; one sentence a line) and keep its vectors.

        layers        None is all of them.
        split         lines are paragraphs: split them into sentences first.
        limit         no more than so many vectors, the first ones.
        everything    punctuation and numbers too.
        exact_below   with fewer vectors all are compared, and no partitions are made.
        """
        chosen = check_layers(elmo, layers)
        facts = IndexFacts(
            model=elmo.checkpoint.digest,
            tokenizer=elmo.tokenizer.config,
            layers=chosen,
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
            report=report,
        )
        write_index(Path(folder), facts, contexts, exact_below=exact_below, overwrite=overwrite, report=report)
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
        facts, digest, tokenizer = self.facts, elmo.checkpoint.digest, elmo.tokenizer.config
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
        """The contexts nearest to the marked word's, its own sentence left out, one a sentence at most."""
        self.check(elmo)
        self._check_layer(layer)
        (vectors,) = word_vectors(elmo, [query])  # [layers, D]
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
            found = self._one_a_sentence(rows, most, without)
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
        with _damage(self.folder):
            query = self._table.search(unit(np.asarray(vector)), vector_column_name=column(layer))
            query = query.distance_type("dot").limit(count).select(["sentence", "place", "_distance"])
            if exact or not self.facts.partitions:
                query = query.bypass_vector_index()
            else:
                query = query.nprobes(PROBES).refine_factor(max(4, CANDIDATES // count))
            found = query.to_arrow()
        distances = found["_distance"].to_numpy().astype(np.float64)
        return Rows(found["sentence"].to_numpy(), found["place"].to_numpy(), 1 - distances)

    def _one_a_sentence(self, rows: Rows, most: int, without: Sequence[str]) -> list[Near]:
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
        if layer not in self.facts.layers:
            known = ", ".join(map(str, self.facts.layers))
            raise UserError(f"{self.folder} has vectors of layer {known}, found layer {layer}")


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """What LanceDB raises for files that are not as they were written, in one line."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{folder}: the index cannot be read, build it again: {first}") from None
