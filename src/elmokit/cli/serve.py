"""elmo serve: vectors, fillings, neighbours and tasks over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elmokit.cli.shared.options import DEFAULT_MODEL, Threads, Weights, use_threads
from elmokit.errors import UserError

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL|NAME=MODEL]...",
            envvar="ELMO_MODEL",
            help="Bundled names, folders or owner/name on the hub; the first answers who names none.",
            show_default=DEFAULT_MODEL,
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="0.0.0.0: for everyone who can reach this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="A trained task, for /v1/tasks/NAME. May be given twice."),
    ] = None,
    index: Annotated[
        list[Path] | None,
        typer.Option(help="What `elmo index build` made, for /v1/neighbours. May be given twice."),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Requests need one of these keys. May be given twice; also $ELMO_API_KEY, with commas between.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Pages of this origin may ask from a browser. May be given twice."),
    ] = None,
    weights: Weights = "float32",
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a batch; 1: no batching.")] = 4096,
    threads: Threads = None,
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of a request (413).")] = 8 << 20,
    max_inputs: Annotated[int, typer.Option(min=1, help="Inputs in a request (422).")] = 2048,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens in an input (422).")] = 8192,
    queue: Annotated[int, typer.Option(min=1, metavar="TOKENS", help="That may wait (429).")] = 262_144,
    max_wait: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Of work that may wait (429).")
    ] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="To an answer (503).")] = 60.0,
    read_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="For a request to arrive (408).")
    ] = 30.0,
    connections: Annotated[int, typer.Option(min=1, help="Open at a time (503).")] = 16_384,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="After SIGTERM, to finish what was accepted.")
    ] = 30.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="info: a line of JSON per request.")
    ] = "info",
) -> None:
    """Vectors over HTTP: of texts, and of every token in every layer; also fillings, neighbours and trained tasks.

    The clients of OpenAI and of text-embeddings-inference work unchanged (/v1/embeddings, /embed, /embed_all);
    `elmokit.Client` and `elmo embed --server` get all layers. Requests of all clients are computed in batches,
    and answers are identical to the library's. /openapi.json describes it all, /metrics is for Prometheus.
    Logs go to standard error, and never hold the text of a request.

    Examples:

    `elmo serve`

    `elmo serve en-small ko-small --port 9000 --weights auto`

    `elmo serve mine=runs/my-elmo --task ner=runs/ner --index news.index --host 0.0.0.0 --api-key SECRET`
    """
    from elmokit.serve.extra import check_extra

    check_extra()
    use_threads(threads)
    import os

    import elmokit.serve
    from elmokit.serve.limits import Limits
    from elmokit.serve.logs import log, log_to_stderr
    from elmokit.serve.server import run
    from elmokit.serve.warm_up import bound_libraries

    bound_libraries()
    limits = Limits(max_body, max_inputs, max_tokens, queue, max_wait, timeout, read_timeout, connections)
    keys = [*(api_key or ()), *os.environ.get("ELMO_API_KEY", "").split(",")]
    names = models or [DEFAULT_MODEL]
    application = elmokit.serve.app(
        names,
        tasks=dict(_named_task(each) for each in task or ()),
        indexes=index or (),
        limits=limits,
        api_keys=[key.strip() for key in keys if key.strip()],
        cors_origins=cors_origin or (),
        weights=weights,
        batch_tokens=batch_tokens,
    )
    if host not in LOOPBACK and not any(map(str.strip, keys)):
        typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
        typer.echo(f"everyone who can reach {host}:{port} may ask: give an --api-key", err=True)
    log_to_stderr(log_level)

    def started(url: str) -> None:
        typer.echo(f"{', '.join(application.state.service.offer.models)} on {url} (Ctrl-C ends it)", err=True)
        log("started", url=url)

    run(application, limits, host=host, port=port, grace=grace, started=started)


def _named_task(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    if not equals:
        name, folder = Path(text).name, text
    if not name or not folder:
        raise UserError(f"--task: expected NAME=FOLDER, found {text!r}")
    return name, folder
