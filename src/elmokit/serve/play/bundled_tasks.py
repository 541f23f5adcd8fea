"""Small trained tasks that come with the package, each with ELMo and without: for a playground that is given none.

Their folders are those of `TaskModel.save`, but without the biLM: that is the bundled model's, and where a served
model has its digest, the one in memory is used. Nothing is opened before it is asked for. tools/play_tasks.py
makes them; data/tasks/README.md is their card.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from elmokit.data import HERE
from elmokit.embed.embedder import Elmo
from elmokit.tasks.model import TaskModel

TASKS = HERE / "tasks"
MANIFEST = TASKS / "tasks.json"


@dataclass(frozen=True)
class BundledTask:
    """One of a pair."""

    pair: str  # such as "ner-en"
    with_elmo: bool
    model: TaskModel
    metric: str
    score: float  # of this folder, on the development data, in per cent


def bundled_folder(name: str) -> Path:
    return TASKS / name


@cache
def bundled_pairs() -> list[dict[str, Any]]:
    """What tools/play_tasks.py wrote down: names, folders, scores, and the biLM's name and digest."""
    pairs: list[dict[str, Any]] = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.is_file() else []
    return pairs


@lru_cache(maxsize=8)
def bundled_tasks(elmo: Elmo) -> list[BundledTask]:
    """Those that were trained with this biLM, whatever its name: first without ELMo, then with it."""
    return [
        BundledTask(
            pair["name"],
            kind == "elmo",
            TaskModel.load(bundled_folder(pair[kind]["folder"]), elmo=elmo if kind == "elmo" else None),
            pair["metric"],
            pair[kind]["scores"][pair["metric"]],
        )
        for pair in bundled_pairs()
        if pair["elmo"]["digest"] == elmo.digest
        for kind in ("baseline", "elmo")
    ]
