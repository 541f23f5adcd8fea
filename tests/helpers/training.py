"""A made-up text, and small trainings on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elmokit.pretrain.adaptation import fresh_model
from elmokit.pretrain.optimizer import OptimizerConfig
from elmokit.pretrain.preparation import prepare
from elmokit.pretrain.recipe import Recipe, load_recipe
from elmokit.pretrain.run import Run
from elmokit.pretrain.run_config import Budget, RunConfig
from elmokit.pretrain.step import TrainConfig, Trainer
from elmokit.text.tokens import TokenizerConfig, make_tokenizer
from helpers.models import small_config

DEFAULT = OptimizerConfig()
FAST = OptimizerConfig(learning_rate=0.01)
WORDS = "the of and to in a is was he for it with as his on be at by had not are but from or have an they".split()


def made_up_text(sentences: int, seed: int = 0, shortest: int = 2, longest: int = 12) -> str:
    """Sentences with some order in them: each word is likely to be followed by one of two others."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(sentences):
        at, line = int(rng.integers(len(WORDS))), []
        for _ in range(int(rng.integers(shortest, longest))):
            line.append(WORDS[at])
            at = (at * 2 + int(rng.integers(2)) + 1) % len(WORDS)
        lines.append(" ".join([*line, "."]))
    return "\n".join(lines) + "\n"


def make_corpus(folder, text):
    (folder / "text.txt").write_text(text, encoding="utf-8")
    train, _ = prepare([folder / "text.txt"], folder / "corpus", make_tokenizer("whitespace"), split=False)
    return train


def make_trainer(corpus, *, ranks=None, optimizer=DEFAULT, model=None, **changes):
    config = TrainConfig(**{"rows": 4, "steps": 5, "dropout": 0.0, "min_count": 1, **changes})
    recipe = Recipe(
        model=small_config(), tokenizer=TokenizerConfig("whitespace"), train=config, optimizer=optimizer
    )
    return Trainer(model or fresh_model(recipe, corpus), corpus, config, optimizer, ranks)


SMALL = [
    "model.encoder.filters=[[1, 4], [2, 6]]",
    "model.lstm.cells=16",
    "model.lstm.width=8",
    "train.rows=8",
    "train.steps=6",
    "train.min_count=1",
    "optimizer.learning_rate=0.01",
]


def make_run(folder: Path, tokens: int = 2000, settings: tuple[str, ...] = (), **options) -> Run:
    folder.mkdir()
    (folder / "text.txt").write_text(made_up_text(120))
    recipe = load_recipe("tiny", [*SMALL, *settings])
    prepare([folder / "text.txt"], folder / "corpus", make_tokenizer(recipe.tokenizer), split=False, held_out=0.1)
    config = RunConfig(recipe, Budget(tokens=tokens), **{"evaluations": 4, "report_steps": 5, **options})
    return Run.create(folder, config)


def stop_after(steps: int):
    """A stop that says so when it is asked before the step after these."""
    count = 0

    def stop() -> bool:
        nonlocal count
        count += 1
        return count > steps

    return stop


OPTIONS = ["--recipe", "tiny", *(part for setting in SMALL for part in ("--set", setting)), "--held-out", "0.1"]


SPREAD = """
import sys
from pathlib import Path
from elmokit.pretrain.ranks import Ranks
from elmokit.pretrain.run import Run
ranks = Ranks.from_environment()
run = Run.open(Path(sys.argv[1]), ranks)
print(ranks.world, run.train().finished)
run.close()
ranks.close()
threads = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
assert not [name for name in threads if "gloo" in name], f"the process group is not ended: {threads}"
"""
