"""elmo neighbours: a word's nearest contexts by layer, beside the neighbours of static vectors."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.contexts import highlighted, read_layers
from elmokit.cli.shared.exhibits import Save, print_json, save_exhibits
from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Header,
    Model,
    OnBadLine,
    Split,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    use_threads,
)
from elmokit.progress import silent, terminal_bar

if TYPE_CHECKING:
    from elmokit.analysis.contexts.neighbours import Neighbours


def neighbours(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="With one word in [brackets].")],
    *,
    model: Model = DEFAULT_MODEL,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Text to look in, one sentence per line; also .gz .bz2 .xz .zst. May be given twice."),
    ] = None,
    index: Annotated[Path | None, typer.Option(help="What `elmo index build` made, instead of --corpus.")] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Static word vectors (GloVe, word2vec, fastText; also .gz .xz).")
    ] = None,
    layers: Annotated[str, typer.Option(help="all, or numbers such as 0,2.")] = "all",
    top: Annotated[int, typer.Option(min=1, help="So many neighbours of each kind.")] = 5,
    split: Split = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="WORDS", help="Look at this number of words of --corpus, the first ones."),
    ] = None,
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    threads: Threads = None,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    r"""The contexts nearest to the [marked] word's, by layer (the paper's Table 4).

    One context per sentence; the word's own sentence is left out. Layer 0 sees the word alone, and finds the word
    itself. Write \\[ for a plain bracket.

    Examples:

    `elmo neighbours "Chico Ruiz made a spectacular [play] on Alusik 's grounder" --corpus news.txt`

    `elmo neighbours "a [play] by Shaw" --index news.index --vectors glove.txt --layers 1,2 --top 3`
    """
    use_threads(threads)
    from elmokit.analysis.contexts.neighbours import neighbours as find_neighbours

    with terminal_bar() if index is None else nullcontext(silent) as on_progress:  # an index answers at once
        result = find_neighbours(
            model,
            sentence,
            corpus=corpus or (),
            index=index,
            vectors=vectors,
            which_layers=read_layers(layers),
            most=top,
            split=split,
            limit=limit,
            tokenizer=tokenizer,
            on_bad_line=on_bad_line,
            text_column=text_column,
            header=header,
            table_format=table_format,
            on_progress=on_progress,
        )
    if as_json:
        print_json({"model": model, **result.to_dict()})
    else:
        _print(result)
    free = next(n for n in itertools.count(1) if save is None or not (save / f"neighbours-{n}.csv").exists())
    save_exhibits([result.exhibit(free)], save)  # beside those of other queries


def _print(result: Neighbours) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from elmokit.show.exhibit import layer_name

    query, console = result.query, Console()
    console.print(highlighted(query), highlight=False)
    table = Table("", "cosine", "nearest neighbours")
    if result.static is not None:
        name = "static vectors"
        for near in result.static:
            table.add_row(name, f"{near.cosine:.3f}", escape(near.word))
            name = ""
        if not result.static:
            table.add_row(name, "", f"(no vector for {escape(query.word)})")
        table.add_section()
    for layer, contexts in zip(result.which_layers, result.contexts):
        name = layer_name(layer)
        for context in contexts:
            table.add_row(name, f"{context.cosine:.3f}", highlighted(context.sentence))
            name = ""
        table.add_section()
    console.print(table)
    typer.echo(f"{result.compared:,} words compared")
