"""A whole recipe: the settings of a model and of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmokit.model.recipe import ModelRecipe, build_recipe, read_recipe
from elmokit.pretrain.optimizer import OptimizerConfig
from elmokit.pretrain.step import TrainConfig


@dataclass(frozen=True)
class Recipe(ModelRecipe):
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)


def load_recipe(name: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """A bundled recipe by name or a TOML file by path, with dotted settings applied on top."""
    return build_recipe(Recipe, read_recipe(name, settings))
