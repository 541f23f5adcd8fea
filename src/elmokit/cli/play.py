"""elmo play: a page in the browser that shows what a model makes of your own sentences."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.options import Threads
from elmokit.cli.shared.serving import (
    FIRST_PORT,
    LOCAL,
    Indexes,
    LogLevel,
    Tasks,
    named_tasks,
    ready_to_serve,
    run_server,
)
from elmokit.errors import UserError
from elmokit.serve.play import MODELS


def play(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL|NAME=MODEL]...",
            help="Bundled names, folders or owner/name on the hub; one with ko in its name reads Korean.",
            show_default=" ".join(MODELS),
        ),
    ] = None,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="0: any that is free.", show_default=f"{FIRST_PORT}, or the next free"
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    task: Tasks = None,
    index: Indexes = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the page and its answers to DIR/index.html instead of serving it."
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For --export: two sentences per line, a TAB between, the picked words in [brackets].",
            show_default="the page's examples",
        ),
    ] = None,
    threads: Threads = None,
    log_level: Annotated[LogLevel, typer.Option(help="info: a line of JSON per request.")] = "warning",
) -> None:
    """The playground: type two sentences, pick a word in each, and see what the model does with them.

    Everything on the page is computed on this machine from your words, in English and Korean. It is the page
    at / of `elmo serve`. With --export it becomes one file with the answers in it, which opens without a server.

    Examples:

    `elmo play`

    `elmo play mine=runs/my-elmo --task ner=runs/ner --no-browser`

    `elmo play --export lecture --pairs sentences.tsv`
    """
    if pairs is not None and export is None:
        raise UserError("--pairs is for --export DIR: on the page you type your own")
    ready_to_serve(threads)
    if export is not None:
        _export(export, models or MODELS, task, index, pairs)
        return
    import elmokit.serve
    from elmokit.serve.limits import Limits
    from elmokit.serve.server import free_port

    limits = Limits()
    tasks = named_tasks(task)
    application = elmokit.serve.app(models or MODELS, tasks=tasks, indexes=index or (), limits=limits, play=True)
    run_server(
        application,
        limits,
        log_level=log_level,
        port=free_port(LOCAL, FIRST_PORT) if port is None else port,
        grace=1.0,
        started=_open_browser if browser else lambda url: None,
    )


def _export(
    folder: Path, models: Sequence[str], task: list[str] | None, index: list[Path] | None, pairs: Path | None
) -> None:
    from elmokit.progress import terminal_bar
    from elmokit.serve.play.export import export_page, read_pairs_file

    chosen = None if pairs is None else read_pairs_file(pairs)
    command = shlex.join(["elmo", *sys.argv[1:]])
    with terminal_bar() as on_progress:
        page = export_page(
            folder,
            models,
            pairs=chosen,
            tasks=named_tasks(task),
            indexes=index or (),
            command=command,
            on_progress=on_progress,
        )
    typer.echo(f"{page}: opens in any browser, without a server")


def _open_browser(url: str) -> None:
    """Not where there is no screen: a browser of the terminal would take the terminal."""
    if sys.platform.startswith("linux") and not any(
        map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    ):
        return
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()  # some return when they are closed
