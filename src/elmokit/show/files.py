"""Where results are written: seen to before the work begins, for what is refused after it is lost."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit


def ready_folder(folder: Path) -> None:
    """Made, and writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder}: expected a folder to write to, found a file in its place") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: expected a folder to write to, found one that may not be written to")


def ready_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: expected the name of a file to write, found a folder")
    ready_folder(path.parent)


def write_exhibits(exhibits: Iterable[Exhibit], folder: Path) -> list[Path]:
    """The files of all of them."""
    return [path for exhibit in exhibits for path in exhibit.write(folder)]
