"""Other people's files -> ours: whatever ELMo it is, `open_checkpoint` finds out how to read it."""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoint import CONFIG, Checkpoint, is_checkpoint
from elmokit.config import suggest

BUNDLED = Path(__file__).parent.parent / "models"


def bundled_names() -> list[str]:
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{CONFIG}"))


def find_published(folder: Path) -> tuple[Path, Path] | None:
    """The options and weights of a folder as bilm-tf's: options.json and weights.hdf5, or names that end so."""
    options = sorted(folder.glob("*options.json"))
    weights = sorted([*folder.glob("*.hdf5"), *folder.glob("*.h5")])
    if not options or not weights:
        return None
    if len(options) > 1 or len(weights) > 1:
        names = ", ".join(path.name for path in [*options, *weights])
        raise ValueError(f"{folder}: expected one options file and one weights file, found {names}: name the pair")
    return options[0], weights[0]


def kind_of(folder: Path) -> str | None:
    """'elmokit', 'bilm' (bilm-tf, AllenNLP), 'many-langs' (ELMoForManyLangs), or None."""
    if is_checkpoint(folder):
        return "elmokit"
    if (folder / "encoder.pkl").is_file() or (folder / "token_embedder.pkl").is_file():
        return "many-langs"
    return "bilm" if find_published(folder) else None


def open_checkpoint(source: str | Path) -> Checkpoint:
    """A bundled model by name, or a folder in any of the formats that `kind_of` knows."""
    folder = Path(source)
    if not folder.exists() and str(source) in bundled_names():
        folder = BUNDLED / str(source)
    if not folder.is_dir():
        what = "is a file, not a model folder" if folder.exists() else "is no folder"
        known = bundled_names()
        raise ValueError(
            f"{source} {what} and no bundled model; "
            + (suggest(str(source), known) if known else "this release bundles none: give a folder's path")
        )
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
        raise ValueError(
            f"{folder} holds no model: expected {CONFIG} with model.safetensors (elmokit), options.json with "
            f"weights.hdf5 (bilm-tf, AllenNLP), or encoder.pkl with token_embedder.pkl (ELMoForManyLangs)"
        )
    return Checkpoint.load(folder)  # says what is wrong with a config.json that is not quite ours
