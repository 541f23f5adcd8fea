"""What a run needs before it begins: settings chosen, examples read, words with vectors found."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmokit.config import build, dump, override, suggest
from elmokit.errors import UserError
from elmokit.formats.word_vectors import read_word_vectors
from elmokit.tasks.inputs import WordTable
from elmokit.tasks.task import Task, TrainConfig
from elmokit.text.columns import Columns

MOST_VECTORS = 100_000  # of a file of word vectors, the first: the frequent ones


class TaskData(NamedTuple):
    task: Task[Any]
    train: list[Any]
    dev: list[Any]

    def sentences(self) -> list[list[str]]:
        """Of all examples."""
        return [s for part in (self.train, self.dev) for example in part for s in self.task.sentences(example)]

    def tokens(self, *, dev: bool) -> set[str]:
        """The different ones of training, with or without those of dev."""
        examples = [*self.train, *(self.dev if dev else ())]
        return {token for example in examples for s in self.task.sentences(example) for token in s}


def settings_of(
    kind: type[Task[Any]], recipe: str, settings: Sequence[str] = (), seed: int = 0
) -> tuple[Any, TrainConfig]:
    """The recipe's sizes and training, with settings on top: `cells=64`, `train.epochs=5`."""
    if recipe not in kind.recipes:
        raise UserError(f"unknown recipe {recipe!r} of {kind.name}: {suggest(recipe, kind.recipes)}")
    sizes, train = kind.recipes[recipe]
    table = override({**dump(sizes), "train": dump(train)}, settings)
    chosen = build(TrainConfig, table.pop("train"), "train")
    return build(kind.settings_class, table), replace(chosen, seed=seed)


def read_examples(kind: type[Task[Any]], path: Path, columns: Columns | None = None) -> list[Any]:
    """Of a file in the task's own format; of a table, where columns are asked for."""
    return kind.read(path) if columns is None else kind.read_table(path, columns)


def read_data(
    kind: type[Task[Any]],
    sizes: Any,
    train: Path,
    dev: Path,
    limit: int | None = None,
    columns: Columns | None = None,
) -> TaskData:
    """limit    so many training examples, the same for every seed: one cache, comparable runs."""
    examples = read_examples(kind, train, columns)
    labels = kind.labels_of(examples)  # of all, so that a part of the file has the same and dev's are known
    if limit is not None and limit < len(examples):
        examples = random.Random(0).sample(examples, limit)
    task = kind(sizes, labels)
    measured = task.measured_examples(read_examples(kind, dev, columns))
    return TaskData(task, task.training_examples(examples), measured)


def word_table(path: Path | None, tokens: set[str]) -> WordTable:
    """The words with vectors: the file's most frequent, and all of the data's that it has; or the data's own."""
    lower = {token.lower() for token in tokens}
    if path is None:
        return WordTable(sorted(lower))
    words, vectors = read_word_vectors(path)
    rows = [i for i, word in enumerate(words) if i < MOST_VECTORS or word in tokens or word in lower]
    return WordTable([words[i] for i in rows], torch.from_numpy(vectors[rows]))
