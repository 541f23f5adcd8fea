"""What does precision cost in quality? Vectors and scores of every format of weights, beside float32's.

    .venv/bin/python benchmarks/precision.py DATA [--models en-small ko-small] [--own] [-o precision.json]

vectors   Sentences of the tagged development set: by layer, the largest difference from float32 and the lowest
          cosine with it.
pos, wsd  The linear probe and the nearest sense of `elmo probe`, with their default settings, learned once from
          float32's vectors and measured on the vectors of each format. The linear probe is fitted as closely as
          one of 150,000 tokens is, though it has fewer: to its minimum it takes minutes, and all formats share it.
          `pairs` has nothing to learn.
ner       A tagger of recipe laptop, the same way; its epoch is chosen on a part of the training file.

So a head that was trained with float32 is used with other weights, which is the harder case; with --own, the
probes of tags and senses are learned from the vectors of each format too. DATA is laid out as the data pack.

Beside a score's difference from float32, in points, stands how large chance is: the number of labels that are
others, and the 95 % interval of the difference, by a paired bootstrap over the development set's sentences (over
the words for `pairs`). Nothing is chosen by a development set. The largest loss and gain of each format, at the
end, are what `elmokit/model/kernels/precision.py` keeps for weights="auto".
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit import Elmo, train_task
from elmokit.analysis.probes.linear import TOLERANCE, Features, LinearProbe, fit
from elmokit.analysis.probes.pairs import probe_pairs
from elmokit.analysis.probes.sense_corpus import SenseCorpus, read_senses, read_wordnet_index
from elmokit.analysis.probes.senses import SenseProbe
from elmokit.analysis.probes.tagging import Tagged, read_tagged
from elmokit.analysis.sample import sample
from elmokit.atomic import write_file
from elmokit.embed.arrays import mean_of_layers, token_vectors
from elmokit.model.kernels import variant
from elmokit.model.kernels.layers import WEIGHT_FORMATS
from elmokit.study.data import SenseData, StudyData, TagData, open_data
from elmokit.tasks.ner.entities import Sentence, read_entities
from elmokit.tasks.spans import spans_of, to_bio

EXACT = "float32"
LAYOUTS = {"en-small": "en", "ko-small": "ko"}
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
Probe = Callable[[Elmo], Outcomes]


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


def vector_errors(exact: Elmo, other: Elmo, sentences: Sequence[Sequence[str]]) -> list[Row]:
    """By layer. Cosines in float64: those of float32 end at 1 - 1e-7."""
    largest, lowest, size = (np.full(exact.layers, start) for start in (0.0, 1.0, 0.0))
    for ours, theirs in zip(other.stream(sentences), exact.stream(sentences)):
        a, b = ours.astype(np.float64), theirs.astype(np.float64)  # [L, T, D]
        lengths = np.linalg.norm(a, axis=2) * np.linalg.norm(b, axis=2)
        largest = np.maximum(largest, np.abs(a - b).max(axis=(1, 2)))
        lowest = np.minimum(lowest, ((a * b).sum(axis=2) / lengths).min(axis=1))
        size = np.maximum(size, np.abs(b).max(axis=(1, 2)))
    rows = zip(names(exact.layers), largest.tolist(), lowest.tolist(), size.tolist())
    return [{"layer": n, "largest": d, "cosine": c, "largest_value": v} for n, d, c, v in rows]


def probes_of(model: str, folder: Path, data: StudyData, options: argparse.Namespace, exact: Elmo) -> dict[str, Any]:
    """Those whose files are there, each learned from float32's vectors."""
    assert data.tags is not None
    assert data.pairs is not None
    seed = options.seed
    probes: dict[str, Any] = {"pairs": Pairs(data.pairs), "pos": Tags(exact, data.tags, options.tags, seed)}
    if data.senses is not None:
        probes["wsd"] = Senses(exact, data.senses, options.senses, options.held_out, seed)
    if data.senses is not None and options.entities:  # English
        train, dev = (folder / "ner-wiki" / f"{part}.conll" for part in ("train", "dev"))
        probes["ner"] = Entities(model, train, dev, data.vectors, options.entities, seed)
    return probes


