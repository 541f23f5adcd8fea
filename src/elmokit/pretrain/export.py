"""A stopped run -> a model to use now, from its last checkpoint; the run can still be resumed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from elmokit.errors import UserError
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.run import Run
from elmokit.pretrain.run_config import RUN, read_run_config
from elmokit.pretrain.training import claimed


def export_run(folder: str | Path) -> Path:
    """Write folder/model as the last checkpoint has it; its card says at how much of the budget. Its path.

    A later resume goes on from the same checkpoint, and replaces the model at its end.
    """
    folder = Path(folder)
    if not (folder / RUN).is_file():
        read_run_config(folder)  # says so
    with claimed(folder, Ranks()), closing(Run.open(folder)) as run:
        if not run.trainer.step:
            raise UserError(f"{folder} has no checkpoint to export yet: resume it first")
        return run.export()
