"""A whole recipe: the settings of a model and of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmokit.model.recipe import ModelRecipe, build_recipe, read_recipe
from elmokit.pretrain.optimizer import OptimizerConfig
from elmokit.pretrain.step import TrainConfig

OLD_STATES = {"reset": "zero"}  # 0.1.0's word for it


@dataclass(frozen=True)
class Recipe(ModelRecipe):
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)


def load_recipe(name: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """A bundled recipe by name or a TOML file by path, with dotted settings applied on top."""
    return build_recipe(Recipe, present_values(read_recipe(name, settings)))


def present_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's table with values as they are called today, where 0.1.0 called them otherwise."""
    train = table.get("train")
    if not isinstance(train, Mapping) or train.get("state") not in OLD_STATES:
        return dict(table)
    return {**table, "train": {**train, "state": OLD_STATES[train["state"]]}}
