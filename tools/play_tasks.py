"""The small trained tasks that the playground's last room shows: each with ELMo and without, float16, with a card.

    .venv/bin/python tools/play_tasks.py --data ../shared/data --runs RUNS

trains what is not in RUNS yet (about three minutes a run on one core), measures what is shipped on the development
data and writes src/elmokit/data/tasks/. Test data has no part in it. Both of a pair have the same head, seed, data
and word vectors' size; these begin random, so that a folder is small and owes nothing to other text.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file, save

from elmokit import Elmo, __version__
from elmokit.atomic import replacing_folder, write_file
from elmokit.serve.play.bundled_tasks import MANIFEST, bundled_folder
from elmokit.tasks import task_class
from elmokit.tasks.model import TASK, WEIGHTS, WORDS, TaskModel
from elmokit.tasks.prepare import read_data, settings_of
from elmokit.tasks.progress import TaskProgress
from elmokit.tasks.train import train_task

WIDTH, SEED = 50, 0
SPREAD = 0.3  # of the word vectors that training begins with


@dataclass(frozen=True)
class Pair:
    """A task that is trained twice."""

    name: str
    task: str
    elmo: str
    language: str
    data: str  # for the card
    licence: str
    train: str
    dev: str
    settings: tuple[str, ...]
    words: int  # that have a vector, at most: the most frequent
    limit: int | None = None


HEAD = ("feedforward=64", "cells=48", "maxout=[64]", "pieces=2")
PAIRS = (
    Pair(
        "ner-en",
        "ner",
        "en-small",
        "en",
        "named entities in English Wikipedia: dev and test documents of Re-DocRED, split anew by document",
        "annotations MIT, text CC BY-SA",
        "ner-wiki/train.conll",
        "ner-wiki/dev.conll",
        ("cells=[64]", "filters=30", "train.epochs=8", "train.patience=3"),
        6000,
    ),
    Pair(
        "sentiment-en",
        "sentiment",
        "en-small",
        "en",
        "sentences of film reviews in five classes: Stanford Sentiment Treebank (Socher et al. 2013)",
        "none is stated for the data, which is offered for research",
        "sst/train.txt",
        "sst/dev.txt",
        (*HEAD, "phrases=16000", "train.epochs=5", "train.patience=2"),
        6000,
    ),
    Pair(
        "sentiment-ko",
        "sentiment",
        "ko-small",
        "ko",
        "Korean film reviews, negative and positive: NSMC, sampled anew from its raw reviews by its rule",
        "CC0 1.0",
        "nsmc/ratings_train.txt.xz",
        "nsmc/ratings_dev.txt",
        (*HEAD, "train.epochs=4", "train.patience=2"),
        6000,
        20_000,
    ),
)


def write_vectors(pair: Pair, data: Path, path: Path) -> None:
    """Random vectors of the words that training has most often, twice at least: the rest is the unknown word."""
    kind = task_class(pair.task)
    sizes, _ = settings_of(kind, "laptop", pair.settings)
    examples = read_data(kind, sizes, data / pair.train, data / pair.dev, pair.limit)
    counts = Counter(token.lower() for e in examples.train for s in examples.task.sentences(e) for token in s)
    often = [
        w for w, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if n > 1 and w.split() == [w]
    ]
    words = often[: pair.words]
    rows = np.random.default_rng(SEED).normal(0, SPREAD, (len(words), WIDTH))
    lines = (f"{word} {' '.join(f'{value:.4f}' for value in row)}\n" for word, row in zip(words, rows))
    write_file(path, "".join(lines).encode())


def train(pair: Pair, elmo: str | None, data: Path, runs: Path, console: Console) -> TaskModel:
    vectors = runs / f"{pair.name}.txt"
    if not vectors.is_file():
        write_vectors(pair, data, vectors)

    def tell(progress: TaskProgress) -> None:
        if progress.epoch:
            console.log(pair.name, elmo or "without ELMo", progress.epoch)

    return train_task(
        pair.task,
        train=data / pair.train,
        dev=data / pair.dev,
        out=runs / f"{pair.name}-{'elmo' if elmo else 'baseline'}",
        elmo=elmo,
        vectors=vectors,
        tune_vectors=True,
        settings=pair.settings,
        seed=SEED,
        limit=pair.limit,
        cache=runs / "cache",
        on_progress=tell,
    )


def bundle(model: TaskModel, folder: Path) -> None:
    """The folder of a task without its biLM, which the package has already; weights as float16."""
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "model"
        model.save(whole)
        tensors = {name: tensor.half() for name, tensor in load_file(whole / WEIGHTS).items()}
        with replacing_folder(folder, True) as target:
            (target / WEIGHTS).write_bytes(save(tensors))  # save_file would write it for its owner alone
            for name in (TASK, WORDS):
                shutil.copyfile(whole / name, target / name)


def measured(pair: Pair, elmo: Elmo | None, folder: Path, data: Path) -> dict[str, Any]:
    """Of what was bundled, as it is loaded."""
    model = TaskModel.load(folder, elmo=elmo)
    evaluation = model.evaluate(data / pair.dev)
    inputs = model.network.inputs
    return {
        "folder": folder.name,
        "scores": {name: round(score, 2) for name, score in evaluation.scores.items()},
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        **({} if elmo is None else {"mix": inputs.shares()["input"], "digest": elmo.digest}),
    }


def card(entries: list[dict[str, Any]]) -> str:
    rows, data = [], []
    for pair, entry in zip(PAIRS, entries, strict=True):
        metric = entry["metric"]
        without, with_elmo = (entry[kind]["scores"][metric] for kind in ("baseline", "elmo"))
        rows.append(
            f"| {pair.name} | {metric} | {without:.2f} | {with_elmo:.2f} | {with_elmo - without:+.2f} | "
            f"{entry['train_examples']:,} | {entry['dev_examples']:,} | {entry['elmo']['bytes'] / 1e6:.1f} |"
        )
        some = f", {pair.limit:,} of the reviews" if pair.limit else ""
        data.append(
            f"- **{pair.name}** ({pair.elmo}): {pair.data}. Licence of the data: {pair.licence}. Recipe laptop "
            f"with `{' '.join(pair.settings)}`{some}."
        )
    behind = [
        e["name"] for e in entries if e["elmo"]["scores"][e["metric"]] <= e["baseline"]["scores"][e["metric"]]
    ]
    honest = (
        f"**ELMo gains nothing in {', '.join(behind)}.**"
        if behind
        else "ELMo is ahead in each. It is one seed each: where dev is small, a gain of two points may be chance."
    )
    table, about = "\n".join(rows), "\n".join(data)
    return f"""# Small trained tasks of the playground

