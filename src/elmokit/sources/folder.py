"""A folder -> a checkpoint: which kind of model it holds shows in its files, and chooses the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from elmokit.checkpoint import CONFIG, Checkpoint, is_checkpoint
from elmokit.errors import UserError, listed_paths
from elmokit.sources.unfinished import RUN, RUN_MODEL, describe_unfinished, is_run

Kind = Literal["elmokit", "bilm", "many-langs"]  # ours; bilm-tf's and AllenNLP's; ELMoForManyLangs'


def kind_of(folder: Path) -> Kind | None:
    if is_checkpoint(folder):
        return "elmokit"
    if find_pair(folder):  # before what holds pickles: a folder from the hub is never read as such
        return "bilm"
    pickled = (folder / "encoder.pkl").is_file() or (folder / "token_embedder.pkl").is_file()
    return "many-langs" if pickled else None


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """The options and weights of a folder as bilm-tf's: options.json and weights.hdf5, or names that end so."""
    options = sorted(folder.glob("*options.json"))
    weights = sorted([*folder.glob("*.hdf5"), *folder.glob("*.h5")])
    if not options or not weights:
        return None
    if len(options) > 1 or len(weights) > 1:
        names = listed_paths(path.name for path in [*options, *weights])
        raise UserError(f"{folder}: expected one options file and one weights file, found {names}: name the pair")
    return options[0], weights[0]


def model_in(folder: Path) -> Path:
    """The folder itself, or model/ within it if it is that of a finished training run."""
    if (folder / RUN).is_file() and is_checkpoint(folder / RUN_MODEL):
        return folder / RUN_MODEL
    return folder


def read_folder(folder: Path) -> Checkpoint:
    kind = kind_of(folder)
    if kind == "bilm":
        from elmokit.formats.bilm_hdf5 import read_bilm

        pair = find_pair(folder)
        assert pair is not None
        return read_bilm(*pair)
    if kind == "many-langs":
        from elmokit.formats.many_langs import read_many_langs

        return read_many_langs(folder)
    if (folder / CONFIG).exists():
        return Checkpoint.load(folder)  # says what is wrong with a config.json that is not quite ours
    if is_run(folder):
        raise UserError(describe_unfinished(folder))
    raise UserError(
        f"{folder} holds no model: expected {CONFIG} with model.safetensors (elmokit), options.json with "
        f"weights.hdf5 (bilm-tf, AllenNLP), or encoder.pkl with token_embedder.pkl (ELMoForManyLangs)"
    )
