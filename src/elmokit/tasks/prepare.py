"""From files and choices to a run: examples read, the vectors' words chosen, the biLM's layers cached."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from elmokit.config import build, dump, override, suggest
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.formats.word_vectors import read_word_vectors
from elmokit.tasks import task_class
from elmokit.tasks.inputs import InputConfig, Place, WordTable
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.run import TaskRun
from elmokit.tasks.task import Task, TrainConfig

MOST_VECTORS = 100_000  # of a file of word vectors, the first: the frequent ones


@dataclass(frozen=True)
class TaskPlan:
    """All that a run is made from."""

    task: str
    train: Path
    dev: Path
    elmo: str | None = None
    place: Place = "input"
    layers: str = "all"
    penalty: float = 0.001
    elmo_dropout: float = 0.5
    train_bilm: bool = False
    vectors: Path | None = None
    tune_vectors: bool = False
    recipe: str = "laptop"
    settings: tuple[str, ...] = ()
    seed: int = 0
    limit: int | None = None
    cache: Path | None = None


def prepare_task(plan: TaskPlan, out: Path, report: Callable[[str], None] = lambda stage: None) -> TaskRun:
    """The run in `out`, begun or as it was left."""
    kind = task_class(plan.task)
    sizes, train_config = settings_of(kind, plan)
    report("reading the examples")
    held = kind.read(plan.train)
    labels = kind.labels_of(held)  # of all, so that a part of the file has the same and dev's are known
    if plan.limit is not None and plan.limit < len(held):
        held = random.Random(0).sample(held, plan.limit)  # the same for every seed: one cache, comparable runs
    task = kind(sizes, labels)
    examples, dev = task.training_examples(held), task.measured_examples(kind.read(plan.dev))
    sentences = [s for part in (examples, dev) for example in part for s in kind.sentences(example)]
    report("reading the vectors")
    learned = examples if plan.vectors is None else [*examples, *dev]  # a vector of its own needs training
    table = word_table(plan.vectors, {token for e in learned for s in kind.sentences(e) for token in s})
    elmo = None if plan.elmo is None else Elmo.from_pretrained(plan.elmo)
    inputs = InputConfig(
        place=plan.place,
        layers=plan.layers,
        penalty=plan.penalty,
        elmo_dropout=plan.elmo_dropout,
        train_bilm=plan.train_bilm,
        tune_vectors=plan.tune_vectors,
    )
    model = TaskModel.fresh(task, table, elmo, inputs, train_config.seed)
    cache = None
    if elmo is not None and not plan.train_bilm:

        def told(done: int, total: int) -> None:
            report(f"the biLM reads {total:,} sentences, once: {100 * done // total} %")

        cache = LayerCache.open(elmo, sentences, plan.cache, told)
    files = {
        "train": str(plan.train),
        "dev": str(plan.dev),
        "vectors": str(plan.vectors),
        "limit": str(plan.limit),
    }
    return TaskRun(out, model, examples, dev, train_config, files=files, cache=cache)


def settings_of(kind: type[Task[Any]], plan: TaskPlan) -> tuple[Any, TrainConfig]:
    """The recipe's sizes and training, with the plan's settings on top: `cells=64`, `train.epochs=5`."""
    if plan.recipe not in kind.recipes:
        raise UserError(f"unknown recipe {plan.recipe!r} of {kind.name}: {suggest(plan.recipe, kind.recipes)}")
    sizes, train = kind.recipes[plan.recipe]
    table = override({**dump(sizes), "train": dump(train)}, plan.settings)
    chosen = build(TrainConfig, table.pop("train"), "train")
    return build(kind.settings_class, table), replace(chosen, seed=plan.seed)


def word_table(path: Path | None, tokens: set[str]) -> WordTable:
    """The words with vectors: the file's most frequent, and all of the data's that it has; or the data's own."""
    if path is None:
        return WordTable(sorted({token.lower() for token in tokens}))
    words, vectors = read_word_vectors(path)
    wanted = tokens | {token.lower() for token in tokens}
    kept = [i for i, word in enumerate(words) if i < MOST_VECTORS or word in wanted]
    return WordTable([words[i] for i in kept], torch.from_numpy(vectors[kept]))
