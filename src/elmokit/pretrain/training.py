"""The one path of pretraining and finetuning: a run is begun or resumed, trained, and compared with its start."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from elmokit.atomic import remove_all_leftovers
from elmokit.checkpoint import Checkpoint
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError, listed_paths
from elmokit.lock import Lock
from elmokit.pretrain.checkpoints import CHECKPOINTS, Checkpoints
from elmokit.pretrain.comparison import Comparison, compare, first_sentences
from elmokit.pretrain.corpus import META, TRAIN, Corpus, CorpusParts
from elmokit.pretrain.interruption import interruption
from elmokit.pretrain.metrics import EVENTS, FILE
from elmokit.pretrain.perplexity import Perplexity
from elmokit.pretrain.preparation import ReadingProgress, prepare
from elmokit.pretrain.progress import OnTrainingProgress, Stop, TrainingProgress, never
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.request import FINETUNE, SPLIT, Request
from elmokit.pretrain.run import CORPUS, START, Run
from elmokit.pretrain.run_config import RUN, Budget, RunConfig, read_run_config
from elmokit.pretrain.step import TrainConfig
from elmokit.progress import silent
from elmokit.text.tokens import make_tokenizer

LOCK = ".lock"


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
        was_there = self.out.is_dir()
        try:
            with claimed(self.out, self.ranks):
                # The first rank decides: the others may look when it has begun to write.
                found = self.ranks.any(self.ranks.first and (self.out / RUN).is_file())
                if found and resume is False:
                    raise UserError(f"{self.out} exists already: choose another name, or --resume its run")
                if resume and not found and was_there and _is_free(self.out):
                    raise UserError(
                        f"{self.out} was stopped before training began, so there is nothing to resume: begin it "
                        f"again with its text"
                    )
                again = self.ranks.any(self.ranks.first and found and not resume and self._may_begin_again())
                run = self._begin() if again or not (found or resume) else self._resume()
                with closing(run):
                    return self._train(run)
        finally:
            self.ranks.close()

    def _may_begin_again(self) -> bool:
        """Whether other settings are asked of a run that has no step to lose: one that they were to mend."""
        if self.request.texts is None or Checkpoints(self.out).folders():
            return False
        try:
            self._check_same()
        except UserError:
            return True
        return False

    def _begin(self) -> Run:
        request, ranks = self.request, self.ranks
        texts, recipe = request.new_texts(), request.new_recipe()
        config = request.new_config(recipe, Budget(tokens=1))  # refuses what is wrong before the text is read
        if ranks.first:
            if self.out.exists() and not _is_free(self.out):
                raise UserError(f"{self.out} exists already, and holds no run to resume: choose another name")
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

        self._clear()
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

    def _clear(self) -> None:
        """Of a run that took no step."""
        (self.out / RUN).unlink(missing_ok=True)  # first: without it the rest is nothing
        (self.out / FILE).unlink(missing_ok=True)
        for name in (EVENTS, START, CHECKPOINTS):
            shutil.rmtree(self.out / name, ignore_errors=True)
        if not (self.out / CORPUS / TRAIN / META).is_file():
            shutil.rmtree(self.out / CORPUS, ignore_errors=True)

    def _check_same(self) -> tuple[RunConfig, CorpusParts]:
        """Of the run that is there: its settings and its text, if nothing else is asked."""
        config = read_run_config(self.out)
        corpus = CorpusParts.open(self.out / CORPUS)
        has_start, finetunes = (self.out / START).is_dir(), self.request.defaults is FINETUNE
        if (finetunes and not has_start) or (not finetunes and config.model is not None):
            command = "pretrain" if finetunes else "finetune"
            raise UserError(f"{self.out} holds a run that {command} began: resume it with {command}")
        start_is_known = config.model is not None or config.vectors is not None or not has_start
        self.request.check_same(self.out, config, corpus.train, start_is_known)
        return config, corpus

    def _resume(self) -> Run:
        _, corpus = self._check_same()
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


def _is_free(out: Path) -> bool:
    """Free is also what holds nothing but what a run that never took a step has left."""
    if not out.is_dir():
        return False
    ours = {RUN, CORPUS, START, FILE, EVENTS, CHECKPOINTS}
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    return names <= ours and not Checkpoints(out).folders()


@contextmanager
def claimed(out: Path, ranks: Ranks) -> Iterator[None]:
    """Within, the run's folder is this process' alone, and rid of what killed ones left half written.

    A folder that is made for it and stays empty is removed again.
    """
    if not ranks.first:
        yield
        return
    made = not out.exists()
    if not made and not out.is_dir():
        raise UserError(f"{out} exists already, and is no folder: choose another name")
    out.mkdir(parents=True, exist_ok=True)
    try:
        with Lock(out / LOCK, f"another process is training in {out}: wait for it, or stop it"):
            for folder in (out, out / CHECKPOINTS):
                remove_all_leftovers(folder)
            yield
    finally:
        if made and not any(out.iterdir()):
            out.rmdir()
