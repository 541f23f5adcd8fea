"""Tags of tokens (parts of speech, as in the paper's Table 6, or any others), by a linear probe on each layer.

Files are CoNLL-U, or `token TAB tag` with a blank line between sentences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.model import Model, open_model
from elmokit.analysis.probes.linear import L2, Features, accuracies
from elmokit.analysis.sample import sample
from elmokit.embed.arrays import mean_of_layers, token_vectors
from elmokit.errors import UserError
from elmokit.formats.word_vectors import read_word_vectors
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Exhibit, layer_name, pattern_note, percent
from elmokit.show.figures import draw_probe
from elmokit.text.conll import CONLLU_COLUMNS, CONLLU_FORM, read_tabbed

NAMED = {"upos": 4, "xpos": 5}  # CoNLL-U's columns, from 1


class Tagged(NamedTuple):
    tokens: list[str]
    tags: list[str]


@dataclass(frozen=True)
class TagProbeResult:
    """Accuracies on the development set, 0 to 1."""

    by_layer: tuple[float, ...]  # the token layer first
    mean: float  # of the mean of the layers
    baseline: float  # each word's most frequent tag, the most frequent of all for a word not seen
    vectors: float | None  # of static word vectors, where a file was given
    column: str
    tags: int
    train_sentences: int
    train_tokens: int
    dev_sentences: int
    dev_tokens: int
    unknown: float  # the share of the development tokens that training does not have
    without_vector: float | None  # the share of the development tokens that have no static vector
    l2: float
    seed: int

    def exhibit(self) -> Exhibit:
        """Table 6 of the paper where the tags are parts of speech."""
        of_paper = self.column.lower() in NAMED
        scores = [percent(accuracy) for accuracy in (*self.by_layer, self.mean)]
        names = [*map(layer_name, range(len(self.by_layer))), "mean of the layers"]
        baselines = {"each word's most frequent tag": percent(self.baseline)}
        if self.vectors is not None:
            baselines = {"static word vectors": percent(self.vectors), **baselines}
        return Exhibit(
            name="pos" if self.column.lower() == "upos" else f"tags-{self.column.lower()}",
            title="Parts of speech, by layer" if of_paper else f"Tags of column {self.column}, by layer",
            columns=("representation", "accuracy (%)"),
            rows=tuple(zip([*names, *baselines], [*scores, *baselines.values()])),
            notes=(*self._sizes(), *(self._patterns() if of_paper else ())),
            draw=lambda figure: draw_probe(figure, names, scores, baselines),
            paper="Table 6" if of_paper else "",
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def _sizes(self) -> list[str]:
        notes = [
            f"{self.tags} tags; {self.train_tokens:,} tokens to learn, {self.dev_tokens:,} to test, "
            f"{self.unknown:.1%} of them new",
            f"{self.train_sentences:,} sentences to learn, {self.dev_sentences:,} to test; logistic regression, "
            f"L2 penalty {self.l2:g}, seed {self.seed}",
        ]
        if self.without_vector is not None:
            notes.append(f"{self.without_vector:.1%} of the tokens to test have no static vector")
        return notes

    def _patterns(self) -> list[str]:
        if len(self.by_layer) < 3:
            return [f"The paper's pattern is of three layers; this model has {len(self.by_layer)}."]
        token, first, *_, top = self.by_layer
        number = len(self.by_layer) - 1
        pattern = f"layer 1 at or above layer {number}, both above layer 0"
        found = f"{token:.2%}, {first:.2%}, {top:.2%} for layers 0, 1, {number}"
        return [
            pattern_note(pattern, token < top <= first, found),
            "In the paper, on the Penn Treebank: layer 1 97.3, layer 2 96.8.",
        ]


def probe_tags(
    model: Model,
    train: str | Path,
    dev: str | Path,
    column: str | int = "upos",
    *,
    vectors: str | Path | None = None,
    l2: float = L2,
    limit: int | None = None,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> TagProbeResult:
    """
    column   "upos" or "xpos" of CoNLL-U, or a column's number from 1.
    vectors  a file of static word vectors (GloVe, word2vec, fastText), for one more row: words are looked up in
             lower case, and those without a vector are zeros.
    l2       the penalty on the probe's squared weights.
    limit    use so many training sentences at most, chosen by the seed. The development set is always whole.
    """
    elmo = open_model(model)
    learned, heldout = sample(read_tagged(train, column), limit, seed), read_tagged(dev, column)
    numbers = {tag: i for i, tag in enumerate(sorted({tag for sentence in learned for tag in sentence.tags}))}
    if len(numbers) < 2:
        raise UserError(
            f"{train}: expected two different tags or more in column {column}, found {sorted(numbers)}"
        )
    labels = np.array([numbers[tag] for sentence in learned for tag in sentence.tags])
    gold = np.array([numbers.get(tag, -1) for sentence in heldout for tag in sentence.tags])
    train_words, dev_words = ([token for s in part for token in s.tokens] for part in (learned, heldout))
    static = None if vectors is None else _Static(vectors, train_words + dev_words)
    train_layers = token_vectors(elmo, [s.tokens for s in learned], "embedding train", on_progress)
    dev_layers = token_vectors(elmo, [s.tokens for s in heldout], "embedding dev", on_progress)

    def features() -> Iterator[tuple[Features, Features]]:
        yield from zip(train_layers, dev_layers)
        yield mean_of_layers(train_layers), mean_of_layers(dev_layers)
        if static is not None:
            yield static(train_words), static(dev_words)

    kinds = elmo.layers + 1 + (static is not None)
    scores = accuracies(features(), kinds, labels, gold, len(numbers), l2, on_progress)
    return TagProbeResult(
        by_layer=tuple(scores[: elmo.layers]),
        mean=scores[elmo.layers],
        baseline=majority_accuracy(learned, heldout),
        vectors=None if static is None else scores[-1],
        column=str(column),
        tags=len(numbers),
        train_sentences=len(learned),
        train_tokens=len(train_words),
        dev_sentences=len(heldout),
        dev_tokens=len(dev_words),
        unknown=_share_outside(dev_words, set(train_words)),
        without_vector=None if static is None else _share_outside([w.lower() for w in dev_words], static.rows),
        l2=l2,
        seed=seed,
    )


def majority_accuracy(train: Sequence[Tagged], dev: Sequence[Tagged]) -> float:
    """Each word has the tag that it has most often in `train`; a new word has the most frequent tag of all."""
    by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for token, tag in zip(*sentence):
            by_word[token][tag] += 1
    overall: Counter[str] = sum(by_word.values(), Counter())
    usual = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
    fallback = overall.most_common(1)[0][0]
    pairs = [pair for sentence in dev for pair in zip(*sentence)]
    return sum(usual.get(token, fallback) == tag for token, tag in pairs) / len(pairs)


class _Static:
    """Words -> their static vectors; only those of the words at hand are kept."""

    def __init__(self, path: str | Path, words: Sequence[str]) -> None:
        listed, vectors = read_word_vectors(path)
        needed = {word.lower() for word in words}
        kept = [i for i, word in enumerate(listed) if word in needed]
        self.rows = {listed[i]: row for row, i in enumerate(kept)}
        self.table = np.concatenate([vectors[kept], np.zeros((1, vectors.shape[1]), dtype=np.float32)])

    def __call__(self, words: Sequence[str]) -> NDArray[np.float32]:
        return self.table[[self.rows.get(word.lower(), -1) for word in words]]


def _share_outside(words: Sequence[str], known: set[str] | dict[str, int]) -> float:
    return sum(word not in known for word in words) / len(words)


def read_tagged(path: str | Path, column: str | int = "upos") -> list[Tagged]:
    """The file's sentences."""
    conllu, sentences = read_tabbed(path)
    word, tag = _columns(path, column, len(sentences[0][0].fields), conllu)
    for line, fields in (row for sentence in sentences for row in sentence):
        if not fields[word] or not fields[tag]:
            raise UserError(f"{path}, line {line}: expected a word and a tag, found an empty field")
    return [Tagged(*([row.fields[at] for row in sentence] for at in (word, tag))) for sentence in sentences]


def _columns(path: str | Path, column: str | int, count: int, conllu: bool) -> tuple[int, int]:
    """Where the word and the tag stand, from 0."""
    if count < 2:
        raise UserError(f"{path}: expected CoNLL-U or `token TAB tag` lines, found lines without a tab")
    word = CONLLU_FORM + 1 if conllu else 1  # from 1
    text = str(column).lower()
    if text in NAMED and not conllu:
        raise UserError(
            f"{path}: {text} is a column of CoNLL-U, which has {CONLLU_COLUMNS}; found {count} columns: "
            f"give the tags' column by its number, from 1 to {count}"
        )
    if text not in NAMED and not text.isdigit():
        raise UserError(f"column: expected upos, xpos or a number from 1, found {column!r}")
    number = NAMED[text] if text in NAMED else int(text)
    if not 1 <= number <= count:
        raise UserError(f"{path}: column {number} of the tags is not there: the file has {count}")
    if number == word:
        raise UserError(f"{path}: column {number} holds the words: give that of the tags, such as upos or 4")
    return word - 1, number - 1
