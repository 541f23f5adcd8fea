"""What commands with an exhibit share: how it is printed and saved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.show.files import ready_folder

if TYPE_CHECKING:
    from elmokit.show.exhibit import Exhibit


def _ready(folder: Path | None) -> Path | None:
    if folder is not None:
        ready_folder(folder)
    return folder


Save = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the table (.csv, .json) and the figure (.png, .svg) to this folder.",
        callback=_ready,
    ),
]


def show(exhibit: Exhibit, facts: Mapping[str, object], save: Path | None, as_json: bool) -> None:
    """The exhibit, or the facts as JSON, on standard output; its files, if asked for, named on standard error."""
    if as_json:
        print_json(facts)
    else:
        print_exhibit(exhibit)
    save_exhibits([exhibit], save)


def print_json(facts: object) -> None:
    typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))


def print_exhibit(exhibit: Exhibit) -> None:
    from rich.console import Console

    Console().print(exhibit.table())
    for note in exhibit.notes:
        typer.echo(note)


def save_exhibits(exhibits: Sequence[Exhibit], folder: Path | None) -> None:
    """Write their files, if a folder was given, and say so on standard error."""
    if folder is not None:
        for exhibit in exhibits:
            tell_written(exhibit.write(folder), [exhibit])


def tell_written(files: Sequence[Path], exhibits: Sequence[Exhibit]) -> None:
    for path in files:
        typer.echo(f"wrote {path}", err=True)
    for exhibit in exhibits:
        for reason in exhibit.left_out():
            typer.echo(f"{exhibit.name}: {reason}", err=True)
