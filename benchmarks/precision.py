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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from precision_probes import Entities, Pairs, Row, Senses, Tags, names

from elmokit import Elmo
from elmokit.analysis.probes.tagging import read_tagged
from elmokit.analysis.sample import sample
from elmokit.atomic import write_file
from elmokit.model.kernels import variant
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.study.data import StudyData, open_data

EXACT = "float32"
LAYOUTS = {"en-small": "en", "ko-small": "ko"}


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


def probes_of(
    model: str, folder: Path, data: StudyData, options: argparse.Namespace, exact: Elmo
) -> dict[str, Any]:
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
    texts = [
        s.tokens for s in sample(read_tagged(data.tags.dev, data.tags.column), options.sentences, options.seed)
    ]
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
        yield f"\n{model}: vectors of {sizes}\n"
        yield "| weights | layer | largest difference | lowest cosine |\n|---|---|---|---|"
        for weights, rows in result["vectors"].items():
            for row in rows:
                of = f"{row['largest']:.2e} (values up to {row['largest_value']:.1f})"
                yield f"| {weights} | {row['layer']} | {of} | {row['cosine']:.7f} |"
        yield f"\n{model}: scores\n"
        yield "| probe | representation | weights | head | score | points | 95 % | others |\n|" + "---|" * 8
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
        yield f"- {weights}: " + ", ".join(
            f"{name} {low:+.3f} {high:+.3f}" for name, (low, high) in probes.items()
        )


def about(options: argparse.Namespace) -> Row:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "machine": platform.machine(),
        "kernels": variant(),
        "threads": torch.get_num_threads(),
        **{name: value for name, value in vars(options).items() if name not in ("data", "out")},
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
    parser.add_argument(
        "--entities", type=int, default=1500, help="sentences that the tagger learns from; 0: none"
    )
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
