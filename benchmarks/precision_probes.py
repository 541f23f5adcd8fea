"""What benchmarks/precision.py measures with: probes that are learned once, and asked with any weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit import Elmo, train_task
from elmokit.analysis.probes.linear import TOLERANCE, Features, LinearProbe, fit
from elmokit.analysis.probes.pairs import probe_pairs
from elmokit.analysis.probes.sense_corpus import SenseCorpus, read_senses, read_wordnet_index
from elmokit.analysis.probes.senses import SenseProbe
from elmokit.analysis.probes.tagging import Tagged, read_tagged
from elmokit.analysis.sample import sample
from elmokit.embed.arrays import mean_of_layers, token_vectors
from elmokit.study.data import SenseData, TagData
from elmokit.tasks.ner.entities import Sentence, read_entities
from elmokit.tasks.spans import spans_of, to_bio

RESAMPLED = 2000
NER_SETTINGS = ("train.epochs=3",)
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What one probe answered on a development set of S sentences."""

    counts: NDArray[np.float64]  # [S, 2]: correct, and the mean of predicted and gold ones
    answers: Sequence[Any]  # every label, in order

    @property
    def score(self) -> float:
        return float(scores(self.counts.sum(axis=0)))

    def beside(self, exact: Outcome, seed: int) -> Row:
        low, high = interval(exact.counts, self.counts, seed)
        return {
            "score": self.score,
            "points": self.score - exact.score,
            "low": low,
            "high": high,
            "changed": sum(ours != theirs for ours, theirs in zip(self.answers, exact.answers, strict=True)),
            "labels": len(self.answers),
            "sentences": len(self.counts),
        }


Outcomes = dict[str, Outcome]  # representation -> outcome


def scores(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., 2] -> F1 in per cent; the accuracy, where every item has one label."""
    share: NDArray[np.float64] = 100 * totals[..., 0] / totals[..., 1]
    return share


def interval(exact: NDArray[np.float64], other: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """95 % of the differences that other samples of as many sentences would show: the same sample for both."""
    count = len(exact)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLED)  # [R, S]
    low, high = np.percentile(scores(drawn @ other) - scores(drawn @ exact), [2.5, 97.5])
    return float(low), float(high)


def per_sentence(values: NDArray[np.float64], lengths: Sequence[int]) -> NDArray[np.float64]:
    """[N] -> [S]: sums."""
    starts = np.cumsum([0, *lengths[:-1]])
    sums: NDArray[np.float64] = np.add.reduceat(values, starts)
    return sums


def names(layers: int) -> list[str]:
    return [*(f"layer {layer}" for layer in range(layers)), "mean"]


class Tags:
    """The linear probe on each layer."""

    def __init__(self, exact: Elmo, data: TagData, limit: int, seed: int) -> None:
        self.column = data.column
        self.learned = sample(read_tagged(data.train, data.column), limit, seed)
        self.heldout = read_tagged(data.dev, data.column)
        tags = sorted({tag for sentence in self.learned for tag in sentence.tags})
        self.numbers = {tag: i for i, tag in enumerate(tags)}
        self.heads = self.learn(exact)

    def about(self) -> str:
        return f"{len(self.learned):,} sentences to learn"

    def learn(self, elmo: Elmo) -> list[LinearProbe]:
        labels = [self.numbers[tag] for sentence in self.learned for tag in sentence.tags]
        classes = len(self.numbers)
        return [fit(x, labels, classes, tolerance=TOLERANCE) for x in self.features(elmo, self.learned)]

    @staticmethod
    def features(elmo: Elmo, sentences: Sequence[Tagged]) -> Iterator[Features]:
        layers = token_vectors(elmo, [sentence.tokens for sentence in sentences])
        yield from layers
        yield mean_of_layers(layers)

    def __call__(self, elmo: Elmo, heads: Sequence[LinearProbe] | None = None) -> Outcomes:
        gold = np.array([self.numbers.get(tag, -1) for sentence in self.heldout for tag in sentence.tags])
        lengths = [len(sentence.tags) for sentence in self.heldout]
        outcomes = {}
        parts = zip(names(elmo.layers), heads or self.heads, self.features(elmo, self.heldout))
        for name, head, features in parts:
            answers = head.predict(features)
            correct = per_sentence((answers == gold).astype(np.float64), lengths)
            outcomes[name] = Outcome(np.stack([correct, lengths], axis=1), answers.tolist())
        return outcomes

    def own(self, elmo: Elmo) -> Outcomes:
        return self(elmo, self.learn(elmo))


class Senses:
    """The nearest sense, on the framework's test sets together with sentences of the training text not learned."""

    def __init__(self, exact: Elmo, data: SenseData, limit: int, held_out: int, seed: int) -> None:
        assert data.index is not None
        text = read_senses(data.train)
        tagged = sample([s for s in text.sentences if s.instances], limit + held_out, seed)
        apart = set(sample(range(len(tagged)), held_out, seed))
        learned, kept = ([s for i, s in enumerate(tagged) if (i in apart) == chosen] for chosen in (False, True))
        self.text = text._replace(sentences=learned)
        self.tests = [*map(read_senses, data.tests), text._replace(sentences=kept)]
        self.first, self.seed = read_wordnet_index(data.index), seed
        self.probe = self.learn(exact)

    def about(self) -> str:
        instances = sum(len(sentence.instances) for sentence in self.text.sentences)
        sizes = [sum(len(s.instances) for s in test.sentences) for test in self.tests]
        tests = ", ".join(f"{size:,} of {test.name}" for size, test in zip(sizes, self.tests))
        return f"{len(self.text.sentences):,} sentences to learn with {instances:,} instances; to test {tests}"

    def learn(self, elmo: Elmo) -> SenseProbe:
        return SenseProbe(elmo, self.text, self.first, seed=self.seed)

    def __call__(self, elmo: Elmo, probe: SenseProbe | None = None) -> Outcomes:
        probe = probe or self.probe
        by_test = [self.of_test(probe, test, elmo) for test in self.tests]
        joined = {}
        for row in by_test[0]:
            parts = [outcomes[row] for outcomes in by_test]
            counts = np.concatenate([part.counts for part in parts])
            joined[row] = Outcome(counts, list(chain.from_iterable(part.answers for part in parts)))
        return joined

    def of_test(self, probe: SenseProbe, test: SenseCorpus, elmo: Elmo) -> Outcomes:
        sentences = [s.instances for s in test.sentences if s.instances]
        first = {i.id: self.first.get((i.lemma, i.pos)) for instances in sentences for i in instances}
        outcomes = {}
        for name, nearest in zip(names(elmo.layers), probe.predict(test, elmo=elmo)):
            answers = {**first, **nearest}
            counts = [
                (
                    sum(answers[i.id] in test.keys[i.id] for i in instances),
                    sum(1 + (answers[i.id] is not None) for i in instances) / 2,
                )
                for instances in sentences
            ]
            outcomes[name] = Outcome(np.array(counts, dtype=np.float64), list(answers.values()))
        return outcomes

    def own(self, elmo: Elmo) -> Outcomes:
        return self(elmo, self.learn(elmo))


