"""The one path of pretraining and finetuning: a run is begun or resumed, trained, and compared with its start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from elmokit.checkpoint import Checkpoint
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError, listed_paths
from elmokit.pretrain.comparison import Comparison, compare, first_sentences
from elmokit.pretrain.corpus import Corpus, CorpusParts
from elmokit.pretrain.interruption import interruption
from elmokit.pretrain.perplexity import Perplexity
from elmokit.pretrain.preparation import ReadingProgress, prepare
from elmokit.pretrain.progress import OnTrainingProgress, Stop, TrainingProgress, never
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.request import FINETUNE, SPLIT, Request
from elmokit.pretrain.run import CORPUS, START, Run
from elmokit.pretrain.run_config import RUN, Budget, read_run_config
from elmokit.pretrain.step import TrainConfig
from elmokit.progress import silent
from elmokit.text.tokens import make_tokenizer


class Trained(NamedTuple):
    """What pretraining came to. The folder of the run holds the same model in `model/` when it is finished."""

    model: Elmo  # where training was stopped, as it was then
    finished: bool
    step: int
    fraction: float  # of the budget
    perplexity: Perplexity | None  # of the held-out text, as it was last measured
    comparisons: tuple[Comparison, ...] = ()  # finetuning that is finished: before and after, text by text


class Start(NamedTuple):
    """A model to begin from, and what is made of it when the words of the text are known."""

    model: Checkpoint
    complete: Callable[[Checkpoint, Corpus, TrainConfig], Checkpoint]


class Training:
    """`start` is asked for the model to begin from when a run begins; None: from nothing."""

    def __init__(
        self,
        request: Request,
        out: Path,
        start: Callable[[Recipe], Start | None],
        on_progress: OnTrainingProgress | None,
        stop: Stop | None,
        general: tuple[str, ...] = (),
    ) -> None:
        self.request, self.out, self.start, self.general = request, out, start, general
        self.ranks = Ranks.from_environment()
        self.on_progress = on_progress if on_progress is not None and self.ranks.first else silent
        self.stop = stop or never

    def carry_out(self, resume: bool | None) -> Trained:
        try:
            # The first rank decides: the others may look when it has begun to write.
            found = self.ranks.any(self.ranks.first and (self.out / RUN).is_file())
            if found and resume is False:
                raise UserError(f"{self.out} exists already: choose another name, or --resume its run")
            run = self._resume() if found or resume else self._begin()
            with closing(run):
                return self._train(run)
        finally:
            self.ranks.close()

    def _begin(self) -> Run:
        request, ranks = self.request, self.ranks
        texts, recipe = request.new_texts(), request.new_recipe()
        config = request.new_config(recipe, Budget(tokens=1))  # refuses what is wrong before the text is read
        if ranks.first:
            _check_free(self.out)
            start = self.start(recipe)
            corpus = self._read_text(texts, recipe, start)
            if start is not None:
                model = start.complete(start.model, corpus.train, recipe.train)
                model.save(self.out / START, overwrite=True)
        ranks.wait()  # until the first has written all this
        if not ranks.first:
            corpus = CorpusParts.open(self.out / CORPUS)
        config = dataclasses.replace(config, budget=request.budget(corpus.train))
        return Run.create(self.out, config, ranks, corpus)

    def _read_text(self, texts: Sequence[str], recipe: Recipe, start: Start | None) -> CorpusParts:
        request, last = self.request, ReadingProgress(0, 0, 0, 0.0, 0)

        def report(now: ReadingProgress) -> None:
            nonlocal last
            last = now
            self.on_progress(TrainingProgress.at("reading", now.fraction, tokens=now.tokens))

        self.out.mkdir(parents=True, exist_ok=True)
        corpus = prepare(
            texts,
            self.out / CORPUS,
            make_tokenizer(recipe.tokenizer if start is None else start.model.tokenizer),
            split=SPLIT[request.sentences or "auto"],
            held_out=request.defaults.held_out if request.held_out is None else request.held_out,
            seed=recipe.train.seed,
            on_bad_line=request.on_bad_line or "refuse",
            columns=request.columns,
            workers=request.workers,
            report=report,
            overwrite=(self.out / CORPUS).exists(),
        )
        if last.skipped:
            message = f"skipped {last.skipped:,} lines that cannot be read"
            self.on_progress(TrainingProgress.at("reading", 1.0, tokens=last.tokens, message=message))
        return corpus

    def _resume(self) -> Run:
        config = read_run_config(self.out)
        corpus = CorpusParts.open(self.out / CORPUS)
        has_start, finetunes = (self.out / START).is_dir(), self.request.defaults is FINETUNE
        if (finetunes and not has_start) or (not finetunes and config.model is not None):
            command = "pretrain" if finetunes else "finetune"
            raise UserError(f"{self.out} holds a run that {command} began: resume it with {command}")
        start_is_known = config.model is not None or config.vectors is not None or not has_start
        self.request.check_same(self.out, config, corpus.train, start_is_known)
        budget = self.request.budget(corpus.train) if self.request.has_budget else None
        return Run.open(self.out, self.ranks, budget, corpus)

    def _train(self, run: Run) -> Trained:
        done, tokens, step = min(1.0, run.progress), run.trainer.tokens, run.trainer.step
        self.on_progress(TrainingProgress.at("training", done, tokens=tokens, step=step, plan=run.plan))
        with interruption() as interrupted:
            outcome = run.train(self.on_progress, lambda: interrupted() or self.stop())
            if interrupted() and not outcome.finished:
                raise KeyboardInterrupt
        comparisons = self._compare(run) if outcome.finished and self.ranks.first else ()
        fraction = min(1.0, run.progress)
        model = Elmo(run.trainer.model)
        return Trained(model, outcome.finished, run.trainer.step, fraction, outcome.perplexity, comparisons)

    def _compare(self, run: Run) -> tuple[Comparison, ...]:
        if self.request.defaults is not FINETUNE:
            return ()
        most, after = run.config.held_out_sentences, run.trainer.model
        texts = {}
        if run.corpus.held_out is not None:
            texts["domain, held out"] = list(run.held_out_sentences())
        if self.general:
            name = f"general ({listed_paths(self.general, 3)})"
            texts[name] = first_sentences(self.general, after.tokenizer, most, self.request.columns)
        return compare(Checkpoint.load(self.out / START), after, texts, self.on_progress)


def _check_free(out: Path) -> None:
    """Free is also what holds nothing but what a run that never came to begin has left."""
    if not out.exists():
        return
    ours = (CORPUS, START)
    if not out.is_dir() or any(p.name not in ours and not p.name.startswith(".") for p in out.iterdir()):
        raise UserError(f"{out} exists already, and holds no run to resume: choose another name")
