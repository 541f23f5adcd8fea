"""elmo embed: a text file -> a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    Header,
    Model,
    OnBadLine,
    Overwrite,
    Split,
    TableFormat,
    TextColumn,
    Threads,
    Tokenizer,
    Weights,
    check_texts,
    given_by_hand,
    use_threads,
)
from elmokit.cli.shared.signals import interrupt, stoppable
from elmokit.errors import UserError, counted
from elmokit.progress import live_bar

if TYPE_CHECKING:
    from elmokit.embed.job import Embedder, EmbedJob, Summary

OF_THE_SERVER = ("warm_text", "batch_tokens", "weights", "threads", "device")


def embed(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Text or a table, also .gz .bz2 .xz .zst; - is stdin.")
    ] = "-",
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help=".h5, .npz, .safetensors or .parquet.")],
    model: Model = DEFAULT_MODEL,
    layers: Annotated[
        str, typer.Option(help="all, mean, a layer's number, or weights such as 0.2,0.5,0.3.")
    ] = "all",
    pooling: Annotated[
        Literal["none", "mean", "max"], typer.Option(help="One vector per sentence instead of one per token.")
    ] = "none",
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="float16 halves the file.")] = "float32",
    tokenizer: Tokenizer = None,
    split: Split = False,
    on_bad_line: OnBadLine = "refuse",
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    state: Annotated[
        Literal["zero", "carry", "warm"],
        typer.Option(
            help="What a sentence begins from: nothing (zero), the one before it (carry), or --warm-text (warm)."
        ),
    ] = "zero",
    warm_text: Annotated[Path | None, typer.Option(help="Text to read first, one sentence per line.")] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a batch: the memory budget.")] = 4096,
    weights: Weights = "float32",
    threads: Threads = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...")] = "cpu",
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Vectors from `elmo serve` there, of its first model or of -m; key: $ELMO_API_KEY."
        ),
    ] = None,
    overwrite: Overwrite = False,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what an earlier run left behind.")] = False,
) -> None:
    """Contextual vectors for every token of a text, one sentence per line.

    Interrupted - by Ctrl-C, a crash, a full disk - it resumes where it stopped when the same command is run
    again, and the output is the same to the byte.

    Examples:

    `elmo embed text.txt -o vectors.h5`

    `elmo embed reviews.csv --text-column review -o reviews.npz --pooling mean`

    `zcat text.gz | elmo embed - -o vectors.parquet --layers mean --dtype float16`

    `elmo embed book.txt -o book.npz -m my-elmo --split --tokenizer words --pooling mean`

    `elmo embed text.txt -o vectors.h5 --server http://127.0.0.1:8000`
    """
    check_texts([source])
    if server is not None:
        _check_remote(context, state)
    use_threads(threads)
    from elmokit.embed.job import EmbedJob
    from elmokit.text.columns import asked_columns

    elmo: Embedder
    if server is not None:
        from elmokit.serve.client import Client

        elmo = Client(server, model=model if given_by_hand(context, "model") else None, tokenizer=tokenizer)
    else:
        from elmokit.embed.embedder import Elmo
        from elmokit.text.corpus import read_lines

        elmo = Elmo.from_pretrained(
            model,
            state=state,
            warm_text=None if warm_text is None else [line.text for line in read_lines([warm_text])],
            tokenizer=tokenizer,
            device=device,
            batch_tokens=batch_tokens,
            weights=weights,
        )
    job = EmbedJob(
        elmo,
        source,
        out,
        layers=_which_layers(layers),
        pooling=None if pooling == "none" else pooling,
        dtype=dtype,
        split=split,
        on_bad_line=on_bad_line,
        columns=asked_columns(text_column, None, header, table_format),
    )
    job.check(overwrite)
    with stoppable(interrupt):
        try:
            summary = _run(job, overwrite, restart)
        except KeyboardInterrupt:
            kept = f"what was done is kept in {job.scratch_folder}"
            typer.echo(f"stopped; {kept}: run the same command to resume", err=True)
            raise
    _tell(job, summary)


def _check_remote(context: typer.Context, state: str) -> None:
    """Refuse what the server has decided already."""
    given = [f"--{name.replace('_', '-')}" for name in OF_THE_SERVER if given_by_hand(context, name)]
    if state != "zero":
        given.insert(0, f"--state {state}")
    if given:
        raise UserError(
            f"--server: the vectors are computed there, every sentence by itself: leave out {', '.join(given)}, "
            "or --server"
        )


def _which_layers(text: str) -> Literal["all", "mean"] | int | list[float]:
    if text == "all":
        return "all"
    if text == "mean":
        return "mean"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return [float(weight) for weight in text.split(",")]
    except ValueError:
        raise UserError(
            f"--layers: expected all, mean, a number or weights such as 0.2,0.5,0.3, found {text!r}"
        ) from None


def _run(job: EmbedJob, overwrite: bool, restart: bool) -> Summary:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from elmokit.embed.job import JobProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[done]}"),
    )
    with live_bar(*columns) as bar:
        task = bar.add_task("reading", total=None, done="")

        def show(progress: JobProgress) -> None:
            done = f"{counted(progress.sentences, 'sentence')}, {counted(progress.tokens, 'token')}"
            total = None if progress.fraction is None else 1.0
            if bar.tasks[0].description != progress.stage:
                bar.reset(task, description=progress.stage, total=total)  # a stage has a pace of its own
            bar.update(task, total=total, completed=progress.fraction or 0.0, done=done)

        return job.run(overwrite=overwrite, restart=restart, on_progress=show)


def _tell(job: EmbedJob, summary: Summary) -> None:
    resumed = f" ({summary.resumed_at:,} of them by an earlier run)" if summary.resumed_at else ""
    sentences, tokens = counted(summary.sentences, "sentence"), counted(summary.tokens, "token")
    typer.echo(f"{job.output}: {sentences}{resumed}, {tokens}", err=True)
    if summary.skipped_lines:
        shown = ", ".join(str(number) for number in summary.skipped_lines[:10])
        more = " ..." if len(summary.skipped_lines) > 10 else ""
        typer.echo(f"skipped {len(summary.skipped_lines):,} lines that cannot be read: {shown}{more}", err=True)
