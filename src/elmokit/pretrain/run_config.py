"""run.json: the settings of a run as they were when it began, and its budget."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from elmokit import __version__
from elmokit.atomic import write_file
from elmokit.config import build, dump, read_json
from elmokit.errors import UserError
from elmokit.pretrain.recipe import Recipe, present_values

RUN = "run.json"


@dataclass(frozen=True)
class Budget:
    """How long to train: a number of tokens, or of hours."""

    tokens: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        if (self.tokens is None) == (self.hours is None):
            raise UserError("a budget is a number of tokens or of hours: give one of them")
        if (self.tokens or self.hours or 0) <= 0:
            raise UserError(f"a budget is more than nothing, found {self.tokens or self.hours}")

    def progress(self, tokens: int, seconds: float) -> float:
        return tokens / self.tokens if self.tokens else seconds / (3600 * (self.hours or 1))

    def seconds_left(self, tokens: int, seconds: float, tokens_per_second: float) -> float:
        if self.tokens is None:
            return max(0.0, 3600 * (self.hours or 0) - seconds)
        return max(0, self.tokens - tokens) / tokens_per_second


@dataclass(frozen=True)
class RunConfig:
    """All that a run needs to be resumed, apart from its checkpoints."""

    recipe: Recipe
    budget: Budget
    sources: tuple[str, ...] = ()
    report_steps: int = 10  # steps between two lines of metrics
    evaluations: int = 20  # held-out measurements over the whole budget
    held_out_sentences: int = 2000  # of the held-out text, at most, for one measurement
    checkpoint_seconds: float = 300.0
    # What the model in start/ was made from. Runs that 0.1.0 began do not say.
    model: str | None = None  # finetuning
    new_words: int | None = None
    vectors: str | None = None  # pretraining over word vectors

    def __post_init__(self) -> None:
        for name in ("report_steps", "evaluations", "held_out_sentences"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")


def read_run_config(folder: Path) -> RunConfig:
    path = folder / RUN
    if not path.is_file():
        raise UserError(f"{folder} holds no training run: it has no {RUN}")
    table = {name: value for name, value in read_json(path).items() if name != "elmokit"}
    if isinstance(table.get("recipe"), dict):
        table["recipe"] = present_values(table["recipe"])
    return build(RunConfig, table)


def write_run_config(folder: Path, config: RunConfig) -> None:
    write_file(folder / RUN, json.dumps({"elmokit": __version__, **dump(config)}, indent=1).encode())
