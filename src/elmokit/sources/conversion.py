"""Any ELMo -> elmokit's folder, or the published pair that old tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from elmokit.atomic import replacing_folder
from elmokit.checkpoint import Checkpoint, StoredWeights
from elmokit.errors import UserError
from elmokit.sources import open_checkpoint

Format = Literal["elmokit", "bilm"]


def convert(
    source: str | Path,
    output: str | Path,
    *,
    to: Format = "elmokit",
    options: str | Path | None = None,
    weights: StoredWeights = "float32",
    overwrite: bool = False,
) -> Checkpoint:
    """Write a model to the folder `output`; what was read is returned.

    source    as `open_checkpoint` takes it, or the weights.hdf5 of a pair whose options.json is `options`.
    to        "elmokit", our own folder; "bilm", options.json and weights.hdf5 as bilm-tf and AllenNLP read them.
    weights   how our own folder stores them: "float16" halves it.
    """
    output = Path(output)
    if to not in ("elmokit", "bilm"):
        raise UserError(f"to: expected elmokit or bilm, found {to!r}")
    if to == "bilm" and weights != "float32":
        raise UserError(f"weights: bilm-tf's format holds float32 only, found {weights}: leave it out")
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already: choose another name, or --overwrite it")
    checkpoint = _read(source, options)
    if to == "elmokit":
        checkpoint.save(output, weights=weights, overwrite=overwrite)
    else:
        from elmokit.formats.bilm_hdf5 import write_bilm

        with replacing_folder(output, overwrite) as folder:
            write_bilm(checkpoint, folder / "options.json", folder / "weights.hdf5")
    return checkpoint


def _read(source: str | Path, options: str | Path | None) -> Checkpoint:
    if options is not None:
        from elmokit.formats.bilm_hdf5 import read_bilm

        return read_bilm(options, source)
    if Path(source).is_file():
        raise UserError(f"{source} is a weights file: name the options.json that goes with it by --options")
    return open_checkpoint(source)
