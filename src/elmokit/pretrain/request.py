"""What a caller asks of a run: what a new one is begun with, and whether one that is there is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.config import dump, override
from elmokit.errors import UserError, clipped
from elmokit.model.recipe import build_recipe
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.recipe import Recipe, load_recipe, present_values
from elmokit.pretrain.run_config import Budget, RunConfig
from elmokit.text.columns import Columns
from elmokit.text.corpus import BadLine, expand_sources

SentenceLines = Literal["auto", "lines", "split"]
SPLIT: dict[str, bool | None] = {"auto": None, "lines": False, "split": True}


@dataclass(frozen=True)
class Defaults:
    """Of a new run."""

    recipe: str
    held_out: float
    epochs: float


PRETRAIN = Defaults(recipe="small", held_out=0.005, epochs=10)
FINETUNE = Defaults(recipe="finetune", held_out=0.02, epochs=1)


@dataclass(frozen=True)
class Request:
    """None is the default of a new run, and the run's own where one is resumed."""

    defaults: Defaults
    texts: tuple[str, ...] | None
    recipe: str | Path | None
    settings: tuple[str, ...] | None
    tokens: int | None
    epochs: float | None
    hours: float | None
    held_out: float | None
    held_out_sentences: int | None
    evaluations: int | None
    sentences: SentenceLines | None
    on_bad_line: BadLine | None
    checkpoint_minutes: float | None
    workers: int
    model: str | None = None
    new_words: int | None = None
    vectors: str | None = None
    columns: Columns | None = None  # of texts that are tables

    def __post_init__(self) -> None:
        lengths = (self.tokens, self.epochs, self.hours)
        if sum(length is not None for length in lengths) > 1:
            raise UserError("tokens, epochs and hours are three ways to say one thing: give one of them")
        if any(length is not None and length <= 0 for length in lengths):
            raise UserError(f"a budget is more than nothing, found {next(filter(None, lengths), 0)}")
        if self.sentences is not None and self.sentences not in SPLIT:
            raise UserError(f"sentences: expected {', '.join(SPLIT)}, found {self.sentences!r}")
        if self.checkpoint_minutes is not None and self.checkpoint_minutes < 0:
            raise UserError(f"checkpoint_minutes: expected 0 or more, found {self.checkpoint_minutes}")
        if self.new_words is not None and self.new_words < 0:
            raise UserError(f"new_words: expected 0 or more, found {self.new_words}")

    def new_texts(self) -> tuple[str, ...]:
        if self.defaults is FINETUNE and (self.model is None or not self.texts):
            raise UserError("expected a model and the text of a domain, or a run to resume")
        if not self.texts:
            raise UserError("no text given: name files or folders, or a run to resume")
        return self.texts

    def new_recipe(self) -> Recipe:
        return load_recipe(self.recipe or self.defaults.recipe, self.settings or ())

    def new_config(self, recipe: Recipe, budget: Budget) -> RunConfig:
        given = {
            "held_out_sentences": self.held_out_sentences,
            "evaluations": self.evaluations,
            "checkpoint_seconds": None if self.checkpoint_minutes is None else 60 * self.checkpoint_minutes,
            "model": self.model,
            "new_words": self.new_words,
            "vectors": self.vectors,
        }
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return RunConfig(recipe, budget, self.texts or (), **chosen)

    @property
    def has_budget(self) -> bool:
        return any(length is not None for length in (self.tokens, self.epochs, self.hours))

    def budget(self, corpus: Corpus) -> Budget:
        if self.tokens is not None or self.hours is not None:
            return Budget(self.tokens, self.hours)
        predictions = corpus.tokens + corpus.sentences  # each sentence's end is predicted too
        epochs = self.defaults.epochs if self.epochs is None else self.epochs
        return Budget(tokens=max(1, round(epochs * predictions)))

    def check_same(self, folder: Path, config: RunConfig, corpus: Corpus, start_is_known: bool) -> None:
        """Refuse settings that are not those of the run in `folder`; the budget alone may be another."""
        found = [
            f"{name}: the run has {clipped(repr(own), 200)}, found {clipped(repr(asked), 200)}"
            for name, (own, asked) in self._differences(config, corpus, start_is_known).items()
        ]
        if found:
            raise UserError(
                f"{folder} was begun with other settings ({'; '.join(found)}): leave them out to resume it with "
                f"its own, or choose another folder for a new run"
            )

    def _differences(self, config: RunConfig, corpus: Corpus, start_is_known: bool) -> dict[str, tuple[Any, Any]]:
        """By name, the run's own and what was asked."""
        meta = corpus.meta
        split, lines = "split" if meta["split"] else "lines", None if self.sentences == "auto" else self.sentences
        pairs: dict[str, tuple[Any, Any]] = {
            "held_out": (meta["held_out"], self.held_out),
            "sentences": (split, lines),
            "on_bad_line": (meta["on_bad_line"], self.on_bad_line),
            "columns": (meta.get("columns"), None if self.columns is None else dump(self.columns)),
            "held_out_sentences": (config.held_out_sentences, self.held_out_sentences),
            "evaluations": (config.evaluations, self.evaluations),
            "checkpoint_minutes": (config.checkpoint_seconds / 60, self.checkpoint_minutes),
        }
        if start_is_known:
            pairs["model"] = (config.model, self.model)
            pairs["new_words"] = (config.new_words or 0, self.new_words)
            pairs["vectors"] = (config.vectors, self.vectors)
        if self.texts is not None and self.texts != config.sources:
            pairs["texts"] = (meta["sources"], [str(path) for path in expand_sources(self.texts)])
        differences: dict[str, tuple[Any, Any]] = {
            name: (own, asked) for name, (own, asked) in pairs.items() if asked is not None and own != asked
        }
        if self.recipe is not None or self.settings is not None:
            own, asked = (dict(_flat(dump(recipe))) for recipe in (config.recipe, self._recipe(config)))
            for name in sorted(own.keys() | asked.keys()):
                if own.get(name) != asked.get(name):
                    differences[name] = own.get(name), asked.get(name)
        return differences

    def _recipe(self, config: RunConfig) -> Recipe:
        """As asked: settings without a recipe are changes to the run's own."""
        if self.recipe is not None:
            return self.new_recipe()
        return build_recipe(Recipe, present_values(override(dump(config.recipe), self.settings or ())))


def _flat(table: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{name}.")
        else:
            yield f"{where}{name}", value
