"""elmo info: what a model, or a file of vectors, is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.options import DEFAULT_MODEL, AsJson, Model


def info(
    what: Annotated[
        str | None,
        typer.Argument(metavar="MODEL|VECTORS", help="As of -m, or a file of vectors.", show_default="-m"),
    ] = None,
    *,
    model: Model = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """What a model or a file of vectors is: sizes, layers, tokenizer, digest.

    Examples:

    `elmo info en-small`

    `elmo info my-elmo`

    `elmo info vectors.h5 --json`
    """
    from elmokit.embed.vectors import open_vectors
    from elmokit.sources.catalogue import describe

    what = model if what is None else what
    facts = open_vectors(what).describe() if Path(what).is_file() else describe(what)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")  # a digest is for copying
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/bold]", f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)
