"""`train_task`: from files and choices to a task's trained model, in one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elmokit.config import dump
from elmokit.embed.embedder import Elmo
from elmokit.model.kernels.precision import Weights
from elmokit.progress import silent
from elmokit.tasks import task_class
from elmokit.tasks.inputs import InputConfig, Place
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.prepare import read_data, settings_of, word_table
from elmokit.tasks.progress import OnTaskProgress, TaskProgress
from elmokit.tasks.run import TaskRun
from elmokit.tasks.task import Task
from elmokit.text.columns import Column, Format, asked_columns


def train_task(
    task: str | type[Task[Any]],
    *,
    train: str | Path,
    dev: str | Path,
    out: str | Path,
    elmo: str | Path | None = None,
    weights: Weights = "float32",
    place: Place = "input",
    which_layers: str = "all",
    penalty: float = 0.001,
    elmo_dropout: float = 0.5,
    train_bilm: bool = False,
    vectors: str | Path | None = None,
    tune_vectors: bool = False,
    recipe: str = "laptop",
    settings: Sequence[str] = (),
    seed: int = 0,
    limit: int | None = None,
    text_column: Column | Sequence[Column] | None = None,
    label_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    cache: str | Path | None = None,
    on_progress: OnTaskProgress | None = None,
    stop: Callable[[], bool] | None = None,
) -> TaskModel:
    """Train a task's model in the folder `out`; its best epoch is returned. The same call resumes a run.

    task           ner, srl, squad, ... (`elmokit.tasks.TASKS`), a class of your own, or "package.module:Class".
    train, dev     files in the task's own format; the best epoch is chosen on dev.
    elmo           a model as for `Elmo.from_pretrained`; None is the baseline.
    weights        how the biLM's are kept and multiplied, as of `Elmo`; the trained model is used with the same.
    place          where ELMo enters the task's RNN: "input", "output" or "both".
    which_layers   "all" (learned weights), "last", "mean" or a layer's number.
    penalty        lambda: pulls the layers' weights together.
    train_bilm     also train the biLM: slow.
    vectors        a file of word2vec, GloVe or fastText vectors; learned from nothing without.
    recipe         "laptop" (minutes on 2 cores) or "paper" (the papers' sizes).
    settings       changes to the recipe: ("cells=64", "train.epochs=5").
    limit          so many training examples, the same for every seed.
    text_column    sentiment, entailment: train and dev are tables (.csv, .tsv, .jsonl), with the texts in this
                   column, by name or number (a pair's in these two), and the labels in `label_column`; `header`
                   says whether the first row has names, `table_format` "csv", "tsv" or "jsonl"
    cache          where the frozen biLM's layers are kept; ELMOKIT_CACHE or ~/.cache/elmokit by default.
    on_progress    is told how it stands.
    stop           is asked before every step of training; where it says True, the best model so far is returned
                   (without `results`), and the epochs that are done are kept.
    """
    tell = on_progress or silent
    inputs = InputConfig(
        place=place,
        which_layers=which_layers,
        penalty=penalty,
        elmo_dropout=elmo_dropout,
        train_bilm=train_bilm,
        tune_vectors=tune_vectors,
    )
    kind = task_class(task)
    sizes, config = settings_of(kind, recipe, settings, seed)
    tell(TaskProgress("reading the examples"))
    columns = asked_columns(text_column, label_column, header, table_format)
    data = read_data(kind, sizes, Path(train), Path(dev), limit, columns)
    if vectors is not None:
        tell(TaskProgress("reading the vectors"))
    tokens = data.tokens(dev=vectors is not None)  # a vector that is learned needs training
    table = word_table(None if vectors is None else Path(vectors), tokens)
    bilm = None if elmo is None else Elmo.from_pretrained(elmo, weights=weights)
    model = TaskModel.fresh(data.task, table, bilm, inputs, config.seed)
    layers = None
    if bilm is not None and not train_bilm:
        layers = LayerCache.open(bilm, data.sentences(), None if cache is None else Path(cache), tell)
    files = {"train": str(Path(train)), "dev": str(Path(dev)), "vectors": str(vectors and Path(vectors))}
    files["limit"] = str(limit)
    if bilm is not None and bilm.weights != "float32":
        files["weights"] = bilm.weights
    if columns is not None:
        files["columns"] = json.dumps(dump(columns), ensure_ascii=False)
    run = TaskRun(Path(out), model, data.train, data.dev, config, files=files, cache=layers)
    run.train(tell, stop or (lambda: False))
    return run.best_model()
