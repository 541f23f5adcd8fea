"""What do cached layers save? A task's training with the biLM's layers from disk, and with the biLM run for every
batch; batches take turns.

    .venv/bin/python benchmarks/task_cache.py --train train.conll [--task ner] [--elmo en-small] [--batches 20] \
        [--examples 300] [--set cells=0]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from elmokit import Elmo
from elmokit.tasks import task_class
from elmokit.tasks.batches import batches
from elmokit.tasks.inputs import InputConfig
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.prepare import settings_of, word_table


def step(model: TaskModel, examples: list[Any], cache: LayerCache | None) -> float:
    begun = time.perf_counter()
    batch = model.batch(examples, cache)
    model.network.zero_grad(set_to_none=True)
    loss = model.network.loss(model.network(batch), batch) + model.network.inputs.penalty()
    loss.backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="ner")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--elmo", default="en-small", help="a model, or recipe:NAME for a fresh one")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--examples", type=int, help="the file's first; all by default")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE on top of recipe laptop")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    kind = task_class(arguments.task)
    settings, train = settings_of(kind, "laptop", arguments.set)
    examples = kind.read(arguments.train)[: arguments.examples]
    task = kind(settings, kind.labels_of(examples))
    examples = task.training_examples(examples)
    source = arguments.elmo
    elmo = Elmo.from_recipe(source[7:]) if source.startswith("recipe:") else Elmo.from_pretrained(source)
    table = word_table(None, {token for e in examples for s in kind.sentences(e) for token in s})
    model = TaskModel.fresh(task, table, elmo, InputConfig())
    model.network.train()
    chosen = list(batches(task, examples, train.examples, train.batch_tokens))
    chosen = chosen[:: max(1, len(chosen) // arguments.batches)]
    with tempfile.TemporaryDirectory() as folder:
        sentences = [s for e in examples for s in kind.sentences(e)]
        begun = time.perf_counter()
        cache = LayerCache.open(elmo, sentences, Path(folder))
        filled = time.perf_counter() - begun
        seconds = {"cached": 0.0, "run": 0.0}
        step(model, [examples[i] for i in chosen[0]], None)
        for indices in chosen:
            batch = [examples[i] for i in indices]
            seconds["cached"] += min(step(model, batch, cache) for _ in range(2))
            seconds["run"] += min(step(model, batch, None) for _ in range(2))
        tokens = sum(map(len, sentences))
        print(
            f"{arguments.task}, {source}: {tokens:,} tokens, {cache.bytes / 1e6:,.0f} MB, filled in {filled:.1f} s"
        )
    for name, took in seconds.items():
        print(f"{name:<8} {1e3 * took / len(chosen):8.1f} ms per batch")
    print(f"cached layers are x {seconds['run'] / seconds['cached']:.1f}")


if __name__ == "__main__":
    main()
