"""A training run as one folder that can be stopped at any time and resumed.

run.json        the settings, as they were when the run began (run_config.py)
corpus/         the text, tokenized once: train/ and held-out/ (corpus.py)
start/          the model that training began from, where it did not begin from nothing
checkpoints/    step-N/: everything that the next step depends on; the last two are kept (checkpoints.py)
metrics.jsonl   a line for every report; tensorboard/ the same as events (metrics.py)
model/          the model itself, as `elmo embed --model` reads it; curve.png how it came about
.lock           held by the process that trains
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elmokit.checkpoint import Checkpoint
from elmokit.pretrain.adaptation import fresh_model
from elmokit.pretrain.card import training_card
from elmokit.pretrain.checkpoints import Checkpoints
from elmokit.pretrain.corpus import CorpusParts
from elmokit.pretrain.metrics import Metrics, draw_curve
from elmokit.pretrain.perplexity import Perplexity, perplexity
from elmokit.pretrain.progress import OnTrainingProgress, Plan, Stop, TrainingProgress, never
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.run_config import Budget, RunConfig, read_run_config, write_run_config
from elmokit.pretrain.step import StepResult, Trainer
from elmokit.progress import silent

CORPUS, START, MODEL = "corpus", "start", "model"
STEPS_TO_ESTIMATE = 2  # the first one is slower


class Outcome(NamedTuple):
    finished: bool
    perplexity: Perplexity | None


class _Session(NamedTuple):
    """What one call of `train` writes to, tells and asks."""

    metrics: Metrics
    on_progress: OnTrainingProgress
    stop: Stop


class Run:
    """`create` makes a new one, `open` one that is there. A `corpus` that is open already is not opened again."""

    def __init__(
        self, folder: Path, config: RunConfig, ranks: Ranks | None = None, corpus: CorpusParts | None = None
    ) -> None:
        self.folder, self.config = folder, config
        self.ranks = ranks or Ranks()
        self.corpus = corpus or CorpusParts.open(folder / CORPUS)
        start = folder / START
        self.trainer = Trainer(
            Checkpoint.load(start) if start.is_dir() else fresh_model(config.recipe, self.corpus.train),
            self.corpus.train,
            config.recipe.train,
            config.recipe.optimizer,
            self.ranks,
        )
        self.checkpoints = Checkpoints(folder)
        self.seconds = self.cpu_seconds = 0.0  # of the steps; those of the processor, of all threads and ranks
        self.measured: Perplexity | None = None
        self._measured_at = -1  # step
        self._saved: tuple[int, int] | None = None  # step, and that of the last measurement
        self._metrics_length = 0
        self._within_step = False

    @classmethod
    def create(
        cls, folder: Path, config: RunConfig, ranks: Ranks | None = None, corpus: CorpusParts | None = None
    ) -> Run:
        """A new run over the corpus in folder/corpus."""
        run = cls(folder, config, ranks, corpus)
        if run.ranks.first:
            write_run_config(folder, config)
        return run

    @classmethod
    def open(
        cls,
        folder: Path,
        ranks: Ranks | None = None,
        budget: Budget | None = None,
        corpus: CorpusParts | None = None,
    ) -> Run:
        """A run as its last whole checkpoint left it; another budget than it had is kept from then on."""
        config = read_run_config(folder)
        if budget is not None:
            config = dataclasses.replace(config, budget=budget)
        run = cls(folder, config, ranks, corpus)
        run._restore()
        if budget is not None and run.ranks.first:
            write_run_config(folder, config)
        return run

    @property
    def progress(self) -> float:
        return self.config.budget.progress(self.trainer.tokens, self.seconds)

    @property
    def plan(self) -> Plan:
        trainer, corpus, held_out = self.trainer, self.corpus.train, self.corpus.held_out
        return Plan(
            tokens=corpus.tokens,
            sentences=corpus.sentences,
            types=len(corpus.types),
            held_out=held_out.sentences if held_out else 0,
            words=len(trainer.model.vocabulary or ()),
            sampled=trainer.sampler is not None,
            softmax_width=None if trainer.head.projection_weight is None else trainer.head.softmax_width,
            parameters=sum(p.numel() for p in trainer.bilm.parameters()),
            lstm=trainer.bilm.config.lstm,
            train=self.config.recipe.train,
            optimizer=self.config.recipe.optimizer,
            precision=trainer.precision,
            processes=self.ranks.world,
            budget=self.config.budget,
        )

    def train(self, on_progress: OnTrainingProgress = silent, stop: Stop = never) -> Outcome:
        """Train until the budget is used or `stop` says so; either way everything is on disk afterwards.

        `stop` is asked before every step. So it is with a KeyboardInterrupt from `on_progress` or `stop`: it is
        passed on when everything is saved. `on_progress` is called by the first rank alone.
        """
        with Metrics(self.folder, self._metrics_length) as metrics:
            session = _Session(metrics, on_progress if self.ranks.first else silent, stop)
            try:
                self._check_precision(session)
                if not self._take_steps(session):
                    self._save(session)
                    return Outcome(False, self.measured)
            except KeyboardInterrupt:
                # Within a step, weights and moments are of two ages. Several ranks save together or not at all.
                if not self._within_step and self.ranks.world == 1:
                    self._save(session)
                raise
            if self._measured_at != self.trainer.step:
                self._measure(session)
            self._save(session)
            if self.ranks.first:
                self.export()
                if draw_curve(self.folder) is None:
                    self._say(session, "no curve.png: it needs matplotlib (pip install 'elmokit[train]')")
        return Outcome(True, self.measured)

    def held_out_sentences(self) -> Iterator[list[str]]:
        """What perplexity is measured on."""
        held_out = self.corpus.held_out
        if held_out is not None:
            for i in range(min(held_out.sentences, self.config.held_out_sentences)):
                yield held_out.words(i)

    def close(self) -> None:
        self.trainer.close()

    def _take_steps(self, session: _Session) -> bool:
        """Whether the end of the budget was reached."""
        first = self.trainer.step
        saved = reported = time.monotonic()
        seen = self.trainer.tokens
        due = self._next_evaluation()
        while self.progress < 1:
            if self.ranks.any(session.stop()):
                return False
            result, seconds = self._step()
            if not math.isfinite(result.norm):  # nothing was changed by that step
                self._say(session, f"step {self.trainer.step:,}: the gradient is not finite, the step is left out")
            if self.trainer.step == first + STEPS_TO_ESTIMATE:
                self._show(session, result, result.tokens / max(1e-9, seconds))
            if self.trainer.step % self.config.report_steps == 0:
                now = time.monotonic()
                self._report(session, result, (self.trainer.tokens - seen) / max(1e-9, now - reported))
                seen, reported = self.trainer.tokens, now
            if self.progress >= due:
                self._measure(session)
                due = self._next_evaluation()
                reported, seen = time.monotonic(), self.trainer.tokens
            if self.ranks.any(time.monotonic() - saved > self.config.checkpoint_seconds):
                self._save(session)
                saved = time.monotonic()
        return True

    def _step(self) -> tuple[StepResult, float]:
        """One step, and its seconds."""
        begun, cpu_begun = time.monotonic(), time.process_time()
        self._within_step = True
        result = self.trainer.train_step(self.progress)
        # Of all ranks together: a budget of hours must end, and set the rate, at one time for all.
        elapsed, used = self.ranks.sum(time.monotonic() - begun, time.process_time() - cpu_begun)
        self.seconds += elapsed / self.ranks.world
        self.cpu_seconds += used
        self._within_step = False
        return result, elapsed / self.ranks.world

    def _check_precision(self, session: _Session) -> None:
        asked, possible = self.config.recipe.train.precision, self.trainer.precision
        if asked != possible:
            needs = "native kernels and a processor with AVX512_BF16"
            self._say(session, f"train.precision: {asked} needs {needs}; {possible} it is")

    def _next_evaluation(self) -> float:
        share = 1 / self.config.evaluations
        return (int(self.progress / share + 1e-9) + 1) * share

    def _now(self, stage: Literal["training", "measuring"] = "training", **more: Any) -> TrainingProgress:
        tokens, step = self.trainer.tokens, self.trainer.step
        return TrainingProgress.at(stage, min(1.0, self.progress), tokens=tokens, step=step, **more)

    def _say(self, session: _Session, message: str) -> None:
        session.on_progress(self._now(message=message))

    def _show(self, session: _Session, result: StepResult, pace: float, mean_pace: float | None = None) -> None:
        left = self.config.budget.seconds_left(self.trainer.tokens, self.seconds, mean_pace or pace)
        session.on_progress(self._now(tokens_per_second=pace, seconds_left=left, loss=result.loss))

    def _report(self, session: _Session, result: StepResult, pace: float) -> None:
        if not self.ranks.first:
            return
        self._write(
            session,
            loss=result.loss,
            loss_forward=result.forward,
            loss_backward=result.backward,
            gradient_norm=result.norm,
            learning_rate=result.learning_rate,
            tokens_per_second=round(pace, 1),
        )
        self._show(session, result, pace, self.trainer.tokens / max(1e-9, self.seconds))

    def _measure(self, session: _Session) -> None:
        """Held-out perplexity with the full softmax, by the first rank; the others wait for it."""
        self._measured_at = self.trainer.step
        if self.corpus.held_out is None or not self.ranks.first:
            return
        state: Literal["carry", "zero"] = "carry" if self.config.recipe.train.state == "carry" else "zero"
        self.measured = perplexity(self.trainer.model, self.held_out_sentences(), state=state)
        self._write(
            session,
            perplexity=self.measured.mean,
            perplexity_forward=self.measured.forward,
            perplexity_backward=self.measured.backward,
        )
        session.on_progress(self._now("measuring", perplexity=self.measured))

    def _write(self, session: _Session, **values: float) -> None:
        session.metrics.write(
            step=self.trainer.step,
            tokens=self.trainer.tokens,
            seconds=round(self.seconds, 3),
            cpu_seconds=round(self.cpu_seconds, 3),
            **values,
        )

    def _save(self, session: _Session) -> None:
        if self._saved == (self.trainer.step, self._measured_at):
            return
        tensors = {name: tensor.contiguous() for name, tensor in self.trainer.state_dict().items()}
        if self.ranks.first:
            progress: dict[str, Any] = {
                "step": self.trainer.step,
                "fraction": min(1.0, self.progress),  # of the budget, for whoever asks how far it is
                "seconds": self.seconds,
                "cpu_seconds": self.cpu_seconds,
                "metrics_length": session.metrics.length,
                "perplexity": None if self.measured is None else list(self.measured),
                "measured_at": self._measured_at,
            }
            self.checkpoints.write(
                self.trainer.step,
                tensors,
                progress,
                tell=lambda message: self._say(session, message),
                stop=session.stop,
            )
        self._saved = self.trainer.step, self._measured_at
        self._metrics_length = session.metrics.length

    def _restore(self) -> None:
        progress = self.checkpoints.read(self.trainer.load_state_dict)
        if progress is None:
            return
        self.seconds, self._metrics_length = progress["seconds"], progress["metrics_length"]
        self.cpu_seconds = progress.get("cpu_seconds", 0.0)  # 0.1.0 did not count them
        self.measured = Perplexity(*progress["perplexity"]) if progress["perplexity"] else None
        self._measured_at = progress.get("measured_at", -1)  # nor note this
        self._saved = self.trainer.step, self._measured_at

    def export(self) -> Path:
        """Write the model as it is now to model/, with a card that says how far it was trained."""
        model = self.trainer.model
        model.card = training_card(
            model,
            self.config,
            self.corpus.train,
            tokens=self.trainer.tokens,
            steps=self.trainer.step,
            seconds=self.seconds,
            measured=self.measured,
        )
        model.save(self.folder / MODEL, overwrite=True)
        return self.folder / MODEL
