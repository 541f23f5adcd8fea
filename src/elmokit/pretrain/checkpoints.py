"""The checkpoints of a run: all that the next step depends on, in folders that are whole or not there.

checkpoints/step-N/training.safetensors   the tensors of model, optimizer, state and place in the text
checkpoints/step-N/progress.json          times, and what was measured
"""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmokit.atomic import replacing_folder
from elmokit.config import present_names, read_json
from elmokit.errors import UserError, clipped

CHECKPOINTS, TENSORS, PROGRESS = "checkpoints", "training.safetensors", "progress.json"
LAST = 2  # number of them that are left
SECONDS_BETWEEN_TRIES = 10.0  # to write on a full disk

Tensors = dict[str, Tensor]


class Checkpoints:
    def __init__(self, run: Path) -> None:
        self.folder = run / CHECKPOINTS

    def folders(self) -> list[Path]:
        """Whole ones, oldest first: what a killed process left half written has another name."""
        return sorted(self.folder.glob("step-*"))

    def folder_of(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}"

    def write(
        self,
        step: int,
        tensors: Tensors,
        progress: dict[str, Any],
        *,
        tell: Callable[[str], None],
        stop: Callable[[], bool],
    ) -> None:
        """A full disk is waited for, until `stop` says so."""
        while True:
            try:
                with replacing_folder(self.folder_of(step), overwrite=True) as folder:
                    save_file(tensors, folder / TENSORS)
                    (folder / PROGRESS).write_text(json.dumps(progress))
                break
            except (OSError, SafetensorError) as error:
                if not _is_full(error) or stop():
                    raise
                tell(f"the disk is full, training waits: free some space for {self.folder}")
                time.sleep(SECONDS_BETWEEN_TRIES)
        for old in self.folders()[:-LAST]:
            shutil.rmtree(old, ignore_errors=True)

    def read(self, load: Callable[[Tensors], None]) -> dict[str, Any] | None:
        """Give the newest one that can be read to `load`; its progress, or None where there is no checkpoint."""
        problems = []
        for folder in reversed(self.folders()):
            try:
                tensors = present_names(load_file(folder / TENSORS))
                progress = read_json(folder / PROGRESS)
                load(tensors)
            except (OSError, UserError, KeyError, RuntimeError, SafetensorError) as error:
                problems.append(f"{folder.name}: {clipped(error, 200)}")
                continue
            return progress
        if problems:
            raise UserError(f"no checkpoint in {self.folder.parent} can be read: {'; '.join(problems)}")
        return None


def _is_full(error: Exception) -> bool:
    return "No space" in str(error) or getattr(error, "errno", None) == errno.ENOSPC
