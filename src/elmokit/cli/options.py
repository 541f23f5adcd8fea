"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="ELMO_MODEL",
        help="A model folder (elmokit's, bilm-tf's/AllenNLP's or ELMoForManyLangs'), or a bundled model's name.",
    ),
]
Tokeniser = Annotated[
    str | None,
    typer.Option(help="whitespace (the text is tokenised) or words; by default the model's own."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; by default what torch chooses.")]


def use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
