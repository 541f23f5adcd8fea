"""Word sense disambiguation by the nearest sense, as in the paper's Table 5, for each layer.

A sense's vector is the mean of its occurrences in the training text. A test word takes, of the senses that its
lemma and part of speech have in training, the one whose vector is nearest by cosine; where training has none,
WordNet's first sense. Of senses that are equally near, as at layer 0, the most frequent one is taken.

Shapes: L layers, S senses, D width.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.probes.sense_corpus import (
    Instance,
    SenseCorpus,
    SenseSentence,
    read_senses,
    read_wordnet_index,
)
from elmokit.embed.arrays import Report, sample, silent, watched
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit, draw_bars, layer_name, pattern_note, percent

LIKE = 1e-6  # cosines that differ by less are equal

Lemma = tuple[str, str]  # and its part of speech


class Score(NamedTuple):
    """As the framework's scorer counts: precision over the answers, recall over all instances."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class SenseProbeResult:
    by_layer: tuple[Score, ...]  # the token layer first
    mean: Score  # of the mean of the layers
    most_frequent: Score  # the most frequent sense in training, else WordNet's first
    first_sense: Score | None  # WordNet's first sense, where its index was given
    test: str
    instances: int
    unseen: int  # instances whose lemma and part of speech training does not have
    train_sentences: int
    train_instances: int
    senses: int  # of the training text
    seed: int

    def exhibit(self) -> Exhibit:
        return senses_exhibit([self])

    def _patterns(self) -> list[str]:
        name, score = "most frequent sense in training", self.most_frequent
        if self.first_sense is not None:
            name, score = "first sense of WordNet", self.first_sense
        top, number = self.by_layer[-1].f1, len(self.by_layer) - 1
        side = "above" if top > score.f1 else "not above"
        notes = [f"{self.test}: layer {number} ({top:.2%}) is {side} the {name} ({score.f1:.2%})"]
        if len(self.by_layer) >= 3:
            token, first = self.by_layer[0].f1, self.by_layer[1].f1
            pattern = f"layer {number} above layer 1 above layer 0"
            found = f"{token:.2%}, {first:.2%}, {top:.2%} for layers 0, 1, {number}"
            notes.insert(0, f"{self.test}: {pattern_note(pattern, token < first < top, found)}")
        return notes


def senses_exhibit(results: Sequence[SenseProbeResult]) -> Exhibit:
    """Table 5 of the paper: one probe's results, a column a test set."""
    if not results:
        raise UserError("expected the results of one test set or more, found none")
    one = results[0]
    names = [*map(layer_name, range(len(one.by_layer))), "mean of the layers"]
    scores = {
        name: [percent((*result.by_layer, result.mean)[row].f1) for result in results]
        for row, name in enumerate(names)
    }
    baselines = {"most frequent sense in training": [percent(result.most_frequent.f1) for result in results]}
    if all(result.first_sense is not None for result in results):
        baselines["first sense of WordNet"] = [percent(r.first_sense.f1) for r in results if r.first_sense]
    tests = [result.test for result in results]
    return Exhibit(
        name="wsd",
        title="Word senses by the nearest sense in training, by layer",
        columns=("representation", *(f"{test}: F1 (%)" for test in tests)),
        rows=tuple((name, *values) for name, values in (scores | baselines).items()),
        notes=(
            f"{one.train_sentences:,} training sentences, {one.train_instances:,} instances, "
            f"{one.senses:,} senses; seed {one.seed}",
            *(f"{r.test}: {r.instances:,} instances, {r.unseen:,} of a lemma not in training" for r in results),
            *(note for result in results for note in result._patterns()),
            "In the paper, on all test sets: first sense 65.9, layer 1 67.4, layer 2 69.0.",
        ),
        draw=lambda figure: draw_bars(figure, tests, scores, xlabel="test set", ylabel="F1 (%)", lines=baselines),
        paper="Table 5",
    )


