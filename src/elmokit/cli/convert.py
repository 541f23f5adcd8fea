"""elmo convert: any ELMo -> elmokit's folder, or back to the published pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmokit.cli.shared.options import Overwrite


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A model folder of any format, or a weights.hdf5.")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
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
    overwrite: Overwrite = False,
) -> None:
    """Turn any ELMo into an elmokit model, or write one so that old tools read it.

    Examples:

    `elmo convert elmo_weights.hdf5 --options elmo_options.json -o my-elmo`

    `elmo convert ELMoForManyLangs/161 -o norwegian --weights float16`

    `elmo convert my-elmo --to bilm -o for-allennlp`
    """
    from elmokit.sources import conversion

    checkpoint = conversion.convert(source, out, to=to, options=options, weights=weights, overwrite=overwrite)
    size = sum(file.stat().st_size for file in out.iterdir())
    typer.echo(f"{out}: {checkpoint.number_of_parameters:,} parameters, {size / 1e6:,.1f} MB, format {to}")
