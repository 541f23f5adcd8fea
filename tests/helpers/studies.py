"""A folder of data and runs as a study leaves them, pretended."""

from __future__ import annotations

import json
from pathlib import Path

from elmokit.study.data import open_data
from elmokit.study.sweep import Sweep
from elmokit.study.variants import BASELINE, ELMO

TASKS = Path(__file__).parent.parent / "tasks"


SCORES = {"baseline": [80.0, 81.0, 82.0], "elmo": [85.0, 86.0, 87.0], "both": [84.0] * 3, "output": [70.0] * 3}


def write_data(folder):
    folder.mkdir()
    for name in ("pos.conllu", "ner.conll"):
        (folder / name).write_bytes((TASKS / name).read_bytes())
    (folder / "study.toml").write_text(
        "\n".join(
            f'[tasks.{name}]\ntitle = "our {name}"\ntrain = "{file}"\ndev = "{file}"\npaper = 21'
            for name, file in (("pos", "pos.conllu"), ("ner", "ner.conll"))
        )
    )
    return folder


def make_sweep(tmp_path, data, variants=(BASELINE, ELMO), tasks=("pos", "ner"), **options):
    return Sweep(tmp_path / "runs", open_data(data), tasks, variants, model="M", digest="d1", **options)


def pretend(sweep, monkeypatch, scores=SCORES):
    """Runs that end at once, with known scores; the folders that were run are returned."""
    ran = []

    def train(trial):
        ran.append(trial)
        name = trial.variant.name
        mix = {p: {"s": [0.2, 0.5, 0.3], "gamma": 1.5} for p in ("input", "output")} if trial.variant.elmo else {}
        write_result(trial.folder, scores[name][trial.seed], mix)

    monkeypatch.setattr(sweep, "_train", train)
    return ran


def write_result(folder, score, mix=None, examples=40):
    folder.mkdir(parents=True, exist_ok=True)
    epochs = [{"scores": {"f1": score - 2}}, {"scores": {"f1": score}}]
    table = {"metric": "f1", "score": score, "seconds": 60.0, "examples": [examples, 10], "epochs": epochs}
    (folder / "results.json").write_text(json.dumps({**table, "mix": mix or {}}))
