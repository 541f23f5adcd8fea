"""A text to train on, and what a run left behind."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from helpers.training import SMALL, made_up_text

OPTIONS = {"recipe": "tiny", "settings": SMALL, "held_out": 0.1, "evaluations": 2}
TUNING = {"settings": ["train.rows=8", "train.min_count=2"], "held_out": 0.1, "evaluations": 2}


def write_text() -> str:
    Path("text.txt").write_text(made_up_text(120))
    return "text.txt"


def checkpoint(out: str) -> dict[str, torch.Tensor]:
    return load_file(sorted(Path(out, "checkpoints").glob("step-*"))[-1] / "training.safetensors")


def assert_same(one: str, two: str) -> None:
    first, second = checkpoint(one), checkpoint(two)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def budget(out: str) -> dict[str, float | None]:
    return json.loads(Path(out, "run.json").read_bytes())["budget"]