class Pairs:
    """The bundled words with two senses each; a word counts as a sentence does elsewhere."""

    def __init__(self, file: str) -> None:
        self.file = file

    def about(self) -> str:
        return "nothing is learned; labels are correct answers per word, and sentences are words"

    def __call__(self, elmo: Elmo) -> Outcomes:
        words = probe_pairs(elmo, self.file).words
        questions = [word.questions for word in words]
        outcomes = {}
        for row, name in enumerate(names(elmo.layers)):
            correct = [(*word.by_layer, word.mean)[row] * word.questions for word in words]
            outcomes[name] = Outcome(np.stack([correct, questions], axis=1), np.round(correct, 1).tolist())
        return outcomes


class Entities:
    """A tagger of recipe laptop with ELMo, trained on float32's vectors."""

    def __init__(self, model: str, train: Path, dev: Path, vectors: str | None, limit: int, seed: int) -> None:
        chosen = sample(read_entities(train), limit, seed)
        cut = len(chosen) * 9 // 10
        self.heldout, self.limit = read_entities(dev), cut
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for part, sentences in (("train", chosen[:cut]), ("chosen", chosen[cut:])):
                (folder / part).write_text(as_columns(sentences), encoding="utf-8")
            self.model = train_task(
                "ner",
                train=folder / "train",
                dev=folder / "chosen",
                out=folder / "run",
                elmo=model,
                vectors=vectors,
                settings=NER_SETTINGS,
                seed=seed,
                cache=folder / "cache",
            )

    def about(self) -> str:
        return f"{self.limit:,} sentences to learn, recipe laptop with {', '.join(NER_SETTINGS)}; labels are tags"

    def __call__(self, elmo: Elmo) -> Outcomes:
        predicted = replace(self.model, elmo=elmo).predict(self.heldout)
        counts = []
        for tags, example in zip(predicted, self.heldout):
            ours, gold = set(spans_of(tags)), set(example.entities or ())
            counts.append((len(ours & gold), (len(ours) + len(gold)) / 2))
        return {"tagger": Outcome(np.array(counts, dtype=np.float64), list(chain.from_iterable(predicted)))}


def as_columns(sentences: Sequence[Sentence]) -> str:
    blocks = []
    for sentence in sentences:
        tags = to_bio(sentence.entities or (), len(sentence.tokens))
        blocks.append("".join(f"{token}\t{tag}\n" for token, tag in zip(sentence.tokens, tags)))
    return "\n".join(blocks)
