"""What the commands that train have in common: reading the text, the plan, the live line, the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.signals import stoppable
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.pretrain.corpus import PreparedCorpus
    from elmokit.pretrain.optimizer import OptimizerConfig
    from elmokit.pretrain.perplexity import Perplexity
    from elmokit.pretrain.ranks import Ranks
    from elmokit.pretrain.run import Budget, Outcome, Report, Run
    from elmokit.text.tokens import TokenizerConfig

Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of the run; the model will be in OUT/model.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: --set train.rows=128.")
]
Tokens = Annotated[int | None, typer.Option(min=1, help="Train on so many tokens.")]
Epochs = Annotated[float | None, typer.Option(min=0, help="Train so many times over the text.")]
Hours = Annotated[float | None, typer.Option(min=0, help="Train for so long.")]
HeldOut = Annotated[float, typer.Option(min=0, max=0.5, help="Share of the lines to measure on.")]
HeldOutSentences = Annotated[
    int, typer.Option(min=1, help="Held-out sentences that one measurement reads, at most.")
]
Evaluations = Annotated[int, typer.Option(min=1, help="Measure held-out perplexity so many times on the way.")]
Sentences = Annotated[
    Literal["auto", "lines", "split"], typer.Option(help="A line is a sentence, or is split into sentences.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that tokenize.")]
CheckpointMinutes = Annotated[float, typer.Option(min=0, help="What kill -9 may lose, at most.")]


def check_out(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: choose another name, or go on with it by --resume")


def make_budget(
    corpus: PreparedCorpus, tokens: int | None, epochs: float | None, hours: float | None, default: float
) -> Budget:
    from elmokit.pretrain.run import Budget

    if sum(value is not None for value in (tokens, epochs, hours)) > 1:
        raise UserError("--tokens, --epochs and --hours are three ways to say one thing: give one of them")
    if hours is None and tokens is None:
        predictions = corpus.tokens + corpus.sentences  # each sentence's end is predicted too
        tokens = max(1, round((default if epochs is None else epochs) * predictions))
    return Budget(tokens, hours)


def prepare_text(
    texts: list[str],
    out: Path,
    tokenizer: TokenizerConfig,
    seed: int,
    held_out: float,
    sentences: str,
    on_bad_line: Literal["refuse", "skip", "replace"],
    workers: int,
    ranks: Ranks,
) -> PreparedCorpus:
    """The first rank tokenizes; the others wait until it lies there."""
    from rich.console import Console

    from elmokit.pretrain.corpus import prepare
    from elmokit.pretrain.run import CORPUS
    from elmokit.text.tokens import make_tokenizer

    if ranks.first:
        out.mkdir(parents=True, exist_ok=True)
        with Console(stderr=True).status("reading the text") as status:
            prepare(
                texts,
                out / CORPUS,
                make_tokenizer(tokenizer),
                split={"auto": None, "lines": False, "split": True}[sentences],
                held_out=held_out,
                seed=seed,
                on_bad_line=on_bad_line,
                workers=workers,
                report=lambda progress: status.update(f"reading the text: {progress.tokens:,} tokens"),
            )
    ranks.sum(0.0)  # the others wait here
    return open_text(out)


def open_text(out: Path) -> PreparedCorpus:
    """The text of a run, as it was prepared."""
    from elmokit.pretrain.corpus import PreparedCorpus
    from elmokit.pretrain.run import CORPUS

    return PreparedCorpus.open(out / CORPUS / "train")


def show_plan(run: Run, seconds: float) -> None:
    if not run.ranks.first:
        return
    from rich.console import Console
    from rich.table import Table

    model, recipe, budget, corpus = run.trainer.model, run.config.recipe, run.config.budget, run.corpus
    vocabulary, head = len(model.vocabulary or ()), run.trainer.head
    table = Table(show_header=False, box=None, title="The plan", title_justify="left")
    for name, value in {
        "text": f"{corpus.tokens:,} tokens in {corpus.sentences:,} sentences, {len(corpus.types):,} different",
        "held out": f"{run.held_out.sentences:,} sentences" if run.held_out else "nothing",
        "predicts": f"{vocabulary:,} words, "
        + ("all computed" if run.trainer.sampler is None else "sampled softmax")
        + ("" if head.projection_weight is None else f", {head.softmax_width} wide"),
        "model": f"{sum(p.numel() for p in model.bilm.parameters()):,} parameters, "
        f"LSTM {recipe.model.lstm.cells} -> {recipe.model.lstm.width} a direction",
        "step": f"{recipe.train.rows} rows x {recipe.train.steps} tokens on {run.ranks.world} process(es), "
        f"products in {run.trainer.precision}",
        "optimizer": describe_optimizer(recipe.optimizer),
        "budget": f"{budget.hours} hours" if budget.tokens is None else f"{budget.tokens:,} tokens",
        "takes": "about " + duration(seconds),
    }.items():
        table.add_row(f"[bold]{name}[/bold]", value)
    if run.trainer.step:
        table.add_row("[bold]goes on[/bold]", f"from step {run.trainer.step:,}, {100 * run.progress:.1f} % done")
    Console(stderr=True).print(table)


def describe_optimizer(config: OptimizerConfig) -> str:
    rates = f"{config.kind}, learning rate {config.learning_rate:g}"
    if config.rest_rate != config.learning_rate:
        rates += f", of the rest by adamw {config.rest_rate:g}"
    if config.softmax_rate != config.rest_rate:
        rates += f", of the softmax {config.softmax_rate:g}"
    return rates


def train(run: Run, ranks: Ranks) -> Outcome:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(20), TaskProgressColumn(), TextColumn("{task.fields[line]}"))
    shown = Progress(*columns, console=Console(stderr=True), disable=not ranks.first)
    with stoppable() as stopped, shown as bar:
        task = bar.add_task("train", total=1.0, line="")
        bar.update(task, completed=min(1.0, run.progress))

        def report(now: Report) -> None:
            line = f"{now.tokens_per_second:,.0f} tokens/s  loss {now.result.loss:.3f}"
            line += f"  {duration(now.seconds_left)} left"
            bar.update(task, completed=now.progress, line=line)

        def measured(p: Perplexity) -> None:
            bar.console.print(
                f"{run.trainer.tokens:>12,} tokens: held-out perplexity {p.mean:.2f} "
                f"(forward {p.forward:.2f}, backward {p.backward:.2f})",
                highlight=False,
                soft_wrap=True,
            )

        outcome = run.train(report, measured, tell=bar.console.print, stop=stopped)
        bar.update(task, completed=min(1.0, run.progress))
        return outcome


def tell_outcome(run: Run, outcome: Outcome, command: str) -> None:
    command = f"{Path(sys.argv[0]).name} {command}"
    if outcome.finished:
        from elmokit.pretrain.run import MODEL

        typer.echo(f"done: {run.folder / MODEL}", err=True)
        if outcome.perplexity is not None:
            p = outcome.perplexity
            typer.echo(
                f"held-out perplexity: forward {p.forward:.2f}, backward {p.backward:.2f}, mean {p.mean:.2f}"
            )
    else:
        typer.echo(
            f"stopped at step {run.trainer.step:,}, {100 * run.progress:.1f} % done; to go on:\n"
            f"  {command} --out {run.folder} --resume",
            err=True,
        )


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
