"""elmo neighbours: a word's nearest contexts by layer, beside the neighbours of static vectors."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.index import highlighted, read_layers
from elmokit.cli.shared.exhibits import Save, progress, save_exhibits
from elmokit.cli.shared.options import AsJson, Model, OnBadLine, Split, Threads, Tokenizer, use_threads
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.analysis.contexts.neighbours import Neighbours


def neighbours(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="With one word in [brackets].")],
    *,
    model: Model,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Text to look in, one sentence a line; also .gz .bz2 .xz .zst. May be given twice."),
    ] = None,
    index: Annotated[Path | None, typer.Option(help="What `elmo index build` made, instead of --corpus.")] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Static word vectors (GloVe, word2vec, fastText; also .gz .xz).")
    ] = None,
    layers: Annotated[str, typer.Option(help="all, or numbers such as 0,2.")] = "all",
    top: Annotated[int, typer.Option(min=1, help="So many neighbours of each kind.")] = 5,
    split: Split = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Look at so many words of --corpus at most, the first ones.")
    ] = None,
    tokenizer: Tokenizer = None,
    on_bad_line: OnBadLine = "refuse",
    threads: Threads = None,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    r"""The contexts nearest to the [marked] word's, by layer (the paper's Table 4).

    One context a sentence; the word's own sentence is left out. Layer 0 sees the word alone, and finds the word
    itself. Write \\[ for a plain bracket.

    Examples:

    `elmo neighbours "Chico Ruiz made a spectacular [play] on Alusik 's grounder" --corpus news.txt -m MODEL`

    `elmo neighbours "a [play] by Shaw" --index news.index --vectors glove.txt --layers 1,2 --top 3 -m MODEL`
    """
    if (index is None) == (not corpus):
        raise UserError("where to look: expected either --corpus TEXT or --index FOLDER")
    if index is not None and (limit is not None or tokenizer is not None or split):
        raise UserError("--split, --limit and --tokenizer go with --corpus: an index has its own")
    chosen = read_layers(layers)
    use_threads(threads)
    from elmokit.analysis.contexts.index import ContextIndex
    from elmokit.analysis.contexts.index_files import read_facts
    from elmokit.analysis.contexts.marked import read_marked
    from elmokit.analysis.contexts.neighbours import corpus_neighbours, index_neighbours
    from elmokit.embed.embedder import Elmo

    if index is not None:
        elmo = Elmo.from_pretrained(model, tokenizer=read_facts(index).tokenizer)
        opened, query = ContextIndex.open(index, elmo), read_marked(elmo, sentence)
        result = index_neighbours(elmo, query, opened, layers=chosen, most=top, vectors=vectors)
    else:
        elmo = Elmo.from_pretrained(model, tokenizer=tokenizer)
        query = read_marked(elmo, sentence)
        with progress() as report:
            result = corpus_neighbours(
                elmo,
                query,
                corpus or [],
                layers=chosen,
                most=top,
                vectors=vectors,
                split=split,
                limit=limit,
                on_bad_line=on_bad_line,
                report=report,
            )
    if as_json:
        typer.echo(json.dumps({"model": model, **result.to_dict()}, ensure_ascii=False, indent=2))
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
    console.print(highlighted(query.tokens, query.start, query.end), highlight=False)
    table = Table("", "cosine", "nearest neighbours")
    if result.static is not None:
        name = "static vectors"
        for near in result.static:
            table.add_row(name, f"{near.cosine:.3f}", escape(near.word))
            name = ""
        if not result.static:
            table.add_row(name, "", f"(no vector for {escape(query.word)})")
        table.add_section()
    for layer, contexts in zip(result.layers, result.contexts):
        name = layer_name(layer)
        for context in contexts:
            found = context.sentence
            table.add_row(name, f"{context.cosine:.3f}", highlighted(found.tokens, found.start, found.end))
            name = ""
        table.add_section()
    console.print(table)
    typer.echo(f"{result.compared:,} words compared")
