"""elmo pretrain: plain text -> a biLM of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.options import OnBadLine, Threads, use_threads
from elmokit.cli.shared.training import (
    CheckpointMinutes,
    Epochs,
    Evaluations,
    HeldOut,
    HeldOutSentences,
    Hours,
    Out,
    Sentences,
    Settings,
    Tokens,
    Workers,
    check_out,
    make_budget,
    open_text,
    prepare_text,
    show_plan,
    tell_outcome,
    train,
)
from elmokit.errors import UserError


def pretrain(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Files, folders, globs or -: plain, .gz .bz2 .xz .zst .parquet."),
    ] = None,
    *,
    out: Out,
    recipe: Annotated[
        str, typer.Option(help="tiny, small, medium, original, published, or a TOML file.")
    ] = "small",
    settings: Settings = None,
    vectors: Annotated[
        Path | None, typer.Option(help="word2vec, GloVe or fastText: words by these vectors, not by characters.")
    ] = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    hours: Hours = None,
    held_out: HeldOut = 0.005,
    held_out_sentences: HeldOutSentences = 2000,
    evaluations: Evaluations = 20,
    sentences: Sentences = "auto",
    on_bad_line: OnBadLine = "refuse",
    workers: Workers = 1,
    threads: Threads = None,
    checkpoint_minutes: CheckpointMinutes = 5.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT.")] = False,
) -> None:
    """Train a bidirectional language model on your own text.

    It tokenizes the text once, builds the vocabulary, prints the plan and trains. Ctrl-C saves and says how to
    go on. Held-out perplexity is measured with the full softmax, --evaluations times on the way.

    Examples:

    `elmo pretrain wiki.txt.xz --out my-elmo --recipe small --hours 6`

    `elmo pretrain texts/ --out tiny --recipe tiny --tokens 2000000 --set optimizer.learning_rate=0.002`

    `elmo pretrain --out my-elmo --resume`

    `elmo pretrain --out my-elmo --resume --hours 12` (longer than was planned, or shorter)

    `torchrun --nproc-per-node 4 -m elmokit pretrain --out my-elmo --resume`
    """
    use_threads(threads)
    from elmokit.pretrain.ranks import Ranks
    from elmokit.pretrain.run import START, Run, RunConfig

    ranks = Ranks.from_environment()
    try:
        if resume:
            if texts:
                raise UserError("--resume goes on with the text that the run began with: leave TEXT out")
            budget = None
            if any(value is not None for value in (tokens, epochs, hours)):
                budget = make_budget(open_text(out), tokens, epochs, hours, default=10)
            run = Run.open(out, ranks, budget)
        else:
            if not texts:
                raise UserError("no text given: name files or folders, or --resume a run")
            from elmokit.pretrain.recipe import load_recipe

            if ranks.first:  # the others may come after it has begun to write
                check_out(out)
            chosen = load_recipe(recipe, settings or [])
            corpus = prepare_text(
                texts, out, chosen.tokenizer, chosen.train.seed, held_out, sentences, on_bad_line, workers, ranks
            )
            if vectors is not None and ranks.first:
                from elmokit.formats.word_vectors import bilm_from_vectors
                from elmokit.pretrain.adaptation import with_head

                start = bilm_from_vectors(vectors, chosen, seed=chosen.train.seed)
                with_head(start, corpus, chosen.train).save(out / START)
            ranks.sum(0.0)  # the others wait for the first
            budget = make_budget(corpus, tokens, epochs, hours, default=10)
            config = RunConfig(
                chosen,
                budget,
                tuple(texts),
                evaluations=evaluations,
                held_out_sentences=held_out_sentences,
                checkpoint_seconds=60 * checkpoint_minutes,
            )
            run = Run.create(out, config, ranks)
        try:
            seconds = run.estimate()  # by all ranks: it takes steps
            show_plan(run, seconds)
            outcome = train(run, ranks)
        finally:
            run.close()
        if ranks.first:
            tell_outcome(run, outcome, "pretrain")
    finally:
        ranks.close()
