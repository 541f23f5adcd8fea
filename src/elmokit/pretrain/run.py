"""A training run as one folder that can be stopped at any time and gone on with.

run.json        the settings, as they were when the run began
corpus/         the text, tokenized once: train/ and held-out/
checkpoints/    step-N/: everything that the next step depends on; the last two are kept
metrics.jsonl   a line for every report; tensorboard/ the same as events
model/          the model itself, as `elmo embed --model` reads it; curve.png how it came about
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from elmokit import __version__
from elmokit.atomic import replacing_folder, write_file
from elmokit.checkpoint import Checkpoint
from elmokit.config import build, dump, parse_json, present_names
from elmokit.errors import UserError
from elmokit.pretrain.adaptation import fresh_model
from elmokit.pretrain.corpus import PreparedCorpus
from elmokit.pretrain.metrics import Metrics, draw_curve
from elmokit.pretrain.perplexity import Perplexity, perplexity
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.step import StepResult, Trainer

RUN, CORPUS, START, CHECKPOINTS, MODEL = "run.json", "corpus", "start", "checkpoints", "model"
TENSORS, PROGRESS = "training.safetensors", "progress.json"
KEPT = 2
SECONDS_BETWEEN_TRIES = 10.0  # to write a checkpoint on a full disk


@dataclass(frozen=True)
class Budget:
    """How long to train: so many tokens, or so many hours."""

    tokens: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        if (self.tokens is None) == (self.hours is None):
            raise UserError("a budget is a number of tokens or of hours: give one of them")
        if (self.tokens or self.hours or 0) <= 0:
            raise UserError(f"a budget is more than nothing, found {self.tokens or self.hours}")

    def progress(self, tokens: int, seconds: float) -> float:
        return tokens / self.tokens if self.tokens else seconds / (3600 * (self.hours or 1))


@dataclass(frozen=True)
class RunConfig:
    """run.json: all that a run needs to be gone on with, apart from its checkpoints."""

    recipe: Recipe
    budget: Budget
    sources: tuple[str, ...] = ()
    report_steps: int = 10  # steps between two lines of metrics
    evaluations: int = 20  # held-out measurements over the whole budget
    held_out_sentences: int = 2000  # of the held-out text, at most, for one measurement
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("report_steps", "evaluations", "held_out_sentences"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")


class Report(NamedTuple):
    """How it goes, at some step."""

    step: int
    tokens: int
    progress: float
    tokens_per_second: float
    seconds_left: float
    result: StepResult


class Outcome(NamedTuple):
    finished: bool
    perplexity: Perplexity | None


class Run:
    def __init__(self, folder: Path, config: RunConfig, ranks: Ranks | None = None) -> None:
        self.folder, self.config = folder, config
        self.ranks = ranks or Ranks()
        self.corpus = PreparedCorpus.open(folder / CORPUS / "train")
        held_out = folder / CORPUS / "held-out"
        self.held_out = PreparedCorpus.open(held_out) if held_out.is_dir() else None
        start = folder / START
        self.trainer = Trainer(
            Checkpoint.load(start) if start.is_dir() else fresh_model(config.recipe, self.corpus),
            self.corpus,
            config.recipe.train,
            config.recipe.optimizer,
            self.ranks,
        )
        self.seconds = self.cpu_seconds = 0.0  # of the steps; those of the processor, of all threads and ranks
        self.measured: Perplexity | None = None
        self._measured_at = -1  # step
        self._metrics_length = 0

    @classmethod
    def create(cls, folder: Path, config: RunConfig, ranks: Ranks | None = None) -> Run:
        """A new run over the corpus that lies prepared in folder/corpus."""
        _write_config(folder, config)
        return cls(folder, config, ranks)

    @classmethod
    def open(cls, folder: Path, ranks: Ranks | None = None, budget: Budget | None = None) -> Run:
        """A run as its last whole checkpoint left it; another budget than it had is kept from then on."""
        path = folder / RUN
        if not path.is_file():
            raise UserError(f"{folder} holds no training run: it has no {RUN}")
        config = build(RunConfig, _settings(path), "")
        if budget is not None:
            config = dataclasses.replace(config, budget=budget)
        run = cls(folder, config, ranks)
        run._restore()
        if budget is not None and run.ranks.first:
            _write_config(folder, config)
        return run

    @property
    def progress(self) -> float:
        return self.config.budget.progress(self.trainer.tokens, self.seconds)

    def train(
        self,
        report: Callable[[Report], None] = lambda report: None,
        measured: Callable[[Perplexity], None] = lambda perplexity: None,
        tell: Callable[[str], None] = lambda message: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train until the budget is used or `stop` says so; either way everything is on disk afterwards."""
        wanted, found = self.config.recipe.train.precision, self.trainer.precision
        if found != wanted and self.ranks.first:
            tell(f"train.precision: {wanted} needs native kernels and a processor with AVX512_BF16; {found} it is")
        with Metrics(self.folder, self._metrics_length) as metrics:
            saved = reported = time.monotonic()
            seen = self.trainer.tokens
            due = self._next_evaluation()
            while self.progress < 1:
                if self.ranks.any(stop()):
                    self._save(metrics, tell, stop)
                    return Outcome(False, self.measured)
                begun, cpu_begun = time.monotonic(), time.process_time()
                result = self.trainer.train_step(self.progress)
                # Of all ranks together: a budget of hours must end, and set the rate, at one time for all.
                elapsed, used = self.ranks.sum(time.monotonic() - begun, time.process_time() - cpu_begun)
                self.seconds += elapsed / self.ranks.world
                self.cpu_seconds += used
                if not math.isfinite(result.norm):  # nothing was changed by that step
                    tell(f"step {self.trainer.step:,}: the gradient is not finite, the step is left out")
                if self.trainer.step % self.config.report_steps == 0:
                    now = time.monotonic()
                    pace = (self.trainer.tokens - seen) / max(1e-9, now - reported)
                    seen, reported = self.trainer.tokens, now
                    self._report(result, pace, metrics, report)
                if self.progress >= due:
                    self._measure(metrics, measured)
                    due = self._next_evaluation()
                    reported, seen = time.monotonic(), self.trainer.tokens
                if self.ranks.any(time.monotonic() - saved > self.config.checkpoint_seconds):
                    self._save(metrics, tell, stop)
                    saved = time.monotonic()
            if self._measured_at != self.trainer.step:
                self._measure(metrics, measured)
            self._save(metrics, tell, stop)
        if self.ranks.first:
            self._export()
            if draw_curve(self.folder) is None:
                tell("no curve.png: it needs matplotlib (pip install 'elmokit[train]')")
        return Outcome(True, self.measured)

    def estimate(self) -> float:
        """Seconds that are left, from two steps that are tried out and taken back."""
        if self.config.budget.hours is not None:
            return max(0.0, 3600 * self.config.budget.hours - self.seconds)
        before = {name: tensor.clone() for name, tensor in self.trainer.state_dict().items()}
        self.trainer.train_step(0.0)  # the first one is slower
        begun, tokens = time.monotonic(), self.trainer.tokens
        self.trainer.train_step(0.0)
        pace = (self.trainer.tokens - tokens) / (time.monotonic() - begun)
        self.trainer.load_state_dict(before)
        assert self.config.budget.tokens is not None
        return max(0.0, (self.config.budget.tokens - self.trainer.tokens) / pace)

    def held_out_sentences(self) -> Iterator[list[str]]:
        """What perplexity is measured on."""
        if self.held_out is None:
            return
        types = self.held_out.types
        for i in range(min(self.held_out.sentences, self.config.held_out_sentences)):
            yield [types[t] for t in self.held_out.sentence(i)]

    def close(self) -> None:
        self.trainer.close()

    def _next_evaluation(self) -> float:
        share = 1 / self.config.evaluations
        return (int(self.progress / share + 1e-9) + 1) * share

    def _report(self, result: StepResult, pace: float, metrics: Metrics, report: Callable[[Report], None]) -> None:
        if not self.ranks.first:
            return
        progress = self.progress
        left = self.seconds / progress * (1 - progress) if progress > 0 else 0.0
        report(Report(self.trainer.step, self.trainer.tokens, progress, pace, left, result))
        metrics.write(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            seconds=round(self.seconds, 3),
            cpu_seconds=round(self.cpu_seconds, 3),
            loss=result.loss,
            loss_forward=result.forward,
            loss_backward=result.backward,
            gradient_norm=result.norm,
            learning_rate=result.learning_rate,
            tokens_per_second=round(pace, 1),
        )

    def _measure(self, metrics: Metrics, tell: Callable[[Perplexity], None]) -> None:
        """Held-out perplexity with the full softmax, by the first rank; the others wait for it."""
        self._measured_at = self.trainer.step
        if self.held_out is None or not self.ranks.first:
            return
        state: Literal["carry", "zero"] = "carry" if self.config.recipe.train.state == "carry" else "zero"
        self.measured = perplexity(self.trainer.model, self.held_out_sentences(), state=state)
        metrics.write(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            seconds=round(self.seconds, 3),
            cpu_seconds=round(self.cpu_seconds, 3),
            perplexity=self.measured.mean,
            perplexity_forward=self.measured.forward,
            perplexity_backward=self.measured.backward,
        )
        tell(self.measured)

    def _save(self, metrics: Metrics, tell: Callable[[str], None], stop: Callable[[], bool]) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in self.trainer.state_dict().items()}
        if not self.ranks.first:
            return
        progress: dict[str, Any] = {
            "step": self.trainer.step,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "metrics_length": metrics.length,
            "perplexity": None if self.measured is None else list(self.measured),
        }
        target = self.folder / CHECKPOINTS / f"step-{self.trainer.step:09d}"
        while True:
            try:
                with replacing_folder(target, overwrite=True) as folder:
                    save_file(tensors, folder / TENSORS)
                    (folder / PROGRESS).write_text(json.dumps(progress))
                break
            except (OSError, SafetensorError) as error:
                if "No space" not in str(error) and getattr(error, "errno", None) != errno.ENOSPC:
                    raise
                if stop():
                    raise
                tell(f"the disk is full, training waits: free some space for {target.parent}")
                time.sleep(SECONDS_BETWEEN_TRIES)
        for old in _checkpoints(self.folder)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _restore(self) -> None:
        problems = []
        for folder in reversed(_checkpoints(self.folder)):
            try:
                tensors = present_names(load_file(folder / TENSORS))
                progress = parse_json((folder / PROGRESS).read_bytes(), folder / PROGRESS)
                self.trainer.load_state_dict(tensors)
            except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
                problems.append(f"{folder.name}: {error}")
                continue
            self.seconds, self._metrics_length = progress["seconds"], progress["metrics_length"]
            self.cpu_seconds = progress.get("cpu_seconds", 0.0)  # 0.1.0 did not count them
            self.measured = Perplexity(*progress["perplexity"]) if progress["perplexity"] else None
            return
        if problems:
            raise UserError(f"no checkpoint in {self.folder} can be read: {'; '.join(problems)}")

    def _export(self) -> None:
        model, measured = self.trainer.model, self.measured
        train, lstm = self.config.recipe.train, model.bilm.config.lstm
        figures = (
            f"forward {measured.forward:.2f}, backward {measured.backward:.2f}, mean {measured.mean:.2f}"
            if measured
            else "not measured"
        )
        model.card = f"""# ELMo model

Pretrained with elmokit {__version__}. Load it with `Elmo.from_pretrained("this folder")`.

| | |
|---|---|
| text | {", ".join(self.config.sources) or "not stated"} |
| tokens | {self.corpus.tokens:,} in the corpus, {self.trainer.tokens:,} seen |
| training | {self.trainer.step:,} steps of {train.rows} x {train.steps}, {self.seconds / 3600:.2f} hours |
| held-out perplexity (full softmax) | {figures} |
| LSTM | {lstm.layers} layers, {lstm.cells} cells projected to {lstm.width} a direction |
| predicts | {len(model.vocabulary or ()):,} words |

Licence of the text and known limits: to be stated by whoever trained it.
"""
        model.save(self.folder / MODEL, overwrite=True)


def _write_config(folder: Path, config: RunConfig) -> None:
    write_file(folder / RUN, json.dumps({"elmokit": __version__, **dump(config)}, indent=1).encode())


def _settings(path: Path) -> dict[str, Any]:
    return {name: value for name, value in parse_json(path.read_bytes(), path).items() if name != "elmokit"}


def _checkpoints(folder: Path) -> list[Path]:
    """Whole ones, oldest first: what a killed process left half written has another name."""
    return sorted((folder / CHECKPOINTS).glob("step-*"))
