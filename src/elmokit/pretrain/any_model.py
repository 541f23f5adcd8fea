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


def checkpoint_to_read(model: AnyModel) -> Checkpoint:
    """As `checkpoint_of`, for those who only read: the weights of an open model stay its own (see `Elmo.bilm`)."""
    return model._checkpoint if isinstance(model, Elmo) else checkpoint_of(model)
