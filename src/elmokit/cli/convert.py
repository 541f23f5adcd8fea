"""elmo convert: any ELMo -> elmokit's folder, or back to the published pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


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
    weights: Annotated[
        Literal["float32", "float16"], typer.Option(help="float16 halves an elmokit folder.")
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that exists.")] = False,
) -> None:
    """Turn any ELMo into an elmokit model, or write one so that old tools read it.

    Examples:

    `elmo convert elmo_weights.hdf5 my-elmo --options elmo_options.json`

    `elmo convert ELMoForManyLangs/161 norwegian --weights float16`

    `elmo convert my-elmo for-allennlp --to bilm`
    """
    from elmokit.sources import conversion

    checkpoint = conversion.convert(source, output, to=to, options=options, weights=weights, overwrite=overwrite)
    size = sum(file.stat().st_size for file in output.iterdir())
    typer.echo(f"{output}: {checkpoint.number_of_parameters:,} parameters, {size / 1e6:,.1f} MB, format {to}")
