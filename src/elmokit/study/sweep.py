"""Many runs of tasks, in parallel processes: what is done is not done again, what was begun is finished.

OUT/TASK/VARIANT/seed-N is a run of `elmo task train`, with its log beside it. Sweeps share OUT: what one has done,
another finds done.

Sample sizes: where a variant has a share of the training data, it trains longer on less, (1 / share) ^ (1/3) times
the epochs of the recipe, its rate decays as much more slowly, and it does not stop early: as many epochs as on the
whole would leave it untrained, and the luck of an untrained model's first guesses would end it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from elmokit.atomic import write_file
from elmokit.config import read_json
from elmokit.errors import UserError
from elmokit.study.data import StudyData, TaskData, missing
from elmokit.study.runs import DATA, STUDY, Measured, Trial, claim, read_result
from elmokit.study.variants import Variant
from elmokit.tasks import task_class
from elmokit.tasks.prepare import settings_of
from elmokit.tasks.task import TrainConfig

SECONDS_BETWEEN_LOOKS = 0.25  # whether to stop


class Sweep:
    """Tasks x variants x seeds over one folder."""

    def __init__(
        self,
        out: Path,
        data: StudyData,
        tasks: Sequence[str],
        variants: Sequence[Variant],
        *,
        model: str,
        digest: str,
        seeds: int = 3,
        recipe: str = "laptop",
        settings: Sequence[str] = (),
        cache: Path | None = None,
    ) -> None:
        if seeds < 1:
            raise UserError(f"seeds: expected 1 or more, found {seeds}")
        if not tasks:
            named = ", ".join(data.tasks)
            raise UserError(
                "the data has no task whose files are there: "
                + (f"it names {named}, and --tasks NAME says what one lacks" if named else "it names none")
            )
        if missing(data.vectors):
            raise UserError(f"vectors: there is no file {data.vectors}")
        tasks = list(dict.fromkeys(tasks))
        self.out, self.data, self.model, self.recipe = out, data, model, recipe
        self.settings, self.cache = tuple(settings), cache
        self._training = {task: self._checked(task) for task in tasks}  # before the folder is claimed
        # Seed by seed, so that a table is there early.
        self.trials = [
            Trial(task, variant, seed, out / task / variant.name / f"seed-{seed}")
            for seed in range(seeds)
            for task in tasks
            for variant in variants
        ]
        self.stopped = False
        self._processes: set[subprocess.Popen[bytes]] = set()
        study = {"model": digest, "recipe": recipe, "settings": list(self.settings)}
        claim({out / STUDY: study, **{out / task / DATA: data.facts(task) for task in tasks}})

    def run(
        self,
        jobs: int,
        on_trial: Callable[[Trial, Measured | None], None] = lambda trial, measured: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Trial]:
        """Run what is not done, `jobs` at a time; the trials that failed.

        on_trial   told of every run that ends: what it came to, or None where it failed.
        stop       asked again and again: where it says so, the runs at hand are ended and no others begun.
        """
        waiting = iter([trial for trial in self.trials if not trial.done])
        failed: list[Trial] = []
        running: dict[Future[None], Trial] = {}
        with ThreadPoolExecutor(jobs) as pool:
            try:
                while True:
                    if stop() and not self.stopped:
                        self.stop()
                    while len(running) < jobs and not self.stopped and (trial := next(waiting, None)):
                        running[pool.submit(self._train, trial)] = trial
                    if not running:
                        return failed
                    for future in wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED).done:
                        trial = running.pop(future)
                        future.result()
                        if trial.done:
                            on_trial(trial, read_result(trial))
                        elif not self.stopped:
                            failed.append(trial)
                            on_trial(trial, None)
            except BaseException:  # Ctrl-C too: processes of their own do not see it
                self.stop()
                raise

    def stop(self) -> None:
        """End the runs at hand, which keep the epochs that they have done, and begin no others."""
        self.stopped = True
        for process in tuple(self._processes):
            process.terminate()

    def results(self) -> list[Measured]:
        """Of all that is done."""
        return [read_result(trial) for trial in self.trials if trial.done]

    def command(self, trial: Trial) -> list[str]:
        """Of `elmo`, as a user would give it."""
        data: TaskData = self.data.task(trial.task)
        line = ["task", "train", trial.task, "--train", data.train, "--dev", data.dev]
        line += ["--out", str(trial.folder), "--seed", str(trial.seed), "--recipe", self.recipe, "--threads", "1"]
        if self.data.vectors is not None:
            line += ["--vectors", self.data.vectors]
        if self.cache is not None:
            line += ["--cache", str(self.cache)]
        line += trial.variant.options(self.model)
        settings = [*data.settings, *self.settings]
        limit = data.limit
        if trial.variant.share < 1:
            limit = max(1, round(trial.variant.share * (limit or self._examples(trial.task))))
            settings += _longer(self._training[trial.task], trial.variant.share)
        if limit is not None:
            line += ["--limit", str(limit)]
        return line + [part for setting in settings for part in ("--set", setting)]

    def _train(self, trial: Trial) -> None:
        trial.folder.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        line = [sys.executable, "-m", "elmokit", *self.command(trial)]
        with trial.log.open("ab") as log:
            process = subprocess.Popen(line, stdout=log, stderr=log, env=environment, start_new_session=True)
            self._processes.add(process)
            if self.stopped:
                process.terminate()
            process.wait()
            self._processes.discard(process)

    def _examples(self, task: str) -> int:
        """How many the training file holds; kept with the file's name, for a large one takes its time."""
        path = self.out / task / DATA
        table = read_json(path)
        if "examples" not in table:
            table["examples"] = len(task_class(task).read(Path(self.data.task(task).train)))
            write_file(path, json.dumps(table, indent=1).encode())
        return int(table["examples"])

    def _checked(self, task: str) -> TrainConfig:
        """As `elmo task train` would find the recipe and the settings."""
        data = self.data.task(task)
        settings = (*data.settings, *self.settings)
        try:
            return settings_of(task_class(task), self.recipe, settings)[1]
        except UserError as error:
            raise UserError(f"{task}: {error}") from None


def _longer(train: TrainConfig, share: float) -> Iterator[str]:
    longer = share ** (-1 / 3)
    epochs = math.ceil(train.epochs * longer)
    yield f"train.epochs={epochs}"
    yield f"train.patience={epochs}"
    yield f"train.decay={train.decay ** (1 / longer):.6g}"
