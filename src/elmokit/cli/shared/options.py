"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.embed.embedder import Elmo

DEFAULT_MODEL = "en-small"
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="ELMO_MODEL",
        help="A bundled name, a folder (elmokit's, AllenNLP's, ELMoForManyLangs'), or owner/name on the hub.",
    ),
]
WeightsName = Literal["float32", "bfloat16", "float16", "int8", "auto"]  # of the kernels, not imported here
Weights = Annotated[
    WeightsName,
    typer.Option(
        help="What is computed with: smaller is faster where the processor has it, not exact; auto: see the docs."
    ),
]
State = Annotated[
    Literal["zero", "carry"],
    typer.Option(help="What a sentence begins from: nothing (zero), or the one before it (carry)."),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="whitespace (the text is tokenized), words or korean; by default the model's own."),
]
OnBadLine = Annotated[
    Literal["refuse", "skip", "replace"], typer.Option(help="A line that is not UTF-8, or a bad row: what to do.")
]
TextColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME|N", help="Tables (.csv .tsv .jsonl): the column of the texts, by name or number."),
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--text-column",
        metavar="NAME|N",
        help="Tables (.csv .tsv .jsonl): the column of the texts, by name or number; twice for pairs of texts.",
    ),
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME|N", help="Tables: the column of the labels, by name or number.")
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Tables: whether the first row has the names.", show_default="found out"
    ),
]
TableFormat = Annotated[
    Literal["csv", "tsv", "jsonl"] | None,
    typer.Option("--format", help="Read a table, whatever the file's name.", show_default="by the file's name"),
]
Split = Annotated[
    bool, typer.Option("--split/--no-split", help="Lines are paragraphs: split them into sentences.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]
Data = Annotated[Path, typer.Option(help="A folder with a study.toml, or laid out as the project's data pack is.")]
Layout = Annotated[
    str | None,
    typer.Option(help="Which files are for what: a file like study.toml, or en or ko of the data pack."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; by default what torch chooses.")]


def given_by_hand(context: typer.Context, option: str) -> bool:
    """On the command line: neither a default nor from the environment."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def check_texts(texts: Sequence[str]) -> None:
    """A model's name among the texts: the model is given by -m."""
    from elmokit.sources.bundled import bundled_names

    for text in texts:
        if text in bundled_names() and not Path(text).exists():
            raise UserError(f"{text} is a model, and a text was expected here: give the model by -m {text}")


def opened(model: str, weights: WeightsName, tokenizer: str | None = None) -> Elmo:
    """The model that a command reads with."""
    from elmokit.embed.embedder import Elmo

    return Elmo.from_pretrained(model, weights=weights, tokenizer=tokenizer)


def use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
