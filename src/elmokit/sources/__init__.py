"""From a name to a checkpoint: a folder, a bundled model or one on the hub, in any format."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from elmokit.checkpoint import Checkpoint
from elmokit.config import suggest
from elmokit.errors import UserError
from elmokit.sources.bundled import bundled_folder, bundled_names
from elmokit.sources.folder import kind_of, model_in, read_folder
from elmokit.sources.unfinished import RUN_MODEL, describe_unfinished, is_run


def open_checkpoint(source: str | Path, revision: str | None = None) -> Checkpoint:
    """A folder in any known format, one of a training run, a bundled model by name, or "owner/name" on the hub.

    revision    of a model on the hub: a branch, a tag or a commit hash; also "owner/name@revision".
    """
    return read_folder(locate(source, revision))


def locate(source: str | Path, revision: str | None = None) -> Path:
    """The folder of a model: an existing folder, else a bundled model's, else one fetched from the hub.

    A `Path` is a folder's or a bundled model's: only text is ever looked up on the network, and only if no folder
    here could be meant: neither it nor its parent exists. "owner/name@main" is the hub's in any case.
    """
    folder, name = Path(source), str(source)
    known = bundled_names()
    if folder.is_dir() or (not folder.exists() and name in known):
        if revision is not None:
            raise UserError(
                f"revision={revision!r} goes with a Hugging Face Hub id; {name} is a model's folder here"
            )
        return model_in(folder) if folder.is_dir() else bundled_folder(name)
    if "/" in name and "@" not in name and not folder.exists() and folder.parent.is_dir():
        raise UserError(_missing(folder))
    if isinstance(source, str) and "/" in source and not folder.exists():
        from elmokit.sources.hub import fetch

        return fetch(source, revision)
    what = "is a file, not a model folder" if folder.exists() else "is no folder"
    hint = suggest(name, known) if known else "this release bundles none: give a folder's path"
    raise UserError(f"{name} {what} and no bundled model; {hint} (on the Hugging Face Hub: owner/name)")


def _missing(folder: Path) -> str:
    """Of a path that does not exist, in a folder that does: the nearest that was perhaps meant."""
    parent = folder.parent
    if folder.name == RUN_MODEL and is_run(parent):
        return describe_unfinished(parent)
    if kind_of(parent) is not None:
        return f"{folder} is no folder: did you mean {parent}?"
    near = get_close_matches(folder.name, sorted(path.name for path in parent.iterdir() if path.is_dir()), n=1)
    hint = f"did you mean {parent / near[0]}?" if near else f"there is no {folder.name} in {parent}"
    return f"{folder} is no folder: {hint} (a model on the Hugging Face Hub: owner/name@main)"
