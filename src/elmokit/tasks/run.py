"""One training loop for all tasks, as a folder that can be stopped and gone on with.

run.json         the settings
last/            the epoch that was done last: weights, their running mean, optimizer, how it stands
best/            the best epoch by the score on dev, as a TaskModel that predicts alone
results.json     scores by epoch, the best, the learned layer weights, per-label table; curve.png

What is random (the order of examples, dropout) comes from the seed and the epoch's number: a run that is gone
on with is the same as one that was never stopped.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from elmokit import __version__
from elmokit.atomic import replacing_folder, write_file
from elmokit.config import dump, parse_json, present_names
from elmokit.errors import UserError
from elmokit.tasks.average import WeightAverage
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel, batches, lengths
from elmokit.tasks.task import Task, TrainConfig

RUN, LAST, BEST, RESULTS, CURVE = "run.json", "last", "best", "results.json", "curve.png"
TENSORS, PROGRESS = "training.safetensors", "progress.json"
BUCKETS = 50  # batches whose examples are sorted by length together: like lengths, and still a random order


@dataclass(frozen=True)
class TaskRunConfig:
    """run.json: what a run began with; to go on with other settings is refused."""

    task: str
    train: TrainConfig
    settings: dict[str, Any]
    inputs: dict[str, Any]
    elmo: str | None  # the biLM's digest
    files: dict[str, str]


class Epoch(NamedTuple):
    epoch: int  # from 1
    loss: float  # mean over the examples, dropout and all
    scores: dict[str, float]  # on dev
    seconds: float


class Step(NamedTuple):
    epoch: int
    done: int  # examples of this epoch
    total: int
    loss: float


class TaskRun:
    """Trains a fresh model on `train`, keeps the epoch that is best on `dev`."""

    def __init__(
        self,
        folder: Path,
        model: TaskModel,
        train: Sequence[Any],
        dev: Sequence[Any],
        config: TrainConfig,
        *,
        files: dict[str, str] | None = None,
        cache: LayerCache | None = None,
    ) -> None:
        if not train or not dev:
            raise UserError(f"expected examples to train on and to measure on, found {len(train)} and {len(dev)}")
        model.task.check(train)
        model.task.check(dev)
        self.folder, self.model, self.examples, self.dev, self.config = folder, model, train, dev, config
        self.cache = cache
        self.epochs: list[Epoch] = []
        self._files = files or {}
        self._parameters = [p for p in model.network.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(self._parameters, config)
        self._average = WeightAverage(model.network, config.average) if config.average else None
        self._open()

    def train(
        self,
        step: Callable[[Step], None] = lambda step: None,
        epoch: Callable[[Epoch], None] = lambda epoch: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Until patience or the epochs are used up; False where `stop` said so before (the last epoch is kept)."""
        while not self.finished:
            begun = time.monotonic()
            loss = self._train_epoch(step, stop)
            if loss is None:
                return False
            with self._average.in_place() if self._average else nullcontext():
                scores = self.evaluate()
                self.epochs.append(Epoch(len(self.epochs) + 1, loss, scores, time.monotonic() - begun))
                if self.best == self.epochs[-1]:
                    self.model.save(self.folder / BEST, overwrite=True)
            if self._started and self.best != self.epochs[-1] and self.config.decay < 1:
                for group in self._optimizer.param_groups:
                    group["lr"] *= self.config.decay
            self._save()
            epoch(self.epochs[-1])
        self._write_results()
        return True

    @property
    def results(self) -> dict[str, Any]:
        """What a run that is finished has written."""
        return parse_json((self.folder / RESULTS).read_bytes(), self.folder / RESULTS)

    def evaluate(self) -> dict[str, float]:
        return self.model.task.metrics(self.model.predict(self.dev, self.cache), self.dev)

    @property
    def best(self) -> Epoch | None:
        """The first of the best."""
        return max(self.epochs, key=lambda e: (e.scores[self.model.task.metric], -e.epoch), default=None)

    @property
    def finished(self) -> bool:
        best = self.best
        return best is not None and (
            len(self.epochs) >= self.config.epochs
            or (self._started and len(self.epochs) - best.epoch >= self.config.patience)
        )

    @property
    def _started(self) -> bool:
        """Whether anything has ever been right: a model that finds nothing yet is learning, not standing still."""
        return any(epoch.scores[self.model.task.metric] > 0 for epoch in self.epochs)

    def _train_epoch(self, step: Callable[[Step], None], stop: Callable[[], bool]) -> float | None:
        network, number = self.model.network, len(self.epochs) + 1
        network.train()
        total, done = 0.0, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * self.config.seed + number)
            for indices in self._batches(number):
                if stop():
                    return None
                examples = [self.model.task.excerpt(self.examples[i]) for i in indices]
                batch = self.model.batch(examples, self.cache)
                self._optimizer.zero_grad(set_to_none=True)
                loss: Tensor = network.loss(network(batch), batch)
                (loss + network.inputs.penalty()).backward()  # type: ignore[no-untyped-call]
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise UserError(
                        f"the loss is {value} in epoch {number}: try a lower learning rate than "
                        f"{self.config.learning_rate}"
                    )
                if self.config.clip_norm is not None:
                    nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm)
                self._optimizer.step()
                if self._average:
                    self._average.update()
                total += value * len(indices)
                done += len(indices)
                step(Step(number, done, len(self.examples), total / done))
        return total / done

    def _batches(self, epoch: int) -> Iterator[list[int]]:
        """In a random order, but batches of like lengths."""
        chance = random.Random(f"{self.config.seed} {epoch}")
        order = list(range(len(self.examples)))
        chance.shuffle(order)
        sizes = lengths(self.model.task, self.examples)
        together = BUCKETS * self.config.examples
        sorted_order = [
            i
            for start in range(0, len(order), together)
            for i in sorted(order[start : start + together], key=lambda i: -sizes[i])
        ]
        found = list(
            batches(self.model.task, self.examples, self.config.examples, self.config.batch_tokens, sorted_order)
        )
        chance.shuffle(found)
        return iter(found)

    def _open(self) -> None:
        """Begin the folder, or go on with what is in it if that was begun with the same settings."""
        elmo = self.model.elmo
        config = TaskRunConfig(
            self.model.task.name,
            self.config,
            dump(self.model.task.settings),
            dump(self.model.network.inputs.config),
            None if elmo is None else elmo.checkpoint.digest,
            self._files,
        )
        path = self.folder / RUN
        if not path.is_file():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise UserError(f"{self.folder} exists already and is no run of a task: choose another name")
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps({"elmokit": __version__, **dump(config)}, indent=1).encode())
            return
        table = parse_json(path.read_bytes(), path)
        table.pop("elmokit", None)
        table["train"] = {
            **dump(TrainConfig()),
            **present_names(table["train"]),
        }  # what a run of before did not know: the default
        if table != json.loads(json.dumps(dump(config))):
            raise UserError(
                f"{self.folder} was begun with other settings: choose another name for these, or give those "
                f"that are in {path} to go on"
            )
        self._restore()

    def _restore(self) -> None:
        last = self.folder / LAST
        if not last.is_dir():
            return
        tensors = present_names(load_file(last / TENSORS))
        progress = parse_json((last / PROGRESS).read_bytes(), last / PROGRESS)
        self.model.network.load_state_dict(
            {name[8:]: tensor for name, tensor in tensors.items() if name.startswith("network.")}
        )
        load_optimizer(self._optimizer, tensors, progress["rates"])
        if self._average:
            self._average.load(tensors, progress["averaged"])
        self.epochs = [Epoch(*row) for row in progress["epochs"]]

    def _save(self) -> None:
        tensors = {f"network.{name}": t.contiguous() for name, t in self.model.network.state_dict().items()}
        tensors |= optimizer_tensors(self._optimizer)
        progress: dict[str, Any] = {
            "epochs": self.epochs,
            "rates": [group["lr"] for group in self._optimizer.param_groups],
        }
        if self._average:
            tensors |= self._average.tensors()
            progress["averaged"] = self._average.steps
        with replacing_folder(self.folder / LAST, overwrite=True) as temporary:
            save_file(tensors, temporary / TENSORS)
            (temporary / PROGRESS).write_text(json.dumps(progress))

    def _write_results(self) -> None:
        best = self.best
        assert best is not None
        model = TaskModel.load(self.folder / BEST)
        predictions = model.predict(self.dev, self.cache)
        results = {
            "task": model.task.name,
            "metric": model.task.metric,
            "best": best._asdict(),
            "score": best.scores[model.task.metric],
            "epochs": [epoch._asdict() for epoch in self.epochs],
            "seconds": sum(epoch.seconds for epoch in self.epochs),
            "parameters": sum(p.numel() for p in self._parameters),
            "examples": [len(self.examples), len(self.dev)],
            "mix": model.network.inputs.shares(),
            "by_label": model.task.by_label(predictions, self.dev),
            "ceilings": model.task.ceilings(model, self.dev, self.cache),
        }
        write_file(self.folder / RESULTS, json.dumps(results, ensure_ascii=False, indent=1).encode())
        draw_curve(self.epochs, model.task, self.folder / CURVE)


def make_optimizer(parameters: list[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    kinds: dict[str, type[torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adadelta": torch.optim.Adadelta,
        "sgd": torch.optim.SGD,
    }
    options: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "adadelta":
        options["rho"] = 0.95  # Zeiler's own, and He et al.'s
    return kinds[config.optimizer](parameters, **options)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{name}": torch.as_tensor(value).contiguous()
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], rates: list[float]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = tensor
    table = optimizer.state_dict()
    for group, rate in zip(table["param_groups"], rates):
        group["lr"] = rate
    optimizer.load_state_dict({"state": state, "param_groups": table["param_groups"]})


def draw_curve(epochs: Sequence[Epoch], task: Task[Any], path: Path) -> None:
    """Loss and score by epoch; without matplotlib (extra `train`) there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    numbers = [epoch.epoch for epoch in epochs]
    left.plot(numbers, [epoch.loss for epoch in epochs], color="#D55E00", marker="s", label="training loss")
    scores = [epoch.scores[task.metric] for epoch in epochs]
    right.plot(numbers, scores, color="#0072B2", marker="o", label=f"dev {task.metric}")
    left.set(xlabel="epoch", ylabel="training loss")
    right.set_ylabel(f"dev {task.metric} (%)")
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="center right")
    left.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
