"""The part of a recipe that says what a model is: its shapes, how tokens become ids, how text becomes tokens.

A recipe is a TOML file; those of the package go by name. The part that says how the model is trained belongs to
pretraining (pretrain/recipe.py) and is passed over here: a model is made and used without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from elmokit.config import build, override, read_toml, suggest
from elmokit.data import RECIPES
from elmokit.errors import UserError
from elmokit.model.bilm import BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.text.characters import ByteMapper
from elmokit.text.jamo import JamoMapper
from elmokit.text.tokens import TokenizerConfig

TRAINING = ("train", "optimizer")  # the sections that are pretraining's


@dataclass(frozen=True)
class ModelRecipe:
    model: BiLMConfig = field(default_factory=BiLMConfig)
    mapper: ByteMapper | JamoMapper = field(default_factory=ByteMapper)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)


R = TypeVar("R", bound=ModelRecipe)


def recipe_names() -> list[str]:
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def load_model_recipe(name: str | Path, settings: Sequence[str] = ()) -> ModelRecipe:
    """The model's part of a recipe: a bundled one by name or a TOML file by path, with dotted settings on top."""
    table = read_recipe(name, settings)
    return build_recipe(ModelRecipe, {key: value for key, value in table.items() if key not in TRAINING})


def read_recipe(name: str | Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in recipe_names():
            raise UserError(f"unknown recipe {str(name)!r}: {suggest(str(name), recipe_names())}")
        path = RECIPES / f"{name}.toml"
    elif not path.is_file():
        raise UserError(f"no recipe file {path}; the bundled recipes are {', '.join(recipe_names())}")
    return override(read_toml(path), settings)


def build_recipe(cls: type[R], table: Mapping[str, Any]) -> R:
    """The recipe, with a character table as large as the mapper needs unless the recipe gives its size."""
    mapper = table.get("mapper")
    if isinstance(mapper, Mapping):
        table = {**table, "mapper": {"kind": ByteMapper.kind, **mapper}}
    recipe = build(cls, table)
    encoder, (characters, _) = recipe.model.encoder, recipe.mapper.table_sizes
    if not isinstance(encoder, CharEncoderConfig) or encoder.characters == characters:
        return recipe
    if "characters" in table.get("model", {}).get("encoder", {}):
        raise UserError(
            f"'model.encoder.characters': the mapper {recipe.mapper.kind!r} makes {characters} ids, found "
            f"{encoder.characters}: leave the key out"
        )
    return replace(recipe, model=replace(recipe.model, encoder=replace(encoder, characters=characters)))
