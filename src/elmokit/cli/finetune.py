"""elmo finetune: a trained model goes on learning on the text of a domain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    prepare_text,
    show_plan,
    tell_outcome,
    train,
)
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.pretrain.run import Run


def finetune(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="A model that predicts words.")] = None,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Text of the domain.")] = None,
    *,
    out: Out,
    general: Annotated[Path | None, typer.Option(help="Text of another kind, to see what is forgotten.")] = None,
    new_words: Annotated[int, typer.Option(min=0, help="Words to add to the vocabulary, at most.")] = 0,
    recipe: Annotated[
        str, typer.Option(help="A recipe whose train and optimizer sections are used.")
    ] = "finetune",
    settings: Settings = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    hours: Hours = None,
    held_out: HeldOut = 0.02,
    held_out_sentences: HeldOutSentences = 2000,
    evaluations: Evaluations = 20,
    sentences: Sentences = "auto",
    on_bad_line: OnBadLine = "refuse",
    workers: Workers = 1,
    threads: Threads = None,
    checkpoint_minutes: CheckpointMinutes = 5.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT.")] = False,
) -> None:
    """Go on training a model on the text of a domain, once over it by default (paper, section 3.4).

    Shows perplexity before and after, on held-out text of the domain and, with --general, on other text. Words
    that are added begin as <UNK> did; "before" is the model with them added, so both have one vocabulary.

    Examples:

    `elmo finetune my-elmo/model medicine.txt --out medical-elmo --general wiki-sample.txt`

    `elmo finetune my-elmo/model tweets/ --out twitter-elmo --new-words 5000 --epochs 2`

    `elmo finetune --out twitter-elmo --resume`
    """
    use_threads(threads)
    from elmokit.pretrain.ranks import Ranks
    from elmokit.pretrain.run import START, Run, RunConfig

    ranks = Ranks.from_environment()
    try:
        if resume:
            if model or texts:
                raise UserError("--resume goes on with the model and text that the run began with: leave them out")
            run = Run.open(out, ranks)
        else:
            if not model or not texts:
                raise UserError("expected a model and the text of a domain, or --resume")
            from elmokit.pretrain.adaptation import extend_vocabulary, word_counts
            from elmokit.pretrain.recipe import load_recipe
            from elmokit.sources import open_checkpoint

            if ranks.first:  # the others may come after it has begun to write
                check_out(out)
            start = open_checkpoint(model)
            if start.head is None:
                raise UserError(
                    f"{model} predicts no words (it has no softmax head), so it cannot be trained further"
                )
            chosen = load_recipe(recipe, settings or [])
            if chosen.train.softmax_width not in (0, start.head.softmax_width):
                raise UserError(
                    f"train.softmax_width: expected the model's own, {start.head.softmax_width}, or 0, "
                    f"found {chosen.train.softmax_width}: finetuning keeps the model's softmax"
                )
            corpus = prepare_text(
                texts, out, start.tokenizer, chosen.train.seed, held_out, sentences, on_bad_line, workers, ranks
            )
            if ranks.first:
                if new_words:
                    count = chosen.train.min_count
                    start = extend_vocabulary(start, word_counts(corpus), most=new_words, min_count=count)
                start.save(out / START)
            ranks.sum(0.0)  # the others wait for the first
            budget = make_budget(corpus, tokens, epochs, hours, default=1)
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
            show_plan(run, run.estimate())
            outcome = train(run, ranks)
        finally:
            run.close()
        if ranks.first:
            tell_outcome(run, outcome, "finetune")
            if outcome.finished:
                _compare(run, general)
    finally:
        ranks.close()


def _compare(run: Run, general: Path | None) -> None:
    """Perplexity before and after, on the domain and on other text."""
    from rich.console import Console
    from rich.table import Table

    from elmokit.checkpoint import Checkpoint
    from elmokit.pretrain.perplexity import perplexity
    from elmokit.pretrain.run import MODEL, START
    from elmokit.text.corpus import LineReader
    from elmokit.text.tokens import make_tokenizer

    texts: dict[str, list[list[str]]] = {}
    if run.held_out is not None:
        texts["domain, held out"] = list(run.held_out_sentences())
    if general is not None:
        tokenizer = make_tokenizer(run.trainer.model.tokenizer)
        with LineReader(general) as lines:
            sentences = [tokenizer.tokens(s) for line in lines for s in tokenizer.sentences(line.text)]
        texts[f"general ({general})"] = sentences[: run.config.held_out_sentences]
    before, after = (Checkpoint.load(run.folder / name) for name in (START, MODEL))
    table = Table("text", "perplexity before", "after", "unknown words")
    for name, sentences in texts.items():
        first, second = (perplexity(model, sentences) for model in (before, after))
        table.add_row(name, f"{first.mean:.2f}", f"{second.mean:.2f}", f"{100 * second.unknown:.1f} %")
    Console().print(table)
