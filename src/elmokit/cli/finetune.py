"""elmo finetune: a trained model learns the text of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elmokit.cli.shared.options import (
    DEFAULT_MODEL,
    Header,
    Model,
    TableFormat,
    TextColumn,
    Threads,
    check_texts,
    given_by_hand,
    use_threads,
)
from elmokit.cli.shared.training import (
    BadLines,
    CheckpointMinutes,
    Epochs,
    Evaluations,
    HeldOutSentences,
    Hours,
    Out,
    Resume,
    Settings,
    SplitOrAuto,
    Tokens,
    Workers,
    must_resume,
    sentences_of,
    tell_outcome,
    watching,
)
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.pretrain.comparison import Comparison


def finetune(
    context: typer.Context,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Text of the domain.")] = None,
    *,
    out: Out,
    model: Model = DEFAULT_MODEL,
    general: Annotated[Path | None, typer.Option(help="Text of another kind, to see what is forgotten.")] = None,
    new_words: Annotated[
        int | None,
        typer.Option(min=0, help="Number of words to add to the vocabulary, at most.", show_default="0"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe whose train and optimizer sections are used.", show_default="finetune"),
    ] = None,
    settings: Settings = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    hours: Hours = None,
    held_out: Annotated[
        float | None, typer.Option(min=0, max=0.5, help="Share of the lines to measure on.", show_default="0.02")
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
) -> None:
    """Train a model further on the text of a domain, once over it by default (paper, section 3.4).

    Shows perplexity before and after, on held-out text of the domain and, with --general, on other text. A word
    that is added begins with its share of `<UNK>`, the unknown words, and "before" is the untouched model, which
    predicts it so. In Python: `elmokit.finetune`.

    Examples:

    `elmo finetune medicine.txt --out medical-elmo --general wiki-sample.txt`

    `elmo finetune tweets/ -m my-elmo --out twitter-elmo --new-words 5000 --epochs 2`

    `elmo finetune --out twitter-elmo --resume`

    `elmo finetune --out twitter-elmo --resume --epochs 4` (longer than was planned, or shorter)
    """
    if resume and not texts and given_by_hand(context, "model"):
        raise UserError("--resume takes the model that the run began with: leave -m out")
    check_texts(texts or [])
    use_threads(threads)
    from elmokit.pretrain.plan import finetune

    with watching() as watch:
        trained = finetune(
            None if resume and not texts else model,
            texts or None,
            out=out,
            general=general,
            new_words=new_words,
            recipe=recipe,
            settings=settings or None,
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
    tell_outcome(trained, out, "finetune", watch.stop)
    show_comparisons(trained.comparisons)


def show_comparisons(comparisons: tuple[Comparison, ...]) -> None:
    """Perplexity before and after, on the domain and on other text."""
    if not comparisons:
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("text", "words told apart", "unknown", "perplexity before", "after")
    for column in table.columns[1:]:
        column.justify = "right"
    for text, before, after, words in comparisons:
        numbers = (f"{words:,}", f"{100 * after.unknown:.1f} %", f"{before.mean:.2f}", f"{after.mean:.2f}")
        table.add_row(escape(text), *numbers)
    console = Console(highlight=False)
    console.print(table)
    if len({comparison.words for comparison in comparisons}) > 1:
        console.print(
            "Compare within a line: more words to tell apart are harder to predict. Before is the untouched "
            "model, which knows a new word as its share of <UNK>, the unknown words; the lines with fewer words "
            "count all new words as <UNK>, before and after, as without --new-words."
        )
