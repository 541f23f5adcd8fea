"""From a name to a checkpoint: whatever ELMo it is, `open_checkpoint` finds it and finds out how to read it."""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoint import CONFIG, Checkpoint, is_checkpoint
from elmokit.config import suggest
from elmokit.data import MODELS
from elmokit.errors import UserError


def bundled_names() -> list[str]:
    return sorted(path.parent.name for path in MODELS.glob(f"*/{CONFIG}"))


def bundled_folder(name: str) -> Path:
    return MODELS / name


def find_published(folder: Path) -> tuple[Path, Path] | None:
    """The options and weights of a folder as bilm-tf's: options.json and weights.hdf5, or names that end so."""
    options = sorted(folder.glob("*options.json"))
    weights = sorted([*folder.glob("*.hdf5"), *folder.glob("*.h5")])
    if not options or not weights:
        return None
    if len(options) > 1 or len(weights) > 1:
        names = ", ".join(path.name for path in [*options, *weights])
        raise UserError(f"{folder}: expected one options file and one weights file, found {names}: name the pair")
    return options[0], weights[0]


def kind_of(folder: Path) -> str | None:
    """'elmokit', 'bilm' (bilm-tf, AllenNLP), 'many-langs' (ELMoForManyLangs), or None."""
    if is_checkpoint(folder):
        return "elmokit"
    if find_published(folder):  # before what holds pickles: a folder from the hub is never read as such
        return "bilm"
    pickled = (folder / "encoder.pkl").is_file() or (folder / "token_embedder.pkl").is_file()
    return "many-langs" if pickled else None


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
        return folder if folder.is_dir() else bundled_folder(name)
    if isinstance(source, str) and "/" in source and not folder.exists():
        from elmokit.sources.hub import fetch

        return fetch(source, revision)
    what = "is a file, not a model folder" if folder.exists() else "is no folder"
    hint = suggest(name, known) if known else "this release bundles none: give a folder's path"
    raise UserError(f"{name} {what} and no bundled model; {hint} (on the Hugging Face Hub: owner/name)")


def open_checkpoint(source: str | Path, revision: str | None = None) -> Checkpoint:
    """A folder in any of the formats that `kind_of` knows, a bundled model by name, or "owner/name" on the hub.

    revision    of a model on the hub: a branch, a tag or a commit hash; also "owner/name@revision".
    """
    folder = locate(source, revision)
    kind = kind_of(folder)
    if kind == "bilm":
        from elmokit.formats.bilm_hdf5 import read_bilm

        published = find_published(folder)
        assert published is not None
        return read_bilm(*published)
    if kind == "many-langs":
        from elmokit.formats.many_langs import read_many_langs

        return read_many_langs(folder)
    if kind is None and not (folder / CONFIG).is_file():
        raise UserError(
            f"{folder} holds no model: expected {CONFIG} with model.safetensors (elmokit), options.json with "
            f"weights.hdf5 (bilm-tf, AllenNLP), or encoder.pkl with token_embedder.pkl (ELMoForManyLangs)"
        )
    return Checkpoint.load(folder)  # says what is wrong with a config.json that is not quite ours
