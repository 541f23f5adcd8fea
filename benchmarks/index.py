"""How fast is a search among a million contexts, and what does it miss? An index is built, then every query is
searched exactly and in the partitions, the two taking turns.

    .venv/bin/python benchmarks/index.py --model MODEL --text TEXT [--split] [--layer 2] [--vectors 1000000]
    .venv/bin/python benchmarks/index.py --synthetic [--vectors 200000] [--width 512]

The vectors are those of the words of TEXT (files, also compressed, folders, patterns) in one layer; queries are
words of every 50th sentence, which the index does not have. Synthetic ones lie around 20,000 centres, which lie
around 400. Prints the time to build, the memory it takes at most, the size on disk, the time of a search, and
recall@10: the share of the ten nearest by exact search that are found (of equally near ones any counts).
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit import Elmo
from elmokit.analysis.contexts.corpus import Context, read_contexts, unit
from elmokit.analysis.contexts.index import ContextIndex, Rows
from elmokit.analysis.contexts.index_files import IndexFacts, write_index
from elmokit.text.tokens import TokenizerConfig

TOP = 10
HELD_OUT = 50  # one sentence of so many is for queries
SAME = 1e-5  # cosines nearer than this are equal: the two searches add in different orders
CENTRES, GROUPS, SENTENCE = 20_000, 400, 20


def synthetic(width: int, seed: int = 0) -> Iterator[Context]:
    rng = np.random.default_rng(seed)
    common = 0.7 * rng.standard_normal(width, dtype=np.float32)  # real vectors share a direction too
    groups = rng.standard_normal((GROUPS, width), dtype=np.float32)
    centres = groups[rng.integers(0, GROUPS, CENTRES)]
    centres += 0.9 * rng.standard_normal((CENTRES, width), dtype=np.float32)
    while True:
        words = rng.integers(0, CENTRES, SENTENCE)
        vectors = common + centres[words] + 0.9 * rng.standard_normal((SENTENCE, width), dtype=np.float32)
        yield Context([f"w{word}" for word in words], list(range(SENTENCE)), unit(vectors)[None])


class Source:
    """Contexts for the index until it has enough vectors; the vectors of one word of each other for queries."""

    def __init__(self, contexts: Iterator[Context], vectors: int) -> None:
        self.contexts, self.vectors = contexts, vectors
        self.queries: list[NDArray[np.float32]] = []
        self.waited = 0.0  # seconds for the contexts themselves: embedding, which is not the index

    def __iter__(self) -> Iterator[Context]:
        left, number = self.vectors, 0
        while left:
            begun = time.perf_counter()
            context = next(self.contexts, None)
            self.waited += time.perf_counter() - begun
            if context is None:
                break
            number += 1
            if number % HELD_OUT == 0:
                self.queries.append(context.layers[0, len(context.places) // 2])
                continue
            kept = context.places[:left]
            left -= len(kept)
            yield context._replace(places=kept, layers=context.layers[:, : len(kept)])


def megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(search: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = search()
    return 1000 * (time.perf_counter() - begun), found


def recall(found: Rows, exact: Rows) -> float:
    return float((found.cosines[:TOP] >= exact.cosines[TOP - 1] - SAME).sum() / TOP)


def search(index: ContextIndex, layer: int, queries: list[NDArray[np.float32]]) -> dict[str, Any]:
    """Milliseconds of each kind of search, and recall@10."""
    times: dict[str, list[float]] = {"exact": [], "partitions": [], "partitions, one per sentence": []}
    first, _ = timed(lambda: index.rows(queries[0], layer, TOP))  # reads what later ones find in memory
    recalls = []
    for query in queries:
        spent, exact = timed(lambda q=query: index.rows(q, layer, TOP, exact=True))
        times["exact"].append(spent)
        spent, found = timed(lambda q=query: index.rows(q, layer, TOP))
        times["partitions"].append(spent)
        recalls.append(recall(found, exact))
        spent, _ = timed(lambda q=query: index.nearest(q, layer, TOP))
        times["partitions, one per sentence"].append(spent)
    table = {
        name: {"median": float(np.median(spent)), "p95": float(np.percentile(spent, 95))}
        for name, spent in times.items()
    }
    return {"queries": len(queries), "first": first, "ms": table, "recall": float(np.mean(recalls))}


def measure(source: Source, facts: IndexFacts, folder: Path, queries: int) -> dict[str, Any]:
    before, begun = peak(), time.perf_counter()
    made = write_index(folder, facts, source, overwrite=True)
    seconds = time.perf_counter() - begun
    at_most = peak()
    index = ContextIndex.open(folder)
    chosen = source.queries[:: max(1, len(source.queries) // queries)][:queries]
    return {
        "vectors": made.vectors,
        "width": made.width,
        "sentences": made.sentences,
        "partitions": made.partitions,
        "seconds": {"contexts": source.waited, "index": seconds - source.waited},
        "megabytes": {"memory before": before, "memory at most": at_most, "disk": megabytes(folder)},
        "search": search(index, made.which_layers[0], chosen),
    }


def show(result: dict[str, Any]) -> None:
    print("{vectors:,} vectors of {width}, {sentences:,} sentences, {partitions} partitions".format(**result))
    seconds, size, found = result["seconds"], result["megabytes"], result["search"]
    print(f"build: {seconds['contexts']:.0f} s for the vectors, {seconds['index']:.0f} s for the index")
    print(f"memory: {size['memory before']:.0f} MB before, {size['memory at most']:.0f} MB at most", end="; ")
    print(f"disk: {size['disk']:.0f} MB")
    print(f"search: {found['queries']} queries; the first one ever took {found['first']:.0f} ms")
    for name, spent in found["ms"].items():
        print(f"  {name:28} median {spent['median']:7.1f} ms, p95 {spent['p95']:7.1f} ms")
    print(f"recall@{TOP} {found['recall']:.3f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--text", nargs="+", default=[])
    parser.add_argument("--split", action="store_true", help="lines are paragraphs")
    parser.add_argument("--layer", type=int, help="the topmost by default")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=512, help="of synthetic vectors")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where the index is made and kept; else a temporary one")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    options = parser.parse_args(arguments)
    if options.synthetic:
        contexts, layer, width, name = synthetic(options.width), 0, options.width, "synthetic"
        model, tokenizer = "", TokenizerConfig("whitespace")
    else:
        if not (options.model and options.text):
            parser.error("expected --model and --text, or --synthetic")
        elmo = Elmo.from_pretrained(options.model)
        layer = elmo.layers - 1 if options.layer is None else options.layer
        contexts = read_contexts(elmo, options.text, [layer], split=options.split, on_bad_line="skip")
        width, name, model, tokenizer = elmo.width, options.text, elmo.checkpoint.digest, elmo.tokenizer.config
    sources = (name,) if isinstance(name, str) else tuple(name)
    facts = IndexFacts(model=model, tokenizer=tokenizer, which_layers=(layer,), width=width, sources=sources)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "index"
        result = measure(Source(contexts, options.vectors), facts, folder, options.queries)
    show(result)
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
