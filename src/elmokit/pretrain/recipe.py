"""A recipe: the settings of a model and of its training, read from TOML. Those of the package go by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elmokit.config import build, override, read_toml, suggest
from elmokit.model.bilm import BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.pretrain.optimizer import OptimizerConfig
from elmokit.pretrain.train import TrainConfig
from elmokit.text.characters import ByteMapper
from elmokit.text.jamo import JamoMapper
from elmokit.text.tokens import TokeniserConfig

FOLDER = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Recipe:
    model: BiLMConfig = field(default_factory=BiLMConfig)
    mapper: ByteMapper | JamoMapper = field(default_factory=ByteMapper)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)


def recipe_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_recipe(name: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """A bundled recipe by name or a TOML file by path, with dotted settings applied on top."""
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in recipe_names():
            raise ValueError(f"unknown recipe {str(name)!r}: {suggest(str(name), recipe_names())}")
        path = FOLDER / f"{name}.toml"
    elif not path.is_file():
        raise ValueError(f"no recipe file {path}; the bundled recipes are {', '.join(recipe_names())}")
    return _build(override(read_toml(path), settings))


def _build(table: Mapping[str, Any]) -> Recipe:
    """The recipe, with a character table as large as the mapper needs unless the recipe gives its size."""
    mapper = table.get("mapper")
    if isinstance(mapper, Mapping):
        table = {**table, "mapper": {"kind": ByteMapper.kind, **mapper}}
    recipe = build(Recipe, table)
    encoder, (characters, _) = recipe.model.encoder, recipe.mapper.table_sizes
    if not isinstance(encoder, CharEncoderConfig) or encoder.characters == characters:
        return recipe
    if "characters" in table.get("model", {}).get("encoder", {}):
        raise ValueError(
            f"'model.encoder.characters': the mapper {recipe.mapper.kind!r} makes {characters} ids, found "
            f"{encoder.characters}: leave the key out"
        )
    return replace(recipe, model=replace(recipe.model, encoder=replace(encoder, characters=characters)))
