"""elmo index: the token vectors of a corpus on disk, to be searched for the nearest contexts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.contexts import highlighted, read_layers
from elmokit.cli.shared.exhibits import print_json
from elmokit.cli.shared.help import Command, Group
from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Header,
    Model,
    OnBadLine,
    Overwrite,
    Split,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    check_texts,
    use_threads,
)
from elmokit.cli.shared.signals import interrupt, stoppable
from elmokit.progress import terminal_bar

index = typer.Typer(
    name="index",
    cls=Group,
    help="The token vectors of a corpus on disk: millions of contexts, and the nearest of them in milliseconds.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog='Example: `elmo index search INDEX "a [play] by Shaw"`. Each has its own --help.',
)


@index.command(cls=Command)
def build(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="Files (also .gz .bz2 .xz .zst .parquet), folders, patterns or -."),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make.")],
    model: Model = DEFAULT_MODEL,
    layers: Annotated[
        str, typer.Option(help="all, or numbers such as 0,2; each layer needs space of its own.")
    ] = ("all"),
    split: Split = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="TOKENS", help="Keep this number of tokens, the first ones."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Keep punctuation and numbers too, not only words.")
    ] = False,
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
) -> None:
    """Embed a corpus, one sentence per line, and keep the vectors of its words with their sentences.

    The folder appears whole or not at all. Up to 50,000 vectors are all compared by a search; more are also put
    into partitions, of which a search reads the nearest.

    Examples:

    `elmo index build news.txt.xz -o news.index`

    `elmo index build 'books/*.txt' -o books.index -m my-elmo --split --layers 2 --limit 1000000`
    """
    check_texts(sources)
    use_threads(threads)
    from elmokit.analysis.contexts.index import ContextIndex

    with stoppable(interrupt):
        try:
            with terminal_bar() as on_progress:
                made = ContextIndex.build(
                    model,
                    sources,
                    out,
                    which_layers=read_layers(layers),
                    split=split,
                    limit=limit,
                    everything=everything,
                    tokenizer=tokenizer,
                    on_bad_line=on_bad_line,
                    text_column=text_column,
                    header=header,
                    table_format=table_format,
                    overwrite=overwrite,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            typer.echo(f"stopped; {out} was not made", err=True)
            raise
    facts = made.facts
    how = f"{facts.partitions:,} partitions" if facts.partitions else "exact search"
    typer.echo(
        f"{out}: {facts.sentences:,} sentences, {facts.vectors:,} vectors of layer "
        f"{', '.join(map(str, facts.which_layers))}; {how}",
        err=True,
    )


@index.command(cls=Command)
def search(
    folder: Annotated[Path, typer.Argument(metavar="INDEX", help="What `elmo index build` made.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="With one word in [brackets].")],
    *,
    model: Model = DEFAULT_MODEL,
    layer: Annotated[int | None, typer.Option(help="By default the topmost that the index has.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many contexts.")] = 10,
    exact: Annotated[bool, typer.Option("--exact", help="Compare every vector: slower, and misses none.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    r"""The contexts of an index nearest to the [marked] word's: one per sentence, its own left out.

    Write \\[ for a plain bracket.

    Examples:

    `elmo index search news.index "Chico Ruiz made a spectacular [play] ."`

    `elmo index search news.index "a [play] by Shaw" -m my-elmo --layer 1 --top 20 --exact --json`
    """
    use_threads(threads)
    from elmokit.analysis.contexts.index import search_index

    found = search_index(model, folder, sentence, layer=layer, most=top, exact=exact)
    if as_json:
        print_json({"model": model, "index": str(folder), **found.to_dict()})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("cosine", f"nearest contexts in layer {found.layer}")
    for near in found.contexts:
        table.add_row(f"{near.cosine:.3f}", highlighted(near.sentence))
    Console().print(table)
