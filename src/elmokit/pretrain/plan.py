"""Pretraining and finetuning as one call each: from texts to a finished model, resumed where one was begun."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.formats.word_vectors import bilm_from_vectors
from elmokit.pretrain.adaptation import extend_vocabulary, with_head, word_counts
from elmokit.pretrain.any_model import AnyModel, checkpoint_of
from elmokit.pretrain.comparison import check_sources
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.progress import OnTrainingProgress, Stop
from elmokit.pretrain.recipe import Recipe
from elmokit.pretrain.request import FINETUNE, PRETRAIN, Request, SentenceLines
from elmokit.pretrain.step import TrainConfig
from elmokit.pretrain.training import Start, Trained, Training
from elmokit.text.columns import Column, Format, asked_columns
from elmokit.text.corpus import BadLine

Texts = str | Path | Sequence[str | Path]  # files, folders, patterns: see text.corpus.expand_sources


def pretrain(
    texts: Texts | None = None,
    *,
    out: str | Path,
    recipe: str | Path | None = None,
    settings: Sequence[str] | None = None,
    vectors: str | Path | None = None,
    tokens: int | None = None,
    epochs: float | None = None,
    hours: float | None = None,
    held_out: float | None = None,
    held_out_sentences: int | None = None,
    evaluations: int | None = None,
    sentences: SentenceLines | None = None,
    on_bad_line: BadLine | None = None,
    text_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    checkpoint_minutes: float | None = None,
    workers: int = 1,
    resume: bool | None = None,
    on_progress: OnTrainingProgress | None = None,
    stop: Stop | None = None,
) -> Trained:
    """Train a bidirectional language model on texts, in the folder `out`.

    Called again with the same `out`, it resumes the run that is there, to the same bits as if it had never been
    stopped. Whatever is left out is then the run's own; a budget (tokens, epochs or hours) may be another, and
    replaces the run's; other settings are refused. A run that is finished is only opened.

    texts                files, folders and patterns: plain, .gz .bz2 .xz .zst .parquet; tables .csv .tsv .jsonl
    recipe, settings     a bundled recipe's name or a TOML file ("small"), and changes to it ("train.rows=128")
    vectors              a file of word2vec, GloVe or fastText: words by these vectors, not by characters
    tokens|epochs|hours  how long to train (10 epochs)
    held_out             share of the lines that is measured on (0.005), at most `held_out_sentences` (2000) of
                         them at a time, `evaluations` (20) times on the way
    sentences            "lines" are sentences, or are "split" into sentences; "auto" decides by the first lines
    on_bad_line          what to do with a line that is not UTF-8: "refuse", "skip" or "replace"
    text_column          of tables: the texts' column by name or number, where it is not obvious; `header` says
                         whether the first row has names, `table_format` "csv", "tsv" or "jsonl"
    checkpoint_minutes   what kill -9 may lose, at most (5)
    workers              processes that tokenize
    resume               True: `out` must hold a run; False: it must not; None: as it is
    on_progress          is called with a `TrainingProgress` while the text is read, as it trains and measures
    stop                 is asked before each step; when it says so, everything is saved and `finished` is False

    Ctrl-C ends the step, saves everything and raises KeyboardInterrupt. Under torchrun, every process calls this
    alike; the first one alone writes and reports.
    """
    request = Request(
        defaults=PRETRAIN,
        texts=_names(texts),
        recipe=recipe,
        settings=None if settings is None else tuple(settings),
        tokens=tokens,
        epochs=epochs,
        hours=hours,
        held_out=held_out,
        held_out_sentences=held_out_sentences,
        evaluations=evaluations,
        sentences=sentences,
        on_bad_line=on_bad_line,
        columns=asked_columns(text_column, None, header, table_format),
        checkpoint_minutes=checkpoint_minutes,
        workers=workers,
        vectors=None if vectors is None else str(vectors),
    )

    def start(recipe: Recipe) -> Start | None:
        if vectors is None:
            return None
        return Start(bilm_from_vectors(vectors, recipe, seed=recipe.train.seed), with_head)

    return Training(request, Path(out), start, on_progress, stop).carry_out(resume)


def finetune(
    model: AnyModel | None = None,
    texts: Texts | None = None,
    *,
    out: str | Path,
    general: Texts | None = None,
    new_words: int | None = None,
    recipe: str | Path | None = None,
    settings: Sequence[str] | None = None,
    tokens: int | None = None,
    epochs: float | None = None,
    hours: float | None = None,
    held_out: float | None = None,
    held_out_sentences: int | None = None,
    evaluations: int | None = None,
    sentences: SentenceLines | None = None,
    on_bad_line: BadLine | None = None,
    text_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    checkpoint_minutes: float | None = None,
    workers: int = 1,
    resume: bool | None = None,
    on_progress: OnTrainingProgress | None = None,
    stop: Stop | None = None,
) -> Trained:
    """Train a model further on the text of a domain, once over it by default (paper, section 3.4).

    As `pretrain`, but for where it begins, and that 0.02 of the lines are held out. Perplexity before and after,
    on the held-out text of the domain and on `general` text, is in `comparisons`.

    model        a bundled model's name, a folder, owner/name on the hub, or a model that is open; it must predict
                 words, and stays as it is
    general      text of another kind, to see what is forgotten
    new_words    words to add to the vocabulary, at most (0): the frequent ones of the text. They begin as <UNK>
                 did; "before" is the model with them added, so that both predict the same words
    recipe       its train and optimizer sections are used ("finetune"); shapes are the model's own
    """
    name = None if model is None else _model_name(model)
    request = Request(
        defaults=FINETUNE,
        texts=_names(texts),
        recipe=recipe,
        settings=None if settings is None else tuple(settings),
        tokens=tokens,
        epochs=epochs,
        hours=hours,
        held_out=held_out,
        held_out_sentences=held_out_sentences,
        evaluations=evaluations,
        sentences=sentences,
        on_bad_line=on_bad_line,
        columns=asked_columns(text_column, None, header, table_format),
        checkpoint_minutes=checkpoint_minutes,
        workers=workers,
        model=name,
        new_words=new_words,
    )

    def start(recipe: Recipe) -> Start:
        assert model is not None  # `Request.new_texts` has seen to it
        checkpoint = checkpoint_of(model)
        if checkpoint.head is None:
            raise UserError(f"{name} predicts no words (it has no softmax head), so it cannot be trained further")
        if recipe.train.softmax_width not in (0, checkpoint.head.softmax_width):
            raise UserError(
                f"train.softmax_width: expected the model's own, {checkpoint.head.softmax_width}, or 0, "
                f"found {recipe.train.softmax_width}: finetuning keeps the model's softmax"
            )
        return Start(checkpoint, partial(_with_new_words, new_words or 0))

    sources = _names(general)
    if sources is not None:
        check_sources(sources, request.columns)  # what is wrong is said at once, not when training has ended
    return Training(request, Path(out), start, on_progress, stop, sources or ()).carry_out(resume)


def _names(texts: Texts | None) -> tuple[str, ...] | None:
    if texts is None:
        return None
    return tuple(str(text) for text in ([texts] if isinstance(texts, (str, Path)) else texts))


def _model_name(model: AnyModel) -> str:
    """How a run remembers what it began from: by name, or by digest where it had none."""
    return str(model) if isinstance(model, (str, Path)) else f"sha256:{checkpoint_of(model).digest}"


def _with_new_words(most: int, model: Checkpoint, corpus: Corpus, train: TrainConfig) -> Checkpoint:
    if not most:
        return model
    return extend_vocabulary(model, word_counts(corpus), most=most, min_count=train.min_count)
