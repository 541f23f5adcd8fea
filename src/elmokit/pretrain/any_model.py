"""A model however it is named: bundled, a folder's, the hub's, or open already."""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoint import Checkpoint
from elmokit.embed.embedder import Elmo
from elmokit.sources import open_checkpoint

AnyModel = str | Path | Elmo | Checkpoint


def checkpoint_of(model: AnyModel) -> Checkpoint:
    if isinstance(model, Elmo):
        return model.checkpoint
    return model if isinstance(model, Checkpoint) else open_checkpoint(model)
