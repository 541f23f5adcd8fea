"""A folder of runs: of which model, recipe and data they are, and what each came to.

OUT/study.json says of which model and recipe, OUT/TASK/data.json of which data, OUT/TASK/VARIANT/seed-N is a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit import __version__
from elmokit.atomic import write_file
from elmokit.config import read_json
from elmokit.errors import UserError
from elmokit.study.data import StudyData
from elmokit.study.variants import Variant

STUDY, DATA, RESULTS = "study.json", "data.json", "results.json"


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


def claim(claims: Mapping[Path, Mapping[str, Any]]) -> None:
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
    table = read_json(path)
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
    return read_json(path)


def read_results(out: Path, tasks: Sequence[str], variants: Sequence[Variant], digest: str) -> list[Measured]:
    """Of all seeds that are done in a folder of this model's runs."""
    read_study(out)
    check_facts(out / STUDY, {"model": digest})
    found = []
    for task in tasks:
        for variant in variants:
            for path in sorted((out / task / variant.name).glob(f"seed-*/{RESULTS}")):
                seed = path.parent.name.removeprefix("seed-")
                if seed.isdecimal():  # else a copy that somebody keeps beside the runs
                    found.append(read_result(Trial(task, variant, int(seed), path.parent)))
    return found


def read_result(trial: Trial) -> Measured:
    path = trial.folder / RESULTS
    table = read_json(path)
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
