"""elmo study: the paper's experiments with tasks, for any model: many runs, one table."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.exhibits import Save, print_exhibit, save_exhibits
from elmokit.cli.shared.options import AsJson, Data, Layout, Model
from elmokit.cli.shared.signals import stoppable
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.show.exhibit import Exhibit
    from elmokit.study.data import StudyData
    from elmokit.study.experiments import Experiment
    from elmokit.study.sweep import Measured, Sweep, Trial

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
    model: Model,
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

    Stopped, the same command goes on; what is done, also by another study of the same folder, is not done again.
    Runs that fail do not keep the others' table from you: their logs are named at the end.

    Examples:

    `elmo study tasks --data DATA -m en-small --out runs --page docs/results.md`

    `elmo study placement --data DATA -m en-small --out runs --tasks srl --seeds 3`

    `elmo study samples --data DATA -m en-small --out runs --tasks ner --shares 0.01,0.1,1`
    """
    from elmokit.embed.embedder import Elmo
    from elmokit.study.data import open_data
    from elmokit.study.experiments import EXPERIMENTS, check_page, read_shares
    from elmokit.study.sweep import Sweep

    experiment = EXPERIMENTS[what]
    found, sizes = open_data(data, layout), read_shares(shares)
    if page is not None:
        check_page(page, [exhibit.name for exhibit in experiment.exhibits([], found, sizes)])
    sweep = Sweep(
        out,
        found,
        _choose(experiment, found, tasks),
        experiment.variants(sizes),
        model=model,
        digest=Elmo.from_pretrained(model).checkpoint.digest,
        seeds=seeds or experiment.seeds,
        recipe=recipe,
        settings=settings or (),
        cache=cache,
    )
    failed = _run(sweep, jobs or os.cpu_count() or 1)
    _show(experiment.exhibits(sweep.results(), found, sizes), save, page, as_json)
    if sweep.stopped:
        typer.echo("stopped; the same command goes on", err=True)
    if failed:
        logs = ", ".join(str(trial.log) for trial in failed[:3])
        raise UserError(f"{len(failed)} of the runs failed: the reasons are at the end of {logs}")
    if sweep.stopped:
        raise typer.Exit(130)


def _choose(experiment: Experiment, data: StudyData, tasks: str | None) -> list[str]:
    """Those that are asked for, else the paper's; all, where the data has none of these, and a line says so."""
    if tasks is not None:
        return data.choose([name.strip() for name in tasks.split(",")])
    there = data.choose(None)
    chosen = experiment.usual(there)
    if experiment.tasks is not None and chosen and not set(chosen) & set(experiment.tasks):
        typer.echo(
            f"the data has none of {', '.join(experiment.tasks)}: taking {', '.join(chosen)}; --tasks chooses",
            err=True,
        )
    return chosen


def _run(sweep: Sweep, jobs: int) -> list[Trial]:
    """All of it, with a line a run; Ctrl-C ends the runs at hand, which keep the epochs that they have done. The
    runs that failed are returned."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with stoppable(sweep.stop), Progress(*columns, console=console) as bar:
        done = sum(trial.done for trial in sweep.trials)
        shown = bar.add_task("", total=len(sweep.trials), completed=done)

        def tell(trial: Trial, result: Measured | None) -> None:
            outcome = "failed"
            if result is not None:
                outcome = f"{result.metric} {result.score:.2f}, {result.seconds / 60:.1f} min"
            console.print(f"{trial.task}, {trial.variant.name}, seed {trial.seed}: {outcome}", highlight=False)
            bar.advance(shown)

        return sweep.run(jobs, tell)


def _show(exhibits: Sequence[Exhibit], save: Path | None, page: Path | None, as_json: bool) -> None:
    from elmokit.study.experiments import put_into_page

    exhibits = [exhibit for exhibit in exhibits if exhibit.rows]
    if not exhibits:
        typer.echo("no table: too little of it is done", err=True)
    if as_json:
        typer.echo(json.dumps([exhibit.facts() for exhibit in exhibits], ensure_ascii=False, indent=2))
    else:
        for exhibit in exhibits:
            print_exhibit(exhibit)
    save_exhibits(exhibits, save)
    for name in put_into_page(page, exhibits) if page is not None and exhibits else ():
        typer.echo(f"{page} has no line <!-- {name} -->: its table is left out", err=True)
