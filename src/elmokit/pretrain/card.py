"""The card of a model that was trained here: its text, its training and its figures."""

from __future__ import annotations

from elmokit import __version__
from elmokit.checkpoint import Checkpoint
from elmokit.errors import listed_paths
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.perplexity import Perplexity
from elmokit.pretrain.run_config import Budget, RunConfig


def training_card(
    model: Checkpoint,
    config: RunConfig,
    corpus: Corpus,
    *,
    tokens: int,
    steps: int,
    seconds: float,
    measured: Perplexity | None,
) -> str:
    train, lstm = config.recipe.train, model.bilm.config.lstm
    figures = (
        f"forward {measured.forward:.2f}, backward {measured.backward:.2f}, mean {measured.mean:.2f}"
        if measured
        else "not measured"
    )
    return f"""# ELMo model

Pretrained with elmokit {__version__}. Load it with `Elmo.from_pretrained("this folder")`.

| | |
|---|---|
| text | {listed_paths(config.sources) or "not stated"} |
| tokens | {corpus.tokens:,} in the corpus, {tokens:,} seen |
| training | {steps:,} steps of {train.rows} x {train.steps}, {seconds / 3600:.2f} hours |
{_unfinished(config.budget, tokens, seconds)}| held-out perplexity (full softmax) | {figures} |
| LSTM | {lstm.layers} layers, {lstm.cells} cells projected to {lstm.width} per direction |
| predicts | {len(model.vocabulary or ()):,} words |

Licence of the text and known limits: to be stated by whoever trained it.
"""


def _unfinished(budget: Budget, tokens: int, seconds: float) -> str:
    """A row for a model that was exported on the way."""
    done = budget.progress(tokens, seconds)
    if done >= 1:
        return ""
    of = f"{seconds / 3600:.2f} of {budget.hours} hours"
    if budget.tokens is not None:
        of = f"{tokens:,} of {budget.tokens:,} tokens"
    return f"| unfinished | exported at {of}, {100 * done:.1f} % of the planned training |\n"
