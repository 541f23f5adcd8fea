"""What commands with an exhibit share: how it is printed and saved, and how the way to it is watched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.embed.arrays import Report
    from elmokit.show.exhibit import Exhibit


def ready_folder(folder: Path | None) -> Path | None:
    """Made and writable before the work begins: what is refused after it is lost."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder}: expected a folder to write to, found a file in its place") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: expected a folder to write to, found one that may not be written to")
    return folder


def ready_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: expected the name of a file to write, found a folder")
    ready_folder(path.parent)


Save = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the table (.csv, .json) and the figure (.png, .svg) to this folder.",
        callback=ready_folder,
    ),
]


def show(exhibit: Exhibit, facts: Mapping[str, object], save: Path | None, as_json: bool) -> None:
    """The exhibit, or the facts as JSON, on standard output; its files, if wanted, named on standard error."""
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        print_exhibit(exhibit)
    save_exhibits([exhibit], save)


def print_exhibit(exhibit: Exhibit) -> None:
    from rich.console import Console

    Console().print(exhibit.table())
    for note in exhibit.notes:
        typer.echo(note)


def save_exhibits(exhibits: Sequence[Exhibit], folder: Path | None) -> None:
    """Write their files, if a folder was given, and say so on standard error."""
    if folder is None:
        return
    for exhibit in exhibits:
        for path in exhibit.write(folder):
            typer.echo(f"wrote {path}", err=True)
        for reason in exhibit.left_out():
            typer.echo(f"{exhibit.name}: {reason}", err=True)


@contextmanager
def progress() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=None)

        def report(stage: str, done: int, total: int) -> None:
            if bar.tasks[0].description != stage:
                bar.reset(task, description=stage, total=total)  # a stage has a pace of its own
            bar.update(task, completed=done, total=total)

        yield report
