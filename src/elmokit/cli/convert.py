"""elmo convert: any ELMo -> elmokit's folder, or back to the published pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmokit.errors import UserError


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A model folder of any format, or a weights.hdf5.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The folder to write.")],
    to: Annotated[
        Literal["elmokit", "bilm"],
        typer.Option(
            help="elmokit's own folder, or options.json + weights.hdf5 as bilm-tf and AllenNLP read them."
        ),
    ] = "elmokit",
    options: Annotated[
        Path | None, typer.Option(help="The options.json that goes with SOURCE, a .hdf5 file.")
    ] = None,
    precision: Annotated[
        Literal["float32", "float16"], typer.Option(help="float16 halves an elmokit folder.")
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that exists.")] = False,
) -> None:
    """Turn any ELMo into an elmokit model, or write one so that old tools read it.

    Examples:

    `elmo convert elmo_weights.hdf5 my-elmo --options elmo_options.json`

    `elmo convert ELMoForManyLangs/161 norwegian --precision float16`

    `elmo convert my-elmo for-allennlp --to bilm`
    """
    from elmokit.atomic import replacing_folder
    from elmokit.formats.bilm_hdf5 import read_bilm, write_bilm
    from elmokit.sources import open_checkpoint

    if to == "bilm" and precision != "float32":
        raise UserError("bilm-tf's format holds float32 only: leave --precision out")
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists already: choose another name, or --overwrite it")
    if options is None and Path(source).is_file():
        raise UserError(f"{source} is a weights file: name the options.json that goes with it by --options")
    checkpoint = open_checkpoint(source) if options is None else read_bilm(options, source)
    if to == "elmokit":
        checkpoint.save(output, precision=precision, overwrite=overwrite)
    else:
        with replacing_folder(output, overwrite) as folder:
            write_bilm(checkpoint, folder / "options.json", folder / "weights.hdf5")
    size = sum(file.stat().st_size for file in output.iterdir())
    parameters = sum(p.numel() for p in checkpoint.bilm.parameters())
    typer.echo(f"{output}: {parameters:,} parameters, {size / 1e6:,.1f} MB, format {to}")
