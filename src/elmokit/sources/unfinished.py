"""A training run that has no model yet: how far it is, and what to do about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUN, CORPUS, RUN_MODEL = "run.json", "corpus", "model"  # of a pretraining run, as pretrain/ writes them
_PROGRESS = "checkpoints/step-*/progress.json"


def is_run(folder: Path) -> bool:
    """A task's run has a run.json too, and no corpus."""
    return (folder / RUN).is_file() and (folder / CORPUS).is_dir()


def describe_unfinished(folder: Path) -> str:
    """What a run without a model says to whoever asks for its model."""
    command = "finetune" if _read(folder / RUN).get("model") else "pretrain"
    checkpoints = sorted(folder.glob(_PROGRESS))
    resume = f"elmo {command} --out {folder} --resume"
    if not checkpoints:
        return f"{folder} is an unfinished run, without a checkpoint yet; resume it with `{resume}`"
    progress = _read(checkpoints[-1])
    done = f"step {progress.get('step', '?')}"
    if isinstance(progress.get("fraction"), float):  # 0.1.0 did not note it
        done = f"{100 * progress['fraction']:.0f} % done"
    export = f"elmo pretrain --out {folder} --export"
    return f"{folder} is an unfinished run, {done}: resume it with `{resume}`, or export it with `{export}`"


def _read(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}
