"""elmo perplexity: how well a model predicts a text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.options import AsJson, OnBadLine, Split, Threads, Tokenizer, use_threads

if TYPE_CHECKING:
    from elmokit.checkpoint import Checkpoint
    from elmokit.pretrain.perplexity import Perplexity
    from elmokit.text.corpus import BadLine
    from elmokit.text.tokens import Tokenizer as Splitter


MOSTLY = 0.5  # of the words: more unknown ones than that, and the figure says little


def perplexity(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, a bundled name, or owner/name on the hub.")
    ],
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text files, also .gz .bz2 .xz .zst; - is stdin.")
    ],
    *,
    state: Annotated[
        Literal["carry", "zero"],
        typer.Option(help="What a sentence begins from: the one before it, as in training, or nothing."),
    ] = "carry",
    split: Split = False,
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    limit: Annotated[int | None, typer.Option(min=1, help="Read so many sentences at most.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """How well a model predicts a text, one sentence a line: exp of the mean negative log likelihood of a token.

    Forward is each word and the sentence's end given what is before it, backward each word and its beginning given
    what is after it. Unknown words count, as `<UNK>`: compare only models of the same vocabulary and tokenizer.

    Examples:

    `elmo perplexity MODEL heldout.txt`

    `elmo perplexity MODEL book.txt.gz --split --state zero --limit 1000 --json`
    """
    use_threads(threads)
    from elmokit.sources import open_checkpoint
    from elmokit.text.tokens import TokenizerConfig, make_tokenizer

    checkpoint = open_checkpoint(model)
    config = checkpoint.tokenizer
    splitter = make_tokenizer(TokenizerConfig(tokenizer, config.normalize) if tokenizer else config)
    begun = time.monotonic()
    result = _run(checkpoint, _Texts(texts, splitter, split, on_bad_line), state, limit)
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
    typer.echo(f"{result.predictions:,} predictions a direction, {unknown}, {seconds:.1f} s")


class _Texts:
    """The sentences of several files, one after the other, and how far they have been read."""

    def __init__(self, paths: list[str], tokenizer: Splitter, split: bool, on_bad_line: BadLine) -> None:
        from elmokit.text.corpus import LineReader

        self.paths, self.tokenizer, self.split, self.on_bad_line = paths, tokenizer, split, on_bad_line
        self.fraction: float | None = None
        self.skipped = 0
        for path in paths:  # what is not there is said at once, not after the files before it
            with LineReader(path):
                pass

    def __iter__(self) -> Iterator[list[str]]:
        from elmokit.text.corpus import LineReader

        for number, path in enumerate(self.paths):
            with LineReader(path, self.on_bad_line) as lines:
                for line in lines:
                    here = lines.fraction()
                    self.fraction = None if here is None else (number + here) / len(self.paths)
                    for text in self.tokenizer.sentences(line.text) if self.split else [line.text]:
                        if tokens := self.tokenizer.tokens(text):
                            yield tokens
                self.skipped += len(lines.skipped)


def _run(checkpoint: Checkpoint, texts: _Texts, state: Literal["carry", "zero"], limit: int | None) -> Perplexity:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from elmokit.pretrain.perplexity import perplexity

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.fields[done]}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=None, done="")

        def report(so_far: Perplexity) -> None:
            fraction = so_far.sentences / limit if limit else texts.fraction
            done = f"{so_far.sentences:,} sentences, perplexity {so_far.mean:,.2f}"
            bar.update(task, total=None if fraction is None else 1.0, completed=fraction or 0.0, done=done)

        result = perplexity(checkpoint, islice(texts, limit), state=state, report=report)
    if texts.skipped:
        typer.echo(f"skipped {texts.skipped:,} lines that are not UTF-8", err=True)
    return result
