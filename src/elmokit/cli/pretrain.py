"""elmo pretrain: plain text -> a biLM of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.options import (
    Header,
    TableFormat,
    TextColumn,
    Threads,
    use_threads,
)
from elmokit.cli.shared.training import (
    BadLines,
    CheckpointMinutes,
    Epochs,
    Evaluations,
    Export,
    HeldOutSentences,
    Hours,
    Out,
    Resume,
    Settings,
    SplitOrAuto,
    Tokens,
    Workers,
    export_stopped,
    must_resume,
    sentences_of,
    tell_outcome,
    watching,
)


def pretrain(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Files, folders, globs or -: plain, .gz .bz2 .xz .zst .parquet."),
    ] = None,
    *,
    out: Out,
    recipe: Annotated[
        str | None,
        typer.Option(help="tiny, small, medium, original, published, or a TOML file.", show_default="small"),
    ] = None,
    settings: Settings = None,
    vectors: Annotated[
        Path | None, typer.Option(help="word2vec, GloVe or fastText: words by these vectors, not by characters.")
    ] = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    hours: Hours = None,
    held_out: Annotated[
        float | None, typer.Option(min=0, max=0.5, help="Share of the lines to measure on.", show_default="0.005")
    ] = None,
    held_out_sentences: HeldOutSentences = None,
    evaluations: Evaluations = None,
    split: SplitOrAuto = None,
    on_bad_line: BadLines = None,
    text_column: TextColumn = None,
    header: Header = None,
    table_format: TableFormat = None,
    workers: Workers = 1,
    threads: Threads = None,
    checkpoint_minutes: CheckpointMinutes = None,
    resume: Resume = False,
    export: Export = False,
) -> None:
    """Train a bidirectional language model on your own text.

    It tokenizes the text once, builds the vocabulary, prints the plan and trains, 10 epochs if nothing else is
    said. Ctrl-C saves, and the same command resumes. Held-out perplexity is measured with the full softmax,
    --evaluations times on the way. In Python: `elmokit.pretrain`.

    Examples:

    `elmo pretrain wiki.txt.xz --out my-elmo --recipe small --hours 6`

    `elmo pretrain texts/ --out tiny --recipe tiny --tokens 2000000 --set optimizer.learning_rate=0.002`

    `elmo pretrain --out my-elmo --resume`

    `elmo pretrain --out my-elmo --resume --hours 12` (longer than was planned, or shorter)

    `elmo pretrain --out my-elmo --export` (a model now, of a run that was stopped)

    `torchrun --nproc-per-node 4 -m elmokit pretrain --out my-elmo --resume`
    """
    use_threads(threads)
    if export:
        export_stopped(out, texts)
        return
    from elmokit.pretrain.plan import pretrain

    with watching() as watch:
        trained = pretrain(
            texts or None,
            out=out,
            recipe=recipe,
            settings=settings or None,
            vectors=vectors,
            tokens=tokens,
            epochs=epochs,
            hours=hours,
            held_out=held_out,
            held_out_sentences=held_out_sentences,
            evaluations=evaluations,
            sentences=sentences_of(split),
            on_bad_line=on_bad_line,
            text_column=text_column,
            header=header,
            table_format=table_format,
            checkpoint_minutes=checkpoint_minutes,
            workers=workers,
            resume=must_resume(resume, texts, out),
            on_progress=watch.on_progress,
            stop=watch.stop,
        )
    tell_outcome(trained, out, "pretrain", watch.stop)
