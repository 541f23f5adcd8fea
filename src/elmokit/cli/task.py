"""elmo task: a task's model trained, measured and used, with ELMo in it or without."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elmokit.cli.shared.help import Command, Group
from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Header,
    LabelColumn,
    TableFormat,
    TextColumns,
    Threads,
    Weights,
    WeightsName,
    use_threads,
)
from elmokit.cli.shared.signals import Stopped, interrupt, stoppable
from elmokit.errors import UserError, listed
from elmokit.progress import live_bar

if TYPE_CHECKING:
    from elmokit.tasks.model import TaskModel
    from elmokit.tasks.progress import OnTaskProgress, TaskProgress

NONE = "none"
MOST_ROWS = 50  # of a table with a row per label
task = typer.Typer(
    name="task",
    cls=Group,
    help="Train, measure and use a task's model, with ELMo or without.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[
    str,
    typer.Argument(metavar="TASK", help="A task of `elmo task list`, or your own: package.module:Class."),
]
Own = Annotated[
    str | None, typer.Option("--task", metavar="MODULE:CLASS", help="The class of a task of your own: it is run.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="OUT of `elmo task train`, or OUT/best.")]
AsTrained = Annotated[
    WeightsName | None,
    typer.Option("--weights", help="How ELMo's weights are kept.", show_default="as in training"),
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Where the frozen biLM's layers are kept; ELMOKIT_CACHE or ~/.cache/elmokit by default."),
]


@task.command("list", cls=Command)
def list_tasks() -> None:
    """The tasks, and the papers that their models are from; with those that other packages bring along.

    Example: `elmo task list`
    """
    from rich.console import Console
    from rich.table import Table

    from elmokit.tasks import known_tasks, task_class

    table = Table("task", "what", "measured by", box=None)
    for name in known_tasks():
        kind = task_class(name)
        table.add_row(name, kind.summary, kind.metric)
    Console().print(table)


@task.command(cls=Command)
def train(
    name: Name,
    *,
    train: Annotated[Path, typer.Option(help="The training file, in the task's own format; .xz and .gz too.")],
    dev: Annotated[Path, typer.Option(help="The file that the best epoch is chosen on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run; the best model is OUT/best.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            "--elmo",
            envvar="ELMO_MODEL",
            help="As for `elmo embed`; none: the baseline.",
        ),
    ] = DEFAULT_MODEL,
    weights: Weights = "float32",
    place: Annotated[
        Literal["input", "output", "both"], typer.Option(help="Where ELMo enters the task's RNN.")
    ] = "input",
    layers: Annotated[str, typer.Option(help="all (learned weights), last, mean, or a layer's number.")] = "all",
    penalty: Annotated[float, typer.Option("--lambda", min=0, help="Pulls the layer weights together.")] = 0.001,
    elmo_dropout: Annotated[float, typer.Option(min=0, max=0.99)] = 0.5,
    train_bilm: Annotated[bool, typer.Option("--train-bilm", help="Also train the biLM: slow.")] = False,
    vectors: Annotated[
        Path | None, typer.Option(help="word2vec, GloVe or fastText vectors; learned from nothing without.")
    ] = None,
    tune_vectors: Annotated[bool, typer.Option("--tune-vectors", help="Train the vectors, too.")] = False,
    recipe: Annotated[
        str, typer.Option(help="laptop (minutes on 2 cores) or paper (the papers' sizes).")
    ] = "laptop",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: --set train.epochs=5."),
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="EXAMPLES", help="Learn from this number of examples at most, the same for all seeds."
        ),
    ] = None,
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    cache: Cache = None,
    threads: Threads = None,
) -> None:
    """Train a task's model; the same command resumes where it was stopped.

    Examples:

    `elmo task train ner --train train.conll --dev dev.conll --vectors glove.txt --out ner-elmo`

    `elmo task train ner --train train.conll --dev dev.conll --vectors glove.txt -m none --out ner-baseline`

    `elmo task train sentiment --train train.csv --dev dev.csv --text-column review --label-column stars -o stars`

    `elmo task train entailment --train snli.jsonl --dev dev.jsonl -m my-elmo --place both -o nli`

    `elmo task train questions:Questions --train train.tsv --dev dev.tsv -o questions` (a task of your own)
    """
    use_threads(threads)
    from elmokit.tasks.train import train_task

    with _watched() as (show, stopped):
        trained = train_task(
            name,
            train=train,
            dev=dev,
            out=out,
            elmo=None if model == NONE else model,
            weights=weights,
            place=place,
            which_layers=layers,
            penalty=penalty,
            elmo_dropout=elmo_dropout,
            train_bilm=train_bilm,
            vectors=vectors,
            tune_vectors=tune_vectors,
            recipe=recipe,
            settings=settings or (),
            seed=seed,
            limit=limit,
            text_column=text_column,
            label_column=label_column,
            header=header,
            table_format=table_format,
            cache=cache,
            on_progress=show,
            stop=stopped,
        )
    if trained.results is None:
        typer.echo("stopped; the epochs that are done are kept, and the same command resumes after them", err=True)
        raise typer.Exit(stopped.exit_code)
    best = trained.results["best"]
    scores = ", ".join(f"{key} {value:.2f}" for key, value in best["scores"].items())
    typer.echo(f"best: epoch {best['epoch']}, dev {scores}")
    for what, value in trained.results.get("ceilings", {}).items():
        typer.echo(f"{what}: {value:.2f} % (more it cannot reach)")
    typer.echo(f"done: {out / 'best'}", err=True)


@contextmanager
def _watched() -> Iterator[tuple[OnTaskProgress, Stopped]]:
    """A live line, and whether to stop. Before the first step a signal ends it at once: nothing is lost."""
    from rich.progress import BarColumn, TextColumn

    training = False

    def stop() -> None:
        if not training:
            interrupt()

    columns = (BarColumn(20), TextColumn("{task.fields[line]}"))
    with stoppable(stop) as stopped, live_bar(*columns) as bar:
        shown = bar.add_task("train", total=None, line="")

        def show(now: TaskProgress) -> None:
            nonlocal training
            training = training or now.loss is not None
            if now.epoch is not None:
                number, loss, scores, seconds = now.epoch
                measured = "  ".join(f"{key} {value:.2f}" for key, value in scores.items())
                line = f"epoch {number:>3}  loss {loss:.4f}  {measured}  {seconds:.0f} s"
                bar.console.print(line, highlight=False)
            elif now.total:
                line = now.stage if now.loss is None else f"{now.stage}  loss {now.loss:.3f}"
                bar.update(shown, completed=now.done, total=now.total, line=line)
            else:
                bar.console.print(now.stage, highlight=False)

        yield show, stopped


@task.command(cls=Command)
def evaluate(
    run: Run,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Labelled examples in the task's own format.")],
    *,
    by_label: Annotated[bool, typer.Option("--by-label", help="Also a row per label.")] = False,
    task: Own = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the predictions: as the official scorers of squad, coref, ner read it."
        ),
    ] = None,
    text_column: TextColumns = None,
    label_column: LabelColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    as_json: AsJson = False,
    weights: AsTrained = None,
    threads: Threads = None,
) -> None:
    """A trained model's scores on a file.

    Examples:

    `elmo task evaluate ner-elmo test.conll --by-label`

    `elmo task evaluate squad-elmo dev-v1.1.json --predictions predicted.json` (for evaluate-v1.1.py)
    """
    use_threads(threads)
    from elmokit.tasks.model import TaskModel

    trained = TaskModel.load(run, task=task, weights=weights)
    scores, ceilings, rows, unseen = trained.evaluate(
        file,
        predictions=predictions,
        text_column=text_column,
        label_column=label_column,
        header=header,
        table_format=table_format,
    )
    if unseen is not None:
        typer.echo(f"note: {unseen}; such answers count as missed", err=True)
    if predictions is not None:
        typer.echo(f"wrote {predictions}", err=True)
    if as_json:
        facts = {"task": trained.task.name, "scores": scores, "ceilings": ceilings, "by_label": rows}
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    for key, value in (scores | ceilings).items():
        typer.echo(f"{key:<12} {value:.2f}")
    if by_label and rows:
        from rich.console import Console
        from rich.table import Table

        table = Table(*rows[0], box=None)
        for row in rows[:MOST_ROWS]:
            table.add_row(*(_cell(value) for value in row.values()))
        Console().print(table)
        if len(rows) > MOST_ROWS:
            typer.echo(f"and {len(rows) - MOST_ROWS:,} more labels: --json has them all", err=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        most = sorted(value.items(), key=lambda item: -item[1])
        return listed((f"{label}: {count}" for label, count in most if count), 5)
    return listed(value) if isinstance(value, list) else str(value)


@task.command(cls=Command)
def predict(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An example per line; - is stdin.")] = "-",
    *,
    context: Annotated[
        Path | None, typer.Option(help="squad: a text to ask about; questions come from --question or FILE.")
    ] = None,
    question: Annotated[
        list[str] | None, typer.Option(help="squad: a question about --context; as often as you like.")
    ] = None,
    text_column: TextColumns = None,
    header: Header = None,
    table_format: TableFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
    task: Own = None,
    tokenizer: Annotated[str, typer.Option(help="words, whitespace (the text is tokenized) or korean.")] = "words",
    weights: AsTrained = None,
    threads: Threads = None,
) -> None:
    """Text in, labelled text out.

    Examples:

    `echo "Ada Lovelace lived in London." | elmo task predict ner-elmo`

    `elmo task predict stars new.csv --text-column review` (a line per row, in their order)

    `elmo task predict srl-elmo sentences.txt --json` (each line with its predicate in brackets: He [gave] it .)

    `elmo task predict squad-elmo --context article.txt --question "Who wrote it?"` (without --question it asks)
    """
    use_threads(threads)
    from elmokit.tasks.model import TaskModel
    from elmokit.text.columns import asked_columns
    from elmokit.text.corpus import LineReader, open_table
    from elmokit.text.corpus import table_format as format_of
    from elmokit.text.tokens import make_tokenizer

    trained, tokenize = TaskModel.load(run, task=task, weights=weights), make_tokenizer(tokenizer).tokens
    if context is not None:
        _answer(trained, context, question or [], file, tokenize, as_json)
        return
    if question:
        raise UserError("--question is asked about a text: give it by --context FILE")
    columns = asked_columns(text_column, None, header, table_format)
    if columns is not None or format_of(file) is not None:
        with open_table(file, columns=columns, texts=trained.task.texts, can_skip=False) as table:
            examples = [
                trained.task.row_example(row.texts, None, tokenize, f"{file}, row {row.number}") for row in table
            ]
    else:
        with LineReader(file) as reader:
            examples = [
                trained.task.example(line.text, tokenize, f"{file}, line {line.number}")
                for line in reader
                if line.text.strip()
            ]
    for example, prediction in zip(examples, trained.predict(examples)):
        _tell(trained, example, prediction, as_json)
    if not examples:
        typer.echo("no lines to read", err=True)
        sys.exit(1)


def _tell(trained: TaskModel, example: Any, prediction: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(trained.task.as_json(example, prediction), ensure_ascii=False))
    else:
        typer.echo(trained.task.show(example, prediction))


def _answer(
    trained: TaskModel, context: Path, questions: list[str], file: str, tokenize: Any, as_json: bool
) -> None:
    """These questions, or one per line as they come: an answer is there before the next is asked."""
    from elmokit.tasks.squad.task import QuestionAnswering
    from elmokit.text.corpus import LineReader

    if not isinstance(trained.task, QuestionAnswering):
        raise UserError(f"--context goes with squad, this is a model of {trained.task.name}")
    with LineReader(context) as reader:
        text = "\n".join(line.text for line in reader)
    if not text.strip():
        raise UserError(f"{context}: expected a text to ask about, found none: the file is empty")

    def answer(asked: str) -> None:
        example = QuestionAnswering.ask(text, asked, tokenize, str(context))
        _tell(trained, example, trained.predict([example])[0], as_json)

    for question in questions:
        answer(question)
    if questions:
        return
    if file == "-" and sys.stdin.isatty():
        typer.echo("A question per line; end with Ctrl-D.", err=True)
    with LineReader(file) as reader:
        for line in reader:
            if line.text.strip():
                answer(line.text)
