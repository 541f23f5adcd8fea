"""How well a model predicts files of text: what `elmo perplexity` tells, as one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from elmokit.pretrain.any_model import AnyModel, checkpoint_of
from elmokit.pretrain.perplexity import Perplexity, State, perplexity
from elmokit.pretrain.progress import OnTrainingProgress, TrainingProgress
from elmokit.progress import silent
from elmokit.text.columns import Column, Columns, Format, asked_columns
from elmokit.text.corpus import BadLine, open_text
from elmokit.text.tokens import Tokenizer, tokenizer_for


def perplexity_of_files(
    model: AnyModel,
    files: Sequence[str | Path],
    *,
    state: State = "carry",
    split: bool = False,
    tokenizer: str | None = None,
    on_bad_line: BadLine = "refuse",
    text_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    limit: int | None = None,
    on_progress: OnTrainingProgress = silent,
) -> Perplexity:
    """As `perplexity`, of the lines of text files (.gz .bz2 .xz .zst too; "-" is standard input), in order.

    split        lines are paragraphs, and are split into sentences
    text_column  of tables (.csv, .tsv, .jsonl): by name or number; header, table_format as of `embed_file`
    limit        read this number of sentences, at most
    on_progress  is called after each sentence, with the figures so far
    """
    checkpoint = checkpoint_of(model)
    splitter = tokenizer_for(checkpoint.tokenizer, tokenizer)
    columns = asked_columns(text_column, None, header, table_format)
    text = _Files([files] if isinstance(files, (str, Path)) else files, splitter, split, on_bad_line, columns)

    def report(so_far: Perplexity) -> None:
        fraction = so_far.sentences / limit if limit else text.fraction
        on_progress(TrainingProgress.at("measuring", fraction, tokens=so_far.predictions, perplexity=so_far))

    found = perplexity(checkpoint, islice(text, limit), state=state, report=report)
    if text.skipped:
        message = f"skipped {text.skipped:,} lines that cannot be read"
        on_progress(TrainingProgress.at("measuring", 1.0, tokens=found.predictions, message=message))
    return found


class _Files:
    """The sentences of several files, one after the other, and how far they have been read."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        tokenizer: Tokenizer,
        split: bool,
        on_bad_line: BadLine,
        columns: Columns | None,
    ) -> None:
        self.paths, self.tokenizer, self.split, self.on_bad_line = paths, tokenizer, split, on_bad_line
        self.columns = columns
        self.fraction: float | None = None
        self.skipped = 0
        for path in paths:  # what is not there is said at once, not after the files before it
            with open_text(path, on_bad_line, columns):
                pass

    def __iter__(self) -> Iterator[list[str]]:
        for number, path in enumerate(self.paths):
            with open_text(path, self.on_bad_line, self.columns) as lines:
                for line in lines:
                    here = lines.fraction()
                    self.fraction = None if here is None else (number + here) / len(self.paths)
                    for text in self.tokenizer.sentences(line.text) if self.split else [line.text]:
                        if tokens := self.tokenizer.tokens(text):
                            yield tokens
                self.skipped += len(lines.skipped)
