"""elmo perplexity: how well a model predicts a text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Header,
    Model,
    OnBadLine,
    Split,
    State,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    check_texts,
    use_threads,
)
from elmokit.progress import live_bar

if TYPE_CHECKING:
    from elmokit.pretrain.progress import TrainingProgress

MOSTLY = 0.5  # of the words: more unknown ones than that, and the figure says little


def perplexity(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="Text files, also .gz .bz2 .xz .zst; - is stdin.")
    ],
    *,
    model: Model = DEFAULT_MODEL,
    state: State = "carry",
    split: Split = False,
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="SENTENCES", help="Read this number of sentences at most.")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """How well a model predicts a text, one sentence per line: exp of the mean negative log likelihood per token.

    Forward is each word and the sentence's end given what is before it, backward each word and its beginning given
    what is after it. Unknown words count, as `<UNK>`: compare only models of the same vocabulary and tokenizer.

    --state is carry here and zero elsewhere: a language model reads on from sentence to sentence, as in training,
    and papers state their perplexity so.

    Examples:

    `elmo perplexity heldout.txt`

    `elmo perplexity book.txt.gz --split --state zero --limit 1000 -m my-elmo --json`
    """
    check_texts(texts)
    use_threads(threads)
    from elmokit.pretrain.file_perplexity import perplexity_of_files
    from elmokit.sources import open_checkpoint

    checkpoint = open_checkpoint(model)
    begun = time.monotonic()
    with _progress() as on_progress:
        result = perplexity_of_files(
            checkpoint,
            texts,
            state=state,
            split=split,
            tokenizer=tokenizer,
            on_bad_line=on_bad_line,
            text_column=text_column,
            header=header,
            table_format=table_format,
            limit=limit,
            on_progress=on_progress,
        )
    seconds = time.monotonic() - begun
    if result.unknown > MOSTLY:
        typer.echo(
            f"note: {100 * result.unknown:.0f} % of the words are unknown, and <UNK> is easily predicted: "
            "is the text cut into tokens as the model's was?",
            err=True,
        )
    if as_json:
        facts = {"model": model, "texts": texts, "state": state, **result._asdict(), "seconds": round(seconds, 3)}
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "perplexity", title=f"{result.sentences:,} sentences, state {state}", title_justify="left")
    for name in ("forward", "backward", "mean"):
        table.add_row(name, f"{getattr(result, name):,.2f}")
    table.columns[1].justify = "right"
    Console().print(table)
    unknown = f"{result.unknown:.2%} of the words unknown"
    typer.echo(f"{result.predictions:,} predictions per direction, {unknown}, {seconds:.1f} s")


@contextmanager
def _progress() -> Iterator[Callable[[TrainingProgress], None]]:
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[done]}"),
    )
    with live_bar(*columns) as bar:
        task = bar.add_task("reading", total=None, done="")

        def show(now: TrainingProgress) -> None:
            if now.message is not None:
                bar.console.print(now.message, highlight=False, soft_wrap=True)
            if now.perplexity is not None:
                done = f"{now.perplexity.sentences:,} sentences, perplexity {now.perplexity.mean:,.2f}"
                total = None if now.fraction is None else 1.0
                bar.update(task, total=total, completed=now.fraction or 0.0, done=done)

        yield show