class SenseProbe:
    """The senses of a training text: read once, asked for any number of test sets."""

    def __init__(
        self,
        elmo: Elmo,
        train: SenseCorpus,
        first_senses: Mapping[Lemma, str] | None = None,
        *,
        limit: int | None = None,
        seed: int = 0,
        report: Report = silent,
    ) -> None:
        self.elmo, self.first_senses, self.seed = elmo, first_senses or {}, seed
        self.sentences = sample([s for s in train.sentences if s.instances], limit, seed)
        counts: defaultdict[Lemma, Counter[str]] = defaultdict(Counter)
        for sentence in self.sentences:
            for instance in sentence.instances:
                counts[instance.lemma, instance.pos].update(train.keys[instance.id])
        # The frequent first; of equals, that which comes first in the text.
        self.senses = {lemma: [sense for sense, _ in c.most_common()] for lemma, c in counts.items()}
        self._rows = {sense: row for row, sense in enumerate(dict.fromkeys(s for c in counts.values() for s in c))}
        sums = np.zeros((elmo.layers + 1, len(self._rows), elmo.width), dtype=np.float32)
        for instance, vectors in _occurrences(elmo, self.sentences, "embedding train", report):
            for sense in train.keys[instance.id]:
                sums[:, self._rows[sense]] += vectors
        # Of sums or of means: the cosine is the same.
        lengths = np.linalg.norm(sums, axis=-1, keepdims=True)
        self._units = np.divide(sums, lengths, out=sums, where=lengths > 0)  # [L + 1, S, D]

    def evaluate(self, test: SenseCorpus, report: Report = silent) -> SenseProbeResult:
        instances = [instance for sentence in test.sentences for instance in sentence.instances]
        nearest: list[dict[str, str]] = [{} for _ in self._units]
        for instance, vectors in _occurrences(self.elmo, test.sentences, f"embedding {test.name}", report):
            senses = self.senses.get((instance.lemma, instance.pos))
            if senses is None:
                continue
            rows = [self._rows[sense] for sense in senses]
            for answers, units, vector in zip(nearest, self._units, vectors):
                cosines = units[rows] @ (vector / (np.linalg.norm(vector) or 1.0))
                answers[instance.id] = senses[int(np.argmax(cosines >= cosines.max() - LIKE))]

        frequent = {i.id: self.senses[i.lemma, i.pos][0] for i in instances if (i.lemma, i.pos) in self.senses}
        first = {i.id: sense for i in instances if (sense := self.first_senses.get((i.lemma, i.pos)))}
        *by_layer, mean, most_frequent = (score(first | own, test.keys) for own in (*nearest, frequent))
        return SenseProbeResult(
            by_layer=tuple(by_layer),
            mean=mean,
            most_frequent=most_frequent,
            first_sense=score(first, test.keys) if self.first_senses else None,
            test=test.name,
            instances=len(instances),
            unseen=sum((i.lemma, i.pos) not in self.senses for i in instances),
            train_sentences=len(self.sentences),
            train_instances=sum(len(s.instances) for s in self.sentences),
            senses=len(self._rows),
            seed=self.seed,
        )


def probe_senses(
    elmo: Elmo,
    train: str | Path,
    test: str | Path,
    *,
    index: str | Path | None = None,
    train_keys: str | Path | None = None,
    test_keys: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    report: Report = silent,
) -> SenseProbeResult:
    """
    train, test  X.data.xml of the unified framework, with X.gold.key.txt beside it unless keys are given.
    index        WordNet's index.sense. Without it, a word that training does not have gets no answer.
    limit        use so many training sentences at most, chosen by the seed.
    """
    first_senses = None if index is None else read_wordnet_index(index)
    questions = read_senses(test, test_keys)  # first: it is small, and may be wrong
    probe = SenseProbe(elmo, read_senses(train, train_keys), first_senses, limit=limit, seed=seed, report=report)
    return probe.evaluate(questions, report)


def score(answers: Mapping[str, str], keys: Mapping[str, Sequence[str]]) -> Score:
    """One answer an instance, or none; right if it is any of the instance's keys."""
    right = sum(answer in keys[instance] for instance, answer in answers.items())
    precision = right / len(answers) if answers else 0.0
    recall = right / len(keys)
    return Score(precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0)


def _occurrences(
    elmo: Elmo, sentences: Sequence[SenseSentence], stage: str, report: Report
) -> Iterator[tuple[Instance, NDArray[np.float32]]]:
    """Every instance and its vectors [L + 1, D], the mean of its tokens; the last is the mean of the layers."""
    asked = [sentence for sentence in sentences if sentence.instances]
    arrays = elmo.stream([sentence.tokens for sentence in asked], layers="all")
    for array, sentence in zip(watched(arrays, len(asked), stage, report), asked):
        for instance in sentence.instances:
            vectors = array[:, instance.start : instance.end].mean(axis=1)
            yield instance, np.concatenate([vectors, vectors.mean(axis=0, keepdims=True)])
