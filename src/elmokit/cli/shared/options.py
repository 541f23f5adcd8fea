"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="ELMO_MODEL",
        help="A bundled name, a folder (elmokit's, AllenNLP's, ELMoForManyLangs'), or owner/name on the hub.",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="whitespace (the text is tokenized), words or korean; by default the model's own."),
]
OnBadLine = Annotated[
    Literal["refuse", "skip", "replace"], typer.Option(help="What to do with a line that is not UTF-8.")
]
Split = Annotated[bool, typer.Option("--split", help="Lines are paragraphs: split them into sentences.")]
Data = Annotated[Path, typer.Option(help="A folder with a study.toml, or laid out as the project's data pack is.")]
Layout = Annotated[
    str | None,
    typer.Option(help="Which files are for what: a file like study.toml, or en or ko of the data pack."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; by default what torch chooses.")]


def use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
