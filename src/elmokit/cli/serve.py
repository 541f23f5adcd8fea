"""elmo serve: vectors, fillings, neighbours and tasks over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from elmokit.cli.shared.options import DEFAULT_MODEL, Threads, Weights
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

LOOPBACK = {LOCAL, "localhost", "::1"}


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
    host: Annotated[str, typer.Option(help="0.0.0.0: for everyone who can reach this machine.")] = LOCAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = FIRST_PORT,
    task: Tasks = None,
    index: Indexes = None,
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
    log_level: Annotated[LogLevel, typer.Option(help="info: a line of JSON per request.")] = "info",
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
    ready_to_serve(threads)
    import elmokit.serve
    from elmokit.serve.limits import Limits

    limits = Limits(max_body, max_inputs, max_tokens, queue, max_wait, timeout, read_timeout, connections)
    keys = [*(api_key or ()), *os.environ.get("ELMO_API_KEY", "").split(",")]
    names = models or [DEFAULT_MODEL]
    application = elmokit.serve.app(
        names,
        tasks=named_tasks(task),
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
    run_server(application, limits, log_level=log_level, host=host, port=port, grace=grace)
