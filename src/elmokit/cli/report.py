"""elmo report: the paper's tables and figures for a model, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.exhibits import Save, tell_written
from elmokit.cli.shared.options import DEFAULT_MODEL, Data, Layout, Model, Threads, use_threads
from elmokit.progress import terminal_bar


def report(
    *,
    data: Data,
    model: Model = DEFAULT_MODEL,
    layout: Layout = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    runs: Annotated[
        Path | None, typer.Option(help="What `elmo study` has done with this model, for the tables of tasks.")
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(help="What `elmo index build` made of the corpus; else its first words are read."),
    ] = None,
    contexts: Annotated[int, typer.Option(min=1, help="So many words of the corpus, without --index.")] = 200_000,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SENTENCES",
            help="Probes learn from this number of sentences, chosen by the seed.",
        ),
    ] = None,
    shares: Annotated[
        str, typer.Option(help="The sizes of `elmo study samples` that are drawn.")
    ] = "0.001,0.01,0.1,1",
    seed: Annotated[int, typer.Option(help="Which training sentences --limit chooses.")] = 0,
    save: Save = None,
    threads: Threads = None,
) -> None:
    """Every table and figure of the paper for a model: one page that needs no network, with its commands.

    The probes are made now, in minutes; tables of tasks are of the runs that `elmo study` has done. Where data is
    missing, the page has a note in its place.

    Examples:

    `elmo report --data DATA --runs runs -o report.html`

    `elmo report -m ko-small --data DATA --layout ko -o ko.html`

    `elmo report -m my-elmo --data my-data --limit 2000 -o quick.html`
    """
    use_threads(threads)
    from elmokit.study.experiments import read_shares
    from elmokit.study.report import report as make_report

    with terminal_bar() as on_progress:
        made = make_report(
            model,
            data=data,
            out=out,
            layout=layout,
            runs=runs,
            index=index,
            contexts=contexts,
            limit=limit,
            shares=read_shares(shares),
            seed=seed,
            save=save,
            on_progress=on_progress,
        )
    tell_written(made.files, made.exhibits if save else [])
    typer.echo(f"wrote {out}: {len(made.exhibits)} tables and figures", err=True)
