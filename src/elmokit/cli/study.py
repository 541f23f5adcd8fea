"""elmo study: the paper's experiments with tasks, for any model: many runs, one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.exhibits import Save, print_exhibit, print_json, save_exhibits
from elmokit.cli.shared.options import DEFAULT_MODEL, AsJson, Data, Layout, Model
from elmokit.cli.shared.signals import stoppable
from elmokit.errors import UserError
from elmokit.progress import live_bar

if TYPE_CHECKING:
    from elmokit.show.exhibit import Exhibit
    from elmokit.study.runs import Measured, Trial
    from elmokit.study.study import Study

What = Literal["tasks", "weighting", "placement", "samples"]


def study(
    what: Annotated[
        What,
        typer.Argument(
            metavar="WHAT",
            help="**tasks**: each with ELMo and without (Table 1). **weighting**: the last layer, or all, with "
            "free weights or nearly even ones (Table 2). **placement**: at the input, output or both (Table 3). "
            "**samples**: by the size of the training set (Figure 1).",
        ),
    ],
    *,
    data: Data,
    model: Model = DEFAULT_MODEL,
    out: Annotated[Path, typer.Option("--out", "-o", help="The runs' folder; studies of one model share it.")],
    tasks: Annotated[
        str | None,
        typer.Option(
            help="With commas between; by default all, squad,entailment,srl or ner,srl as in the paper, or all "
            "where the data has none of these."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each variant: 3 of tasks, else 1.")] = None,
    shares: Annotated[
        str, typer.Option(help="samples: of the training data, with commas between.")
    ] = "0.001,0.01,0.1,1",
    layout: Layout = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, one thread each; the cores by default.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="laptop or paper, as of `elmo task train`.")] = "laptop",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, for every run.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Where the biLM's layers are kept.")] = None,
    save: Save = None,
    page: Annotated[
        Path | None, typer.Option(help="Put the tables into this Markdown page, each between its two marks.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The paper's experiments with tasks: many runs of `elmo task train`, in parallel, and their table.

    Stopped, the same command resumes; what is done, also by another study of the same folder, is not done again.
    Runs that fail do not keep the others' table from you: their logs are named at the end.

    Examples:

    `elmo study tasks --data DATA --out runs --page docs/results.md`

    `elmo study placement --data DATA --out runs --tasks srl --seeds 3`

    `elmo study samples --data DATA --out runs --tasks ner --shares 0.01,0.1,1`
    """
    from elmokit.study.experiments import read_shares
    from elmokit.study.study import Study

    planned = Study(
        what,
        model,
        data=data,
        out=out,
        layout=layout,
        tasks=None if tasks is None else [name.strip() for name in tasks.split(",")],
        seeds=seeds,
        shares=read_shares(shares),
        recipe=recipe,
        settings=settings or (),
        cache=cache,
        page=page,
    )
    told = _tell(planned.notes)
    with stoppable() as stopped, _bar(planned) as on_trial:
        exhibits = planned.run(jobs, on_trial, stopped)
    _show(exhibits, save, as_json)
    _tell(planned.notes[told:])
    if planned.stopped:
        typer.echo("stopped; the same command resumes", err=True)
    if planned.failed:
        logs = ", ".join(str(trial.log) for trial in planned.failed[:3])
        raise UserError(f"{len(planned.failed)} of the runs failed: the reasons are at the end of {logs}")
    if planned.stopped:
        raise typer.Exit(stopped.exit_code)


def _tell(notes: Sequence[str]) -> int:
    for note in notes:
        typer.echo(note, err=True)
    return len(notes)


@contextmanager
def _bar(planned: Study) -> Iterator[Callable[[Trial, Measured | None], None]]:
    """A line per run that ends, above a bar of all."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with live_bar(*columns) as bar:
        done = sum(trial.done for trial in planned.trials)
        shown = bar.add_task("", total=len(planned.trials), completed=done)

        def on_trial(trial: Trial, measured: Measured | None) -> None:
            outcome = "failed"
            if measured is not None:
                outcome = f"{measured.metric} {measured.score:.2f}, {measured.seconds / 60:.1f} min"
            bar.console.print(f"{trial.task}, {trial.variant.name}, seed {trial.seed}: {outcome}", highlight=False)
            bar.advance(shown)

        yield on_trial


def _show(exhibits: Sequence[Exhibit], save: Path | None, as_json: bool) -> None:
    if not exhibits:
        typer.echo("no table: too little of it is done", err=True)
    if as_json:
        print_json([exhibit.facts() for exhibit in exhibits])
    else:
        for exhibit in exhibits:
            print_exhibit(exhibit)
    save_exhibits(exhibits, save)
