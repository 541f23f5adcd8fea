"""elmo similar: one word in several contexts, compared layer by layer."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Annotated

import typer

from elmokit.cli.shared.options import AsJson, Model, Tokenizer
from elmokit.errors import UserError


def similar(
    sentences: Annotated[
        list[str], typer.Argument(metavar="SENTENCE...", help="Each with one word in [brackets].")
    ],
    *,
    model: Model,
    tokenizer: Tokenizer = None,
    as_json: AsJson = False,
) -> None:
    r"""How near the [marked] words of two or more sentences are: the cosine of their vectors, by layer.

    Layer 0 sees the word alone, so there the same word is always 1. Write \\[ for a plain bracket.

    Example:

    `elmo similar "He sat on the [bank] of the river ." "She works at a [bank] ." -m MODEL`
    """
    if len(sentences) < 2:
        raise UserError("expected two sentences or more to compare, found one")
    from elmokit.analysis.contexts.marked import cosines, read_marked, word_vectors
    from elmokit.embed.embedder import Elmo

    elmo = Elmo.from_pretrained(model, tokenizer=tokenizer)
    marked = [read_marked(elmo, sentence) for sentence in sentences]
    by_layer = cosines(word_vectors(elmo, marked))  # [layers, S, S]
    pairs = list(combinations(range(len(sentences)), 2))
    if as_json:
        rows = [
            {
                "first": sentences[i],
                "second": sentences[j],
                "cosine": [round(float(c), 6) for c in by_layer[:, i, j]],
            }
            for i, j in pairs
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for i, sentence in enumerate(sentences, start=1):
        console.print(f"[bold]{i}[/bold]  {escape(sentence)}", highlight=False)
    table = Table("pair", "words", *(f"layer {layer}" for layer in range(len(by_layer))))
    for i, j in pairs:
        words = f"{escape(marked[i].word)} / {escape(marked[j].word)}"
        table.add_row(f"{i + 1}, {j + 1}", words, *(f"{cosine:.3f}" for cosine in by_layer[:, i, j]))
    console.print(table)
