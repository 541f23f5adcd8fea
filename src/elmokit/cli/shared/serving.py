"""What `elmo serve` and `elmo play` share: their options, and the way to a server that listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.options import use_threads
from elmokit.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from elmokit.serve.limits import Limits

LogLevel = Literal["debug", "info", "warning", "error"]
LOCAL = "127.0.0.1"
FIRST_PORT = 8000
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME=FOLDER", help="A trained task, for /v1/tasks/NAME. May be given twice."),
]
Indexes = Annotated[
    list[Path] | None,
    typer.Option("--index", help="What `elmo index build` made, for /v1/neighbours. May be given twice."),
]


def ready_to_serve(threads: int | None) -> None:
    """Before a model is opened: what the server needs is installed, and the libraries know their bounds."""
    from elmokit.serve.extra import check_extra

    check_extra()
    use_threads(threads)
    from elmokit.serve.warm_up import bound_libraries

    bound_libraries()


def named_tasks(tasks: Sequence[str] | None) -> dict[str, str]:
    return dict(_named_task(each) for each in tasks or ())


def _named_task(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not equals:
        name, folder = Path(text).name, text
    if not name or not folder:
        raise UserError(f"--task: expected NAME=FOLDER, found {text!r}")
    return name, folder


def run_server(
    application: FastAPI,
    limits: Limits,
    *,
    log_level: LogLevel,
    host: str = LOCAL,
    port: int = FIRST_PORT,
    grace: float = 30.0,
    started: Callable[[str], object] = lambda url: None,
) -> None:
    """Until it is stopped; the address is told when it listens."""
    from elmokit.serve.logs import log, log_to_stderr
    from elmokit.serve.server import run

    log_to_stderr(log_level)

    def tell(url: str) -> None:
        typer.echo(f"{', '.join(application.state.service.offer.models)} on {url} (Ctrl-C ends it)", err=True)
        log("started", url=url)
        started(url)

    run(application, limits, host=host, port=port, grace=grace, started=tell)
