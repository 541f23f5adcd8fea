"""From a name to a checkpoint: a folder, a bundled model or one on the hub, in any format."""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoint import Checkpoint
from elmokit.config import suggest
from elmokit.errors import UserError
from elmokit.sources.bundled import bundled_folder, bundled_names
from elmokit.sources.folder import model_in, read_folder


def open_checkpoint(source: str | Path, revision: str | None = None) -> Checkpoint:
    """A folder in any known format, one of a training run, a bundled model by name, or "owner/name" on the hub.

    revision    of a model on the hub: a branch, a tag or a commit hash; also "owner/name@revision".
    """
    return read_folder(locate(source, revision))


def locate(source: str | Path, revision: str | None = None) -> Path:
    """The folder of a model: an existing folder, else a bundled model's, else one fetched from the hub.

    A `Path` is a folder's or a bundled model's: only text is ever looked up on the network.
    """
    folder, name = Path(source), str(source)
    known = bundled_names()
    if folder.is_dir() or (not folder.exists() and name in known):
        if revision is not None:
            raise UserError(
                f"revision={revision!r} goes with a Hugging Face Hub id; {name} is a model's folder here"
            )
        return model_in(folder) if folder.is_dir() else bundled_folder(name)
    if isinstance(source, str) and "/" in source and not folder.exists():
        from elmokit.sources.hub import fetch

        return fetch(source, revision)
    what = "is a file, not a model folder" if folder.exists() else "is no folder"
    hint = suggest(name, known) if known else "this release bundles none: give a folder's path"
    raise UserError(f"{name} {what} and no bundled model; {hint} (on the Hugging Face Hub: owner/name)")