def measure(model: str, folder: Path, options: argparse.Namespace) -> Row:
    data = open_data(folder, LAYOUTS[model])
    assert data.tags is not None
    exact = Elmo.from_pretrained(model)
    texts = [s.tokens for s in sample(read_tagged(data.tags.dev, data.tags.column), options.sentences, options.seed)]
    probes = probes_of(model, folder, data, options, exact)
    tell(f"{model}: learned " + "; ".join(f"{name}: {probe.about()}" for name, probe in probes.items()))
    result: Row = {
        "digest": exact.digest,
        "vector_sentences": len(texts),
        "vector_tokens": sum(map(len, texts)),
        "about": {name: probe.about() for name, probe in probes.items()},
        "vectors": {},
        "scores": [],
    }
    reference = {name: probe(exact) for name, probe in probes.items()}
    for name, outcomes in reference.items():
        for row, outcome in outcomes.items():
            result["scores"].append(line(name, row, EXACT, "float32's", outcome.beside(outcome, options.seed)))
    for weights in (name for name in WEIGHT_FORMATS if name != EXACT):
        elmo = Elmo.from_pretrained(model, weights=weights)
        result["vectors"][weights] = vector_errors(exact, elmo, texts)
        for name, probe in probes.items():
            heads = {"float32's": probe}
            if options.own and hasattr(probe, "own"):
                heads["its own"] = probe.own
            for head, run in heads.items():
                for row, outcome in run(elmo).items():
                    compared = outcome.beside(reference[name][row], options.seed)
                    result["scores"].append(line(name, row, weights, head, compared))
        tell(f"{model}: {weights} is measured")
    return result


def line(probe: str, row: str, weights: str, head: str, compared: Row) -> Row:
    return {"probe": probe, "representation": row, "weights": weights, "head": head, **compared}


def extremes(results: dict[str, Row]) -> dict[str, dict[str, tuple[float, float]]]:
    """Format -> model and probe -> the largest loss and the largest gain of its rows, with float32's heads."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for model, result in results.items():
        for row in result["scores"]:
            if row["weights"] != EXACT and row["head"] == "float32's":
                probes = found.setdefault(row["weights"], {})
                low, high = probes.get(key := f"{model} {row['probe']}", (0.0, 0.0))
                probes[key] = (min(low, row["points"]), max(high, row["points"]))
    return found


def tables(results: dict[str, Row]) -> Iterator[str]:
    """Markdown."""
    for model, result in results.items():
        sizes = f"{result['vector_sentences']:,} sentences, {result['vector_tokens']:,} tokens"
        yield f"\n{model}: vectors of {sizes}\n\n| weights | layer | largest difference | lowest cosine |\n|---|---|---|---|"
        for weights, rows in result["vectors"].items():
            for row in rows:
                of = f"{row['largest']:.2e} (values up to {row['largest_value']:.1f})"
                yield f"| {weights} | {row['layer']} | {of} | {row['cosine']:.7f} |"
        yield f"\n{model}: scores\n\n| probe | representation | weights | head | score | points | 95 % | others |\n|{'---|' * 8}"
        for row in result["scores"]:
            score, share = f"{row['score']:.3f}", f"{row['changed']:,} of {row['labels']:,}"
            where = f"| {row['probe']} | {row['representation']} | {row['weights']} | {row['head']} | {score} "
            if row["weights"] == EXACT:
                yield f"{where}| | | {row['labels']:,} labels, {row['sentences']:,} sentences |"
            else:
                yield f"{where}| {row['points']:+.3f} | {row['low']:+.3f} to {row['high']:+.3f} | {share} |"
        for name, about in result["about"].items():
            yield f"\n{name}: {about}"
    yield "\nlargest loss and gain in points, over all representations\n"
    for weights, probes in extremes(results).items():
        yield f"- {weights}: " + ", ".join(f"{name} {low:+.3f} {high:+.3f}" for name, (low, high) in probes.items())


def about(options: argparse.Namespace) -> Row:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "machine": platform.machine(),
        "kernels": variant(),
        "threads": torch.get_num_threads(),
        "command": "benchmarks/precision.py " + " ".join(
            f"--{name.replace('_', '-')} {value}" for name, value in vars(options).items() if name not in ("data", "out")
        ),
    }


def tell(what: str) -> None:
    print(f"{time.process_time():6.0f} s  {what}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--sentences", type=int, default=500, help="whose vectors are compared")
    parser.add_argument("--tags", type=int, default=1000, help="sentences that the probes of tags learn from")
    parser.add_argument("--senses", type=int, default=4000, help="sentences that the probe of senses learns from")
    parser.add_argument("--held-out", type=int, default=1500, help="more sentences to test senses on")
    parser.add_argument("--entities", type=int, default=1500, help="sentences that the tagger learns from; 0: none")
    parser.add_argument("--own", action="store_true", help="also heads that are learned with each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    facts = about(options)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    results = {model: measure(model, options.data, options) for model in options.models}
    print("\n".join(tables(results)))
    if options.out is not None:
        text = json.dumps({"about": facts, "models": results, "points": extremes(results)}, indent=1)
        write_file(options.out, text.encode())


if __name__ == "__main__":
    main()