Each is trained twice with the same head, data, seed and settings: with the bundled biLM's layers, mixed by learned
weights, at the task RNN's input (`NAME-elmo`), and without (`NAME-baseline`). They show how ELMo is used; they are
not made to be good at the tasks.

| task | measured by | without ELMo | with ELMo | gain | training examples | dev examples | MB |
|---|---|---:|---:|---:|---:|---:|---:|
{table}

{honest}
Figures are of the files as they are here (float16), on the development data, which also chose the best epoch.

## Data and settings

{about}

Seed {SEED}. Word vectors are {WIDTH} wide, of the {PAIRS[0].words:,} most frequent words of training at most; they
begin random and are learned with the task. Made by elmokit {__version__}:

    .venv/bin/python tools/play_tasks.py --data ../shared/data --runs RUNS

## What is in a folder

`task.json`, `model.safetensors` (float16) and `words.txt`, as `elmo task train` writes them, but without the biLM:
that is the bundled model's own, whose digest `tasks.json` names. `elmokit.serve.play.bundled_tasks` joins the two.

## Licence

The weights are offered under CC BY-SA 4.0, as the bundled models are. For the Stanford Sentiment Treebank no
licence is stated: what was learned from it (sentiment-en) is offered for research and teaching.

## Known limits

- The baselines have no pretrained word vectors, so part of the gain is what any pretraining would bring.
  docs/results.md compares with GloVe in both, three seeds a task: gains in named entities and sentiment are less.
- The text of ner-en is from Wikipedia, as is most of what en-small was pretrained on: it may have read some of it.
- Small heads, few epochs, one seed. NER knows the style of Wikipedia; sentiment knows film reviews, and a plain
  statement about something else means little to it.
- sentiment-ko has two classes only: it calls every sentence negative or positive, neutral ones too.
- The reviews and articles hold the biases of who wrote them; so do the predictions.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="a folder for the runs, which may be resumed")
    parser.add_argument("--only", help="train this pair and stop: nothing is bundled")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.runs.mkdir(parents=True, exist_ok=True)
    console, entries = Console(), []
    for pair in PAIRS:
        if options.only not in (None, pair.name):
            continue
        models = {
            "baseline": train(pair, None, options.data, options.runs, console),
            "elmo": train(pair, pair.elmo, options.data, options.runs, console),
        }
        if options.only:
            continue
        entry: dict[str, Any] = {
            "name": pair.name,
            "task": pair.task,
            "language": pair.language,
            "model": pair.elmo,
        }
        entry["metric"] = task_class(pair.task).metric
        for kind, model in models.items():
            folder = bundled_folder(f"{pair.name}-{kind}")
            bundle(model, folder)
            entry[kind] = measured(pair, model.elmo, folder, options.data)
        sizes, _ = settings_of(task_class(pair.task), "laptop", pair.settings)
        files = options.data / pair.train, options.data / pair.dev
        examples = read_data(task_class(pair.task), sizes, *files, pair.limit)
        entry |= {"train_examples": len(examples.train), "dev_examples": len(examples.dev)}
        console.log(entry)
        entries.append(entry)
    if not options.only:
        write_file(MANIFEST, (json.dumps(entries, ensure_ascii=False, indent=1) + "\n").encode())
        write_file(MANIFEST.parent / "README.md", card(entries).encode())


if __name__ == "__main__":
    main()
