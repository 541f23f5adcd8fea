"""elmo similar: one word in several contexts, compared layer by layer."""

from __future__ import annotations

from typing import Annotated

import typer

from elmokit.cli.shared.exhibits import print_json
from elmokit.cli.shared.options import DEFAULT_MODEL, AsJson, Model, Tokenizer, Weights, opened


def similar(
    sentences: Annotated[list[str], typer.Argument(metavar="SENTENCE", help="Each with one word in [brackets].")],
    *,
    model: Model = DEFAULT_MODEL,
    tokenizer: Tokenizer = None,
    weights: Weights = "float32",
    as_json: AsJson = False,
) -> None:
    r"""How near the [marked] words of two or more sentences are: the cosine of their vectors, by layer.

    Layer 0 sees the word alone, so there the same word is always 1. Write \\[ for a plain bracket.

    Example:

    `elmo similar "He sat on the [bank] of the river ." "She works at a [bank] ."`
    """
    from elmokit.analysis.contexts.marked import compare_words

    found = compare_words(opened(model, weights, tokenizer), sentences)
    if as_json:
        print_json(found.to_list())
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for i, sentence in enumerate(sentences, start=1):
        console.print(f"[bold]{i}[/bold]  {escape(sentence)}", highlight=False)
    table = Table("pair", "words", *(f"layer {layer}" for layer in range(len(found.by_layer))))
    for i, j in found.pairs():
        words = f"{escape(found.marked[i].word)} / {escape(found.marked[j].word)}"
        table.add_row(f"{i + 1}, {j + 1}", words, *(f"{cosine:.3f}" for cosine in found.by_layer[:, i, j]))
    console.print(table)
