"""Where a model was opened, so that a copy of it in another process can be opened there too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError


@dataclass(frozen=True)
class Origin:
    name: str
    read: Callable[..., Checkpoint]
    arguments: tuple[Any, ...]

    def open(self, digest: str) -> Checkpoint:
        """The same model, and no other that has come to its place."""
        try:
            checkpoint = self.read(*self.arguments)
        except (UserError, OSError) as error:
            raise UserError(f"this Elmo was pickled by its source, which cannot be opened here: {error}") from None
        if checkpoint.digest != digest:
            raise UserError(
                f"this Elmo was pickled by its source, {self.name}, which has other weights here: expected digest "
                f"{digest[:12]}, found {checkpoint.digest[:12]}; open it as it is now by Elmo.from_pretrained"
            )
        return checkpoint


def absolute(source: str | Path) -> str | Path:
    """A path that holds wherever the other process works; names of bundled models and on the hub stay names."""
    path = Path(source)
    return path.absolute() if path.exists() else source
