"""Word sense disambiguation by the nearest sense, as in the paper's Table 5, for each layer.

A sense's vector is the mean of its occurrences in the training text. A test word takes, of the senses that its
lemma and part of speech have in training, the one whose vector is nearest by cosine; where training has none,
WordNet's first sense. Of senses that are equally near, as at layer 0, the most frequent one is taken.

Shapes: L layers, S senses, D width.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.model import Model, open_model
from elmokit.analysis.probes.sense_corpus import (
    Instance,
    SenseCorpus,
    SenseSentence,
    read_senses,
    read_wordnet_index,
)
from elmokit.analysis.sample import sample
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent, watched
from elmokit.show.exhibit import Exhibit, layer_name, pattern_note, percent
from elmokit.show.figures import draw_bars

LIKE = 1e-6  # cosines that differ by less are equal

Lemma = tuple[str, str]  # and its part of speech
Corpus = str | Path | SenseCorpus


class Score(NamedTuple):
    """As the framework's scorer counts: precision over the answers, recall over all instances."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class SenseTestResult:
    """On one test set."""

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

    def size(self) -> str:
        return f"{self.test}: {self.instances:,} instances, {self.unseen:,} of a lemma not in training"

    def patterns(self) -> list[str]:
        """Whether what the paper found is found here."""
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


@dataclass(frozen=True)
class SenseProbeResult:
    """Of one training text, on one test set or more."""

    tests: tuple[SenseTestResult, ...]

    def exhibit(self) -> Exhibit:
        """Table 5 of the paper: a column per test set."""
        results, one = self.tests, self.tests[0]
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
                *(result.size() for result in results),
                *(note for result in results for note in result.patterns()),
                "In the paper, on all test sets: first sense 65.9, layer 1 67.4, layer 2 69.0.",
            ),
            draw=lambda figure: draw_bars(
                figure, tests, scores, xlabel="test set", ylabel="F1 (%)", lines=baselines
            ),
            paper="Table 5",
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; scores have the names of their parts."""
        return {"tests": [{f.name: _plain(getattr(test, f.name)) for f in fields(test)} for test in self.tests]}


def _plain(value: Any) -> Any:
    if isinstance(value, Score):
        return value._asdict()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


class SenseProbe:
    """The senses of a training text: embedded once, asked for any number of test sets."""

    def __init__(
        self,
        elmo: Elmo,
        train: SenseCorpus,
        first_senses: Mapping[Lemma, str] | None = None,
        *,
        limit: int | None = None,
        seed: int = 0,
        on_progress: OnProgress = silent,
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
        for instance, vectors in _occurrences(elmo, self.sentences, "embedding train", on_progress):
            for sense in train.keys[instance.id]:
                sums[:, self._rows[sense]] += vectors
        # Of sums or of means: the cosine is the same.
        lengths = np.linalg.norm(sums, axis=-1, keepdims=True)
        self._units = np.divide(sums, lengths, out=sums, where=lengths > 0)  # [L + 1, S, D]

    def predict(
        self, test: SenseCorpus, on_progress: OnProgress = silent, *, elmo: Elmo | None = None
    ) -> list[dict[str, str]]:
        """Of each layer and last of their mean: an instance's id -> the nearest sense; none for a lemma not seen.

        elmo    reads the test instead of the model that has read the training text: one that differs little.
        """
        nearest: list[dict[str, str]] = [{} for _ in self._units]
        stage = f"embedding {test.name}"
        for instance, vectors in _occurrences(elmo or self.elmo, test.sentences, stage, on_progress):
            senses = self.senses.get((instance.lemma, instance.pos))
            if senses is None:
                continue
            rows = [self._rows[sense] for sense in senses]
            for predicted, units, vector in zip(nearest, self._units, vectors):
                cosines = units[rows] @ (vector / (np.linalg.norm(vector) or 1.0))
                predicted[instance.id] = senses[int(np.argmax(cosines >= cosines.max() - LIKE))]
        return nearest

    def evaluate(self, test: SenseCorpus, on_progress: OnProgress = silent) -> SenseTestResult:
        instances = [instance for sentence in test.sentences for instance in sentence.instances]
        nearest = self.predict(test, on_progress)
        frequent = {i.id: self.senses[i.lemma, i.pos][0] for i in instances if (i.lemma, i.pos) in self.senses}
        first = {i.id: sense for i in instances if (sense := self.first_senses.get((i.lemma, i.pos)))}
        *by_layer, mean, most_frequent = (score(first | own, test.keys) for own in (*nearest, frequent))
        return SenseTestResult(
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
    model: Model,
    train: Corpus,
    tests: Sequence[Corpus],
    *,
    index: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> SenseProbeResult:
    """
    train, tests  X.data.xml of the unified framework, with X.gold.key.txt beside it; or what `read_senses` read.
    index         WordNet's index.sense. Without it, a word that training does not have gets no answer.
    limit         use so many training sentences at most, chosen by the seed.
    """
    if isinstance(tests, str | Path | SenseCorpus) or not tests:
        raise UserError(f"tests: expected a list of one test set or more, found {tests!r}")
    elmo = open_model(model)
    test_sets = [_opened(test) for test in tests]  # first: they are small, and may be wrong
    first_senses = None if index is None else read_wordnet_index(index)
    probe = SenseProbe(elmo, _opened(train), first_senses, limit=limit, seed=seed, on_progress=on_progress)
    return SenseProbeResult(tuple(probe.evaluate(test, on_progress) for test in test_sets))


def _opened(corpus: Corpus) -> SenseCorpus:
    return corpus if isinstance(corpus, SenseCorpus) else read_senses(corpus)


def score(predicted: Mapping[str, str], gold: Mapping[str, Sequence[str]]) -> Score:
    """One sense predicted per instance, or none; correct if it is any of the instance's gold ones."""
    correct = sum(sense in gold[instance] for instance, sense in predicted.items())
    precision = correct / len(predicted) if predicted else 0.0
    recall = correct / len(gold)
    return Score(precision, recall, 2 * precision * recall / (precision + recall) if correct else 0.0)


def _occurrences(
    elmo: Elmo, sentences: Sequence[SenseSentence], stage: str, on_progress: OnProgress
) -> Iterator[tuple[Instance, NDArray[np.float32]]]:
    """Every instance and its vectors [L + 1, D], the mean of its tokens; the last is the mean of the layers."""
    tagged = [sentence for sentence in sentences if sentence.instances]
    arrays = elmo.stream([sentence.tokens for sentence in tagged], layers="all")
    for layers, sentence in zip(watched(arrays, len(tagged), stage, on_progress), tagged):  # [L, T, D]
        for instance in sentence.instances:
            vectors = layers[:, instance.start : instance.end].mean(axis=1)
            yield instance, np.concatenate([vectors, vectors.mean(axis=0, keepdims=True)])
