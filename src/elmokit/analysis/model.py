"""The model that is analysed: an open one, or one by its name, which is opened."""

from __future__ import annotations

from pathlib import Path

from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.text.tokens import TokenizerConfig

Model = Elmo | str | Path  # a name or a folder is as `Elmo.from_pretrained` takes it


def open_model(model: Model, tokenizer: str | TokenizerConfig | None = None) -> Elmo:
    """`tokenizer` is for a model that is opened here: an open one has its own."""
    if isinstance(model, str | Path):
        return Elmo.from_pretrained(model, tokenizer=tokenizer)
    if tokenizer is not None:
        raise UserError("tokenizer: an open model has its own: open it with this one, or give the model's name")
    return model
