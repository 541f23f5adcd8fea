"""One training loop for all tasks, as a folder that can be stopped and resumed.

run.json         the settings
last/            the epoch that was done last: weights, their running mean, optimizer, how it stands
best/            the best epoch by the score on dev, as a TaskModel that predicts alone
results.json     scores by epoch, the best, the learned layer weights, per-label table; curve.png

What is random (the order of examples, dropout) comes from the seed and the epoch's number: a run that is resumed
is identical to one that was never stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from elmokit import __version__
from elmokit.atomic import remove_all_leftovers, remove_leftovers, replacing_folder, write_file
from elmokit.config import build, dump, present_names, read_json
from elmokit.errors import UserError
from elmokit.lock import Lock
from elmokit.model.seeding import seeded
from elmokit.progress import silent
from elmokit.tasks.average import WeightAverage
from elmokit.tasks.batches import epoch_batches
from elmokit.tasks.inputs import InputConfig, present_tensor_names
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import BEST, ELMO, RESULTS, TaskModel
from elmokit.tasks.optimizer import load_optimizer, make_optimizer, optimizer_tensors
from elmokit.tasks.progress import Epoch, OnTaskProgress, TaskProgress
from elmokit.tasks.results import draw_curve, results_table
from elmokit.tasks.task import TrainConfig

RUN, LAST, CURVE, LOCK = "run.json", "last", "curve.png", ".lock"
TENSORS, PROGRESS = "training.safetensors", "progress.json"


@dataclass(frozen=True)
class TaskRunConfig:
    """run.json: what a run began with; to resume it with other settings is refused."""

    task: str
    train: TrainConfig
    settings: dict[str, Any]
    inputs: dict[str, Any]
    elmo: str | None  # the biLM's digest
    files: dict[str, str]


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

    def train(self, on_progress: OnTaskProgress = silent, stop: Callable[[], bool] = lambda: False) -> bool:
        """Until patience or the epochs are used up; False where `stop` said so before (the last epoch is kept)."""
        with Lock(self.folder / LOCK, f"another process is training in {self.folder}: wait for it, or stop it"):
            return self._train(on_progress, stop)

    def _train(self, on_progress: OnTaskProgress, stop: Callable[[], bool]) -> bool:
        remove_all_leftovers(self.folder)
        on_progress(TaskProgress(self._plan()))
        while not self.finished:
            begun = time.monotonic()
            loss = self._train_epoch(on_progress, stop)
            if loss is None:
                return False
            with self._average.in_place() if self._average else nullcontext():
                scores = self.evaluate()
                self.epochs.append(Epoch(len(self.epochs) + 1, loss, scores, time.monotonic() - begun))
                if self.best == self.epochs[-1]:
                    self._save_best()
            if self._started and self.best != self.epochs[-1] and self.config.decay < 1:
                for group in self._optimizer.param_groups:
                    group["lr"] *= self.config.decay
            self._save()
            on_progress(TaskProgress(f"epoch {len(self.epochs)} is measured", epoch=self.epochs[-1]))
        if not (self.folder / RESULTS).is_file():
            self._write_results()
        return True

    def _plan(self) -> str:
        learned = sum(p.numel() for p in self._parameters)
        text = f"{self.model.task.name}: {len(self.examples):,} examples to train on, {len(self.dev):,} to "
        text += f"measure on; {learned:,} parameters to learn"
        return text + (f"; resumes after epoch {len(self.epochs)}" if self.epochs else "")

    def evaluate(self) -> dict[str, float]:
        return self.model.task.metrics(self.model.predict(self.dev, self.cache), self.dev)

    @property
    def best(self) -> Epoch | None:
        """The first of the best."""
        return max(self.epochs, key=lambda e: (e.scores[self.model.task.metric], -e.epoch), default=None)

    def best_model(self) -> TaskModel:
        """The best epoch's; what the model is now, where no epoch is done."""
        if self.best is None:
            return self.model
        elmo = None if self.model.trains_bilm else self.model.elmo
        return TaskModel.load(self.folder, elmo=elmo, task=type(self.model.task))

    @property
    def finished(self) -> bool:
        best = self.best
        return best is not None and (
            len(self.epochs) >= self.config.epochs
            or (self._started and len(self.epochs) - best.epoch >= self.config.patience)
        )

    @property
    def _started(self) -> bool:
        """Whether anything was ever correct: a model that finds nothing yet is learning, not standing still."""
        return any(epoch.scores[self.model.task.metric] > 0 for epoch in self.epochs)

    def _train_epoch(self, on_progress: OnTaskProgress, stop: Callable[[], bool]) -> float | None:
        network, number = self.model.network, len(self.epochs) + 1
        network.train()
        total, done = 0.0, 0
        with seeded(1_000_003 * self.config.seed + number):
            for indices in epoch_batches(self.model.task, self.examples, self.config, number):
                if stop():
                    return None
                total += self._step(indices) * len(indices)
                done += len(indices)
                on_progress(TaskProgress(f"epoch {number}", done, len(self.examples), total / done))
        return total / done

    def _step(self, indices: Sequence[int]) -> float:
        """One batch; its loss."""
        network = self.model.network
        examples = [self.model.task.excerpt(self.examples[i]) for i in indices]
        batch = self.model.batch(examples, self.cache)
        self._optimizer.zero_grad(set_to_none=True)
        loss: Tensor = network.loss(network(batch), batch)
        (loss + network.inputs.penalty()).backward()  # type: ignore[no-untyped-call]
        value = float(loss.detach())
        if not math.isfinite(value):
            raise UserError(
                f"the loss is {value} in epoch {len(self.epochs) + 1}: try a lower learning rate than "
                f"{self.config.learning_rate}"
            )
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm)
        self._optimizer.step()
        if self._average:
            self._average.update()
        return value

    def _open(self) -> None:
        """Begin the folder, or resume what is in it if that was begun with the same settings."""
        elmo, settings = self.model.elmo, self.model.task.settings
        config = TaskRunConfig(
            self.model.task.name,
            self.config,
            dump(settings),
            dump(self.model.network.inputs.config),
            None if elmo is None else elmo.digest,
            self._files,
        )
        path = self.folder / RUN
        if not path.is_file():
            if self.folder.exists() and any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise UserError(f"{self.folder} exists already and is no run of a task: choose another name")
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps({"elmokit": __version__, **dump(config)}, indent=1).encode())
            return
        table = read_json(path)
        table.pop("elmokit", None)
        # What was written before has its names of today, and the default of what was not there yet.
        table["train"] = dump(build(TrainConfig, table["train"], "train"))
        table["inputs"] = dump(InputConfig.read(table["inputs"]))
        if table != json.loads(json.dumps(dump(config))):
            raise UserError(
                f"{self.folder} was begun with other settings: choose another name for these, or give those "
                f"that are in {path} to resume it"
            )
        self._restore()

    def _restore(self) -> None:
        last = self.folder / LAST
        remove_leftovers(last)  # one that a killed process had moved aside is back
        if not last.is_dir():
            return
        tensors = present_names(load_file(last / TENSORS))
        tensors = present_tensor_names(tensors, self.model.network.inputs.places)
        progress = read_json(last / PROGRESS)
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

    def _save_best(self) -> None:
        """A frozen biLM is written with the first of the best, and linked after it."""
        best = self.folder / BEST
        self.model.save(best, overwrite=True, written_elmo=None if self.model.trains_bilm else best / ELMO)

    def _write_results(self) -> None:
        assert self.best is not None
        table = results_table(self.best_model(), self.best, self.epochs, self.dev, self.cache)
        table["examples"] = [len(self.examples), len(self.dev)]
        draw_curve(self.epochs, self.model.task, self.folder / CURVE)
        write_file(self.folder / RESULTS, json.dumps(table, ensure_ascii=False, indent=1).encode())
