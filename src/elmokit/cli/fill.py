"""elmo fill: the words that fit in a gap."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from elmokit.cli.shared.options import DEFAULT_MODEL, AsJson, Model, Tokenizer


def fill(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="With one gap, written ___ .")],
    *,
    model: Model = DEFAULT_MODEL,
    top: Annotated[int, typer.Option(min=1, help="Number of candidates.")] = 10,
    punctuation: Annotated[
        bool, typer.Option("--punctuation", help="Offer punctuation too, not only words and numbers.")
    ] = False,
    tokenizer: Tokenizer = None,
    as_json: AsJson = False,
) -> None:
    """The words that fit best in place of `___`, by what is before it and what is after it together.

    The gap is one token, with spaces around it. The words of the model's vocabulary are ranked by
    `p(word | left) x p(word | right) / p(word)^0.75`: not by the plain product, which counts twice how frequent a
    word is. Punctuation is left out unless --punctuation asks for it. log p of each direction alone stands beside
    the probability.

    Example:

    `elmo fill "He went to the ___ ." --top 5`
    """
    from elmokit.pretrain.perplexity import fill

    candidates = fill(model, sentence, top=top, punctuation=punctuation, tokenizer=tokenizer)
    if as_json:
        rows = [candidate._asdict() for candidate in candidates]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "word", "probability", "log p forward", "log p backward")
    for column in (0, 2, 3, 4):
        table.columns[column].justify = "right"
    for rank, (word, probability, forward, backward) in enumerate(candidates, start=1):
        table.add_row(str(rank), escape(word), f"{probability:.4f}", f"{forward:.3f}", f"{backward:.3f}")
    Console().print(table)
