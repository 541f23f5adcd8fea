"""Perplexity before and after finetuning: what was learned of the domain, and what was forgotten of other text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from elmokit.checkpoint import Checkpoint
from elmokit.pretrain.perplexity import Perplexity, perplexity
from elmokit.pretrain.progress import OnTrainingProgress, TrainingProgress
from elmokit.text.columns import Columns
from elmokit.text.corpus import expand_sources, open_table, read_lines, table_format
from elmokit.text.tokens import TokenizerConfig, make_tokenizer

Tokens = list[str]


class Comparison(NamedTuple):
    text: str  # what kind it is
    before: Perplexity
    after: Perplexity


def compare(
    before: Checkpoint, after: Checkpoint, texts: Mapping[str, Sequence[Tokens]], on_progress: OnTrainingProgress
) -> tuple[Comparison, ...]:
    """Both models on each text; they predict the same words."""
    found = []
    for done, (name, sentences) in enumerate(texts.items()):
        on_progress(TrainingProgress("comparing", done, len(texts)))
        found.append(Comparison(name, perplexity(before, sentences), perplexity(after, sentences)))
    on_progress(TrainingProgress("comparing", len(texts), len(texts)))
    return tuple(found)


def check_sources(sources: Sequence[str | Path], columns: Columns | None = None) -> None:
    """They are there, and those that are tables have the columns."""
    for path in expand_sources(sources):
        if table_format(path) is not None:
            with open_table(path, columns=columns) as table:
                table.identity()


def first_sentences(
    sources: Sequence[str | Path], tokenizer: TokenizerConfig, most: int, columns: Columns | None = None
) -> list[Tokens]:
    """columns   of those sources that are tables."""
    splitter = make_tokenizer(tokenizer)
    texts = (
        line.text
        for path in expand_sources(sources)
        for line in read_lines([path], columns=columns if table_format(path) else None)
    )
    sentences = (sentence for text in texts for sentence in splitter.sentences(text))
    return [splitter.tokens(sentence) for sentence in islice(sentences, most)]
