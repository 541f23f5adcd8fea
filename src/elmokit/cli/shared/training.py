"""What the commands that train have in common: their options, the plan, the live line, the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from elmokit.cli.shared.signals import Stopped, interrupt, stoppable
from elmokit.errors import UserError
from elmokit.progress import live_bar

if TYPE_CHECKING:
    import rich.progress
    from rich.table import Table

    from elmokit.pretrain.optimizer import OptimizerConfig
    from elmokit.pretrain.progress import TrainingProgress
    from elmokit.pretrain.training import Trained

# Defaults are the library's, and shown here: what is not given is the run's own where one is resumed.
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of the run; the model will be in OUT/model.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: --set train.rows=128.")
]
Tokens = Annotated[int | None, typer.Option(min=1, help="Train on this number of tokens.")]
Epochs = Annotated[float | None, typer.Option(min=0, help="Train this number of times over the text.")]
Hours = Annotated[float | None, typer.Option(min=0, help="Train for this number of hours.")]
HeldOutSentences = Annotated[
    int | None,
    typer.Option(min=1, help="Held-out sentences that one measurement reads, at most.", show_default="2000"),
]
Evaluations = Annotated[
    int | None,
    typer.Option(min=1, help="Number of measurements of held-out perplexity on the way.", show_default="20"),
]
SplitOrAuto = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split",
        help="Lines are paragraphs: split them into sentences. By default a look at the text decides.",
    ),
]
BadLines = Annotated[
    Literal["refuse", "skip", "replace"] | None,
    typer.Option(help="What to do with a line that is not UTF-8.", show_default="refuse"),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that tokenize.")]
CheckpointMinutes = Annotated[
    float | None, typer.Option(min=0, help="What kill -9 may lose, at most.", show_default="5")
]
Export = Annotated[
    bool,
    typer.Option("--export", help="Write OUT/model from the last checkpoint of a stopped run; no training."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the run in OUT; --tokens, --epochs or --hours replace its budget.")
]


class Watch(NamedTuple):
    """What a call of pretraining is given."""

    on_progress: Callable[[TrainingProgress], None]
    stop: Stopped


@contextmanager
def watching() -> Iterator[Watch]:
    """Shows the plan and how it goes. Ctrl-C and SIGTERM end training after a step, and anything else at once."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    columns = (BarColumn(20), TaskProgressColumn(), TextColumn("{task.fields[line]}"))
    with live_bar(*columns, disable=not is_first()) as bar:
        display = _Display(bar)
        with stoppable(display.on_signal) as stopped:
            yield Watch(display.show, stopped)


def sentences_of(split: bool | None) -> Literal["auto", "lines", "split"] | None:
    """--split, --no-split, or neither: auto, or what the run began with."""
    return None if split is None else "split" if split else "lines"


def is_first() -> bool:
    """Of the processes that torchrun started, the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


class _Display:
    def __init__(self, bar: rich.progress.Progress) -> None:
        self.bar, self.task = bar, bar.add_task("", total=None, line="")
        self.stage = "reading" if is_first() else "training"  # the others are told nothing
        self.has_told_time = False

    def on_signal(self) -> None:
        if self.stage not in ("training", "measuring"):
            interrupt()

    def show(self, now: TrainingProgress) -> None:
        self.stage = now.stage
        if now.plan is not None:
            self.bar.console.print(plan_table(now))
        if now.seconds_left is not None and not self.has_told_time:
            self.has_told_time = True
            self._say(f"takes about {duration(now.seconds_left)}")
        if now.message is not None:
            self._say(now.message)
        if now.perplexity is not None:
            p = now.perplexity
            self._say(
                f"{now.tokens:>12,} tokens: held-out perplexity {p.mean:.2f} "
                f"(forward {p.forward:.2f}, backward {p.backward:.2f})"
            )
        total = None if now.fraction is None else 1.0
        self.bar.update(self.task, total=total, completed=now.fraction or 0.0, line=self._line(now))

    def _line(self, now: TrainingProgress) -> str:
        if now.stage == "reading":
            return f"reading the text: {now.tokens:,} tokens"
        if now.stage == "comparing":
            return "perplexity before and after"
        if now.tokens_per_second is None or now.seconds_left is None or now.loss is None:
            return str(self.bar.tasks[0].fields["line"]) if now.plan is None else ""
        return f"{now.tokens_per_second:,.0f} tokens/s  loss {now.loss:.3f}  {duration(now.seconds_left)} left"

    def _say(self, message: str) -> None:
        self.bar.console.print(message, highlight=False, soft_wrap=True)


def plan_table(now: TrainingProgress) -> Table:
    from rich.table import Table

    plan = now.plan
    assert plan is not None
    budget = plan.budget
    table = Table(show_header=False, box=None, title="The plan", title_justify="left")
    for name, value in {
        "text": f"{plan.tokens:,} tokens in {plan.sentences:,} sentences, {plan.types:,} different",
        "held out": f"{plan.held_out:,} sentences" if plan.held_out else "nothing",
        "predicts": f"{plan.words:,} words, "
        + ("sampled softmax" if plan.sampled else "all computed")
        + ("" if plan.softmax_width is None else f", {plan.softmax_width} wide"),
        "model": f"{plan.parameters:,} parameters, LSTM {plan.lstm.cells} -> {plan.lstm.width} per direction",
        "step": f"{plan.train.rows} rows x {plan.train.steps} tokens on {plan.processes} process(es), "
        f"products in {plan.precision}",
        "optimizer": describe_optimizer(plan.optimizer),
        "budget": f"{budget.hours} hours" if budget.tokens is None else f"{budget.tokens:,} tokens",
    }.items():
        table.add_row(f"[bold]{name}[/bold]", value)
    if now.step:
        table.add_row("[bold]resumes[/bold]", f"from step {now.step:,}, {100 * (now.fraction or 0):.1f} % done")
    return table


def describe_optimizer(config: OptimizerConfig) -> str:
    rates = f"{config.kind}, learning rate {config.learning_rate:g}"
    if config.rest_rate != config.learning_rate:
        rates += f", of the rest by adamw {config.rest_rate:g}"
    if config.softmax_rate != config.rest_rate:
        rates += f", of the softmax {config.softmax_rate:g}"
    return rates


def tell_outcome(trained: Trained, out: Path, command: str, stopped: Stopped) -> None:
    """A run that was stopped does not end well: `&& next` must not go on without a model."""
    if not trained.finished:
        if not is_first():
            raise typer.Exit(stopped.exit_code)
        typer.echo(
            f"stopped at step {trained.step:,}, {100 * trained.fraction:.1f} % done; to resume:\n"
            f"  {Path(sys.argv[0]).name} {command} --out {out} --resume",
            err=True,
        )
        raise typer.Exit(stopped.exit_code)
    if not is_first():
        return
    typer.echo(f"done: {out / 'model'}", err=True)
    if trained.perplexity is not None:
        p = trained.perplexity
        typer.echo(f"held-out perplexity: forward {p.forward:.2f}, backward {p.backward:.2f}, mean {p.mean:.2f}")


def must_resume(asked: bool, texts: list[str] | None, out: Path) -> bool | None:
    """With its text, --resume also begins again what was killed before training began."""
    return True if asked and not (texts and out.exists()) else None


def export_stopped(out: Path, texts: list[str] | None) -> None:
    if texts:
        raise UserError("--export takes what the run in OUT has come to: leave TEXT out")
    from elmokit.pretrain.export import export_run

    model = export_run(out)
    typer.echo(f"exported: {model}; its README.md says how far it was trained", err=True)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
