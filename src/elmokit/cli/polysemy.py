"""elmo polysemy: one word's occurrences in two dimensions, by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.exhibits import Save, save_exhibits, show
from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    AsJson,
    Model,
    Threads,
    Tokenizer,
    Weights,
    opened,
    use_threads,
)
from elmokit.progress import terminal_bar


def polysemy(
    word: Annotated[str, typer.Argument(metavar="WORD", help="For --tagged, as a dictionary has it.")],
    *,
    model: Model = DEFAULT_MODEL,
    corpus: Annotated[
        Path | None, typer.Option(metavar="TEXT", help="Plain text, also .gz .bz2 .xz .zst: senses unknown.")
    ] = None,
    senses: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Two senses per word: JSON as of elmo probe pairs, or en or ko."),
    ] = None,
    tagged: Annotated[
        Path | None, typer.Option(metavar="XML", help="A sense-tagged corpus: X.data.xml, its keys beside it.")
    ] = None,
    form: Annotated[
        list[str] | None, typer.Option(help="In --corpus, also a token of this form; as often as you like.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            min=2,
            metavar="OCCURRENCES",
            help="This number of occurrences at most: of --corpus the first, of --tagged by the seed.",
        ),
    ] = 200,
    seed: Annotated[int, typer.Option(help="Which occurrences of --tagged the limit chooses.")] = 0,
    tokenizer: Tokenizer = None,
    weights: Weights = "float32",
    threads: Threads = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """A word's occurrences in two dimensions by layer, coloured by sense; and how well the senses part.

    Examples:

    `elmo polysemy play --tagged semcor.data.xml.xz --save figures`

    `elmo polysemy bank --corpus text.txt.xz --form banks --save figures`

    `elmo polysemy 배가 --senses ko --corpus text.txt.xz -m ko-small --save figures`
    """
    use_threads(threads)
    from elmokit.analysis.contexts.polysemy import polysemy as find_and_view

    with terminal_bar() as on_progress:
        result = find_and_view(
            opened(model, weights, tokenizer),
            word,
            corpus=corpus,
            senses=senses,
            tagged=tagged,
            forms=form or (),
            limit=limit,
            seed=seed,
            on_progress=on_progress,
        )
    files = [str(file) for file in (corpus, senses, tagged) if file is not None]
    show(
        result.exhibit(),
        {"model": model, "weights": weights, "files": files, "seed": seed, **result.to_dict()},
        save,
        as_json,
    )
    save_exhibits([result.listing()], save)
