"""Two senses of one word: how often the word in a context is nearer to its own sense than to the other, by layer.

A file is a JSON list of

    {"word": "bank", "senses": [{"gloss": "of a river", "contexts": ["He sat on the [bank] .", "..."]},
                                {"gloss": "for money", "contexts": ["She works at a [bank] .", "..."]}]}

with two senses per entry and two contexts or more per sense. Each context is a question: it is answered correctly
if its word's mean cosine to the other contexts of its sense is above that to the contexts of the other sense. A
word is told apart if, over all its contexts, the mean cosine within senses is above that between them. Equal ones
count half, so the token layer, which sees the word alone, has 50 % of both by construction.

Two such files are bundled, 100 English words and 60 Korean ones, under the names en and ko.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.contexts.marked import MarkedSentence, cosines, read_marked, word_vectors
from elmokit.analysis.model import Model, open_model
from elmokit.data import WORD_PAIRS
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Cell, Exhibit, percent
from elmokit.show.figures import draw_bars
from elmokit.text.corpus import LineReader

LIKE = 1e-6  # mean cosines that differ by less are equal


class SensePair(NamedTuple):
    word: str
    glosses: tuple[str, str]
    contexts: tuple[list[str], list[str]]


@dataclass(frozen=True)
class PairScore:
    """Shares of questions that are answered correctly, 0 to 1."""

    word: str
    by_layer: tuple[float, ...]  # the token layer first
    mean: float  # of the mean of the layers
    questions: int
    margins: tuple[float, ...]  # by layer: the mean cosine within senses less that between them
    margin: float  # of the mean of the layers
    glosses: tuple[str, str]


@dataclass(frozen=True)
class PairsProbeResult:
    by_layer: tuple[float, ...]  # of all questions together
    mean: float
    told_apart: tuple[float, ...]  # the share of the words, by layer
    told_apart_mean: float
    questions: int
    words: tuple[PairScore, ...]

    def exhibit(self) -> Exhibit:
        names = [*(f"layer {layer}" for layer in range(len(self.by_layer))), "mean of the layers"]
        totals = {
            "contexts nearer to their own sense": [percent(share) for share in (*self.by_layer, self.mean)],
            "words told apart": [percent(share) for share in (*self.told_apart, self.told_apart_mean)],
        }
        rows: list[tuple[Cell, ...]] = [(row, "", *values) for row, values in totals.items()]
        for score in self.best_first():
            shares = (percent(share) for share in (*score.by_layer, score.mean))
            rows.append((score.word, " / ".join(score.glosses), *shares))
        above = [str(layer) for layer, share in enumerate(self.by_layer) if share > 0.5]
        return Exhibit(
            name="pairs",
            title="Two senses of one word, by layer",
            columns=("word", "senses", *(f"{name} (%)" for name in names)),
            brief=("word", *(f"{name} (%)" for name in names)),
            rows=tuple(rows),
            notes=(
                f"{len(self.words):,} words, {self.questions:,} contexts; nothing is random",
                "Sorted by the mean of the layers: the words that it tells apart best come first, the worst last.",
                "50 is chance, and what layer 0, which sees the word alone, has by construction. Contexts are "
                + (
                    f"above it at layer {', '.join(above)}."
                    if above
                    else "above it at no layer: context does not help."
                ),
            ),
            draw=lambda figure: draw_bars(
                figure, names, totals, xlabel="representation", ylabel="share (%)", lines={"chance": 50.0}
            ),
        )

    def best_first(self) -> list[PairScore]:
        """By the share of the contexts, then by the margin, both of the mean of the layers."""
        return sorted(self.words, key=lambda score: (-score.mean, -score.margin))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def bundled(name: str | Path) -> bool:
    return str(name) in {path.stem for path in WORD_PAIRS.iterdir()}


def pairs_file(name: str | Path) -> Path:
    """A file, or one of the bundled by its name."""
    return WORD_PAIRS / f"{name}.json" if bundled(name) else Path(name)


def probe_pairs(
    model: Model, path: str | Path, *, tokenizer: str | None = None, on_progress: OnProgress = silent
) -> PairsProbeResult:
    """
    path        a file, or en or ko: the bundled words.
    tokenizer   instead of the model's own, for a model given by its name.
    """
    elmo, pairs = open_model(model, tokenizer), read_pairs(path)
    marked = [_marked(elmo, pair, f"{path}, entry {i}") for i, pair in enumerate(pairs, start=1)]
    vectors = word_vectors(elmo, [sentence for sentences in marked for sentence in sentences], on_progress)
    words: list[PairScore] = []
    correct, apart, at = [], [], 0
    for pair, sentences in zip(pairs, marked):
        own = vectors[at : at + len(sentences)]  # [S, L, D]
        at += len(sentences)
        answers = correct_answers(own, len(pair.contexts[0]))
        correct.append(answers)
        apart.append(told_apart(own, len(pair.contexts[0])))
        *by_layer, mean = margins(own, len(pair.contexts[0])).tolist()
        words.append(
            PairScore(pair.word, *_shares(answers), answers.shape[1], tuple(by_layer), mean, pair.glosses)
        )
    answers = np.concatenate(correct, axis=1)
    return PairsProbeResult(*_shares(answers), *_shares(np.stack(apart, axis=1)), answers.shape[1], tuple(words))


def correct_answers(vectors: NDArray[np.float32], first: int) -> NDArray[np.float64]:
    """[S, L, D], the first sense's contexts before the second's -> [L + 1, S]: 1 correct, 0 wrong, 0.5 equal.

    The last row is that of the mean of the layers.
    """
    by_layer, own, other = _cosines(vectors, first)
    return _above(
        (by_layer * own).sum(axis=2) / own.sum(axis=1), (by_layer * other).sum(axis=2) / other.sum(axis=1)
    )


def told_apart(vectors: NDArray[np.float32], first: int) -> NDArray[np.float64]:
    """As `correct_answers`, of the word as a whole: [S, L, D] -> [L + 1]."""
    return _above(margins(vectors, first), np.zeros(1))


def margins(vectors: NDArray[np.float32], first: int) -> NDArray[np.float64]:
    """The mean cosine within senses less that between them: [S, L, D] -> [L + 1]. Told apart is above 0."""
    by_layer, own, other = _cosines(vectors, first)
    within = (by_layer * own).sum(axis=(1, 2)) / own.sum()
    between = (by_layer * other).sum(axis=(1, 2)) / other.sum()
    result: NDArray[np.float64] = within - between
    return result


def _cosines(
    vectors: NDArray[np.float32], first: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """[L + 1, S, S], the mean of the layers last; and which pairs are of one sense, which of two [S, S]."""
    by_layer = cosines(np.concatenate([vectors, vectors.mean(axis=1, keepdims=True)], axis=1))
    second = np.arange(len(vectors)) >= first
    same = second[:, None] == second[None, :]
    return by_layer, same & ~np.eye(len(vectors), dtype=bool), ~same


def _above(near: NDArray[np.float64], far: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(near - far) < LIKE, 0.5, (near > far).astype(np.float64))


def _shares(answers: NDArray[np.float64]) -> tuple[tuple[float, ...], float]:
    *by_layer, mean = (float(share) for share in answers.mean(axis=1))
    return tuple(by_layer), mean


def _marked(elmo: Elmo, pair: SensePair, where: str) -> list[MarkedSentence]:
    """All contexts, those of the first sense first; the marked word must be one and the same."""
    try:
        sentences = [read_marked(elmo, context) for contexts in pair.contexts for context in contexts]
    except UserError as error:
        raise UserError(f"{where} ({pair.word!r}): {error}") from None
    for sentence in sentences:
        if sentence.word != sentences[0].word:
            case = " (they differ in case only)" if sentence.word.lower() == sentences[0].word.lower() else ""
            raise UserError(
                f"{where} ({pair.word!r}): expected the same word in [brackets] in all contexts, as the model's "
                f"tokenizer reads them, found {sentences[0].word!r} and {sentence.word!r}{case}: else the layers "
                "could tell the senses apart by the word itself"
            )
    return sentences


def read_pairs(path: str | Path) -> list[SensePair]:
    with LineReader(pairs_file(path)) as lines:
        text = "\n".join(line.text for line in lines)
    try:
        entries = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: expected a JSON list of words with two senses each, found {text[:40]!r}")
    return [_pair(entry, f"{path}, entry {i}") for i, entry in enumerate(entries, start=1)]


def _pair(entry: Any, where: str) -> SensePair:
    if not isinstance(entry, dict) or not isinstance(entry.get("word"), str):
        raise UserError(f'{where}: expected {{"word": ..., "senses": [..., ...]}}, found {str(entry)[:60]}')
    where = f"{where} ({entry['word']!r})"
    senses = entry.get("senses")
    if not isinstance(senses, list) or len(senses) != 2:
        found = len(senses) if isinstance(senses, list) else "none"
        raise UserError(f"{where}: expected exactly two senses, found {found}")
    for sense in senses:
        contexts = sense.get("contexts") if isinstance(sense, dict) else None
        if not isinstance(contexts, list) or not all(isinstance(context, str) for context in contexts):
            raise UserError(f'{where}: expected {{"gloss": ..., "contexts": [...]}}, found {str(sense)[:60]}')
        if not isinstance(sense.get("gloss"), str):
            raise UserError(f"{where}: expected a gloss for each sense, found none in {str(sense)[:60]}")
        if len(contexts) < 2:
            raise UserError(f"{where}: expected two contexts or more per sense, found {len(contexts)}")
    first, second = senses
    return SensePair(entry["word"], (first["gloss"], second["gloss"]), (first["contexts"], second["contexts"]))
