"""Many runs of tasks, in parallel processes: what is done is not done again, what was begun is finished.

OUT/TASK/VARIANT/seed-N is a run of `elmo task train`, with its log beside it. Sweeps share OUT: what one has done,
another finds done. OUT/study.json says of which model and recipe, OUT/TASK/data.json of which data.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit import __version__
from elmokit.atomic import write_file
from elmokit.config import parse_json
from elmokit.errors import UserError
from elmokit.study.data import StudyData, TaskData, missing
from elmokit.tasks import task_class
from elmokit.tasks.prepare import settings_of
from elmokit.tasks.task import TrainConfig

STUDY, DATA, RESULTS = "study.json", "data.json", "results.json"


@dataclass(frozen=True)
class Variant:
    name: str
    elmo: bool = True
    place: str = "input"
    layers: str = "all"
    penalty: float = 0.001
    share: float = 1.0  # of the training examples

    def options(self, model: str) -> list[str]:
        if not self.elmo:
            return []
        return ["--elmo", model, "--place", self.place, "--layers", self.layers, "--lambda", str(self.penalty)]


BASELINE = Variant("baseline", elmo=False)
ELMO = Variant("elmo")
WEIGHTING = (BASELINE, Variant("last", layers="last"), Variant("lambda-1", penalty=1.0), ELMO)  # Table 2
PLACEMENT = (BASELINE, ELMO, Variant("both", place="both"), Variant("output", place="output"))  # Table 3


def sample_variants(shares: Sequence[float]) -> tuple[Variant, ...]:
    """Figure 1: the baseline and ELMo at every share."""
    return tuple(
        Variant(kind if share == 1 else f"{kind}-{share:g}", elmo=kind == "elmo", share=share)
        for share in shares
        for kind in ("baseline", "elmo")
    )


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    task: str
    variant: Variant
    seed: int
    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / RESULTS).is_file()

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"


@dataclass(frozen=True)
class Measured:
    """What a run came to."""

    task: str
    variant: str
    seed: int
    metric: str
    score: float  # on dev, of the best epoch
    seconds: float
    examples: int  # trained on
    by_epoch: tuple[float, ...]
    mix: dict[str, Any]  # place -> layers, s, gamma


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
        _claim({out / STUDY: study, **{out / task / DATA: data.facts(task) for task in tasks}})

    def run(
        self, jobs: int, finished: Callable[[Trial, Measured | None], None] = lambda trial, result: None
    ) -> list[Trial]:
        """Run what is not done, `jobs` at a time; the trials that failed."""
        waiting = iter([trial for trial in self.trials if not trial.done])
        failed: list[Trial] = []
        running: dict[Future[None], Trial] = {}
        with ThreadPoolExecutor(jobs) as pool:
            while True:
                while len(running) < jobs and not self.stopped and (trial := next(waiting, None)):
                    running[pool.submit(self._train, trial)] = trial
                if not running:
                    return failed
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    trial = running.pop(future)
                    future.result()
                    if trial.done:
                        finished(trial, read_result(trial))
                    elif not self.stopped:
                        failed.append(trial)
                        finished(trial, None)

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
        table = parse_json(path.read_bytes(), path)
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


def _claim(claims: Mapping[Path, Mapping[str, Any]]) -> None:
    """What a folder's runs are made of holds while it has any. Where one claim is refused, none is written."""
    held = [path for path in claims if path.is_file() and any(path.parent.glob("**/seed-*/*"))]
    for path in held:
        check_facts(path, claims[path])
    for path, facts in claims.items():
        if path not in held:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps({"elmokit": __version__, **facts}, indent=1).encode())


def check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """A folder holds the runs of one model, one recipe, one set of data: others would stand in the same table."""
    table = parse_json(path.read_bytes(), path)
    for name, value in facts.items():
        if table.get(name) != value:
            found = f"another {name} ({table.get(name)}, not {value})"
            raise UserError(f"{path.parent} holds runs with {found}: choose another folder")


def check_data(out: Path, task: str, data: StudyData) -> None:
    """A folder of before does not say of which data it is, and is taken at its word."""
    path = out / task / DATA
    if path.is_file() and task in data.tasks:
        check_facts(path, data.facts(task))


def read_study(out: Path) -> dict[str, Any]:
    """Of which model, recipe and settings a folder's runs are."""
    path = out / STUDY
    if not path.is_file():
        raise UserError(f"{out} holds no study: it has no {STUDY}")
    return parse_json(path.read_bytes(), path)


def read_results(out: Path, tasks: Sequence[str], variants: Sequence[Variant], digest: str) -> list[Measured]:
    """Of all seeds that are done in a folder of this model's runs."""
    read_study(out)
    check_facts(out / STUDY, {"model": digest})
    found = []
    for task in tasks:
        for variant in variants:
            for path in sorted((out / task / variant.name).glob(f"seed-*/{RESULTS}")):
                seed = int(path.parent.name.removeprefix("seed-"))
                found.append(read_result(Trial(task, variant, seed, path.parent)))
    return found


def read_result(trial: Trial) -> Measured:
    path = trial.folder / RESULTS
    table = parse_json(path.read_bytes(), path)
    return Measured(
        task=trial.task,
        variant=trial.variant.name,
        seed=trial.seed,
        metric=table["metric"],
        score=table["score"],
        seconds=table["seconds"],
        examples=table["examples"][0],
        by_epoch=tuple(epoch["scores"][table["metric"]] for epoch in table["epochs"]),
        mix=table["mix"],
    )
