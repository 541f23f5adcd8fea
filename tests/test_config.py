from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from elmokit.config import build, dump, override
from elmokit.data import RECIPES
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.recipe import recipe_names
from elmokit.pretrain.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Apple:
    kind: Literal["apple"] = "apple"
    seeds: int = 5


@dataclass(frozen=True)
class Pear:
    kind: Literal["pear"] = "pear"
    sweet: bool = True


@dataclass(frozen=True)
class Basket:
    fruit: Apple | Pear = field(default_factory=Apple)
    weight: float = 1.0
    sizes: tuple[tuple[int, int], ...] = ()
    limit: int | None = None
    colour: Literal["red", "green"] = "red"


def test_a_table_becomes_a_dataclass_and_comes_back():
    table = {
        "fruit": {"kind": "pear", "sweet": False},
        "weight": 2,
        "sizes": [[1, 2]],
        "limit": None,
        "colour": "green",
    }
    basket = build(Basket, table)
    assert basket == Basket(Pear(sweet=False), 2.0, ((1, 2),), None, "green")
    assert build(Basket, dump(basket)) == basket


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"wieght": 1}, "unknown key 'wieght': did you mean 'weight'"),
        ({"fruit": {"kind": "apple", "seed": 1}}, "unknown key 'fruit.seed': did you mean 'seeds'"),
        ({"fruit": {"kind": "plum"}}, "'fruit.kind': expected one of 'apple', 'pear', found 'plum'"),
        ({"fruit": 3}, "'fruit': expected a table with kind"),
        ({"weight": "heavy"}, "'weight': expected float, found 'heavy'"),
        ({"limit": True}, "'limit': expected int, found True"),
        ({"sizes": [[1, 2, 3]]}, r"'sizes\[0\]': expected 2 values"),
        ({"sizes": 4}, "'sizes': expected a list"),
        ({"colour": "blue"}, "'colour': expected one of 'red', 'green', found 'blue'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(table, message):
    with pytest.raises(ValueError, match=message):
        build(Basket, table)


def test_dotted_settings_are_laid_on_top():
    table = {"fruit": {"kind": "apple"}}
    assert override(table, ["fruit.seeds=7", "colour=green", "sizes=[[1, 2]]"]) == {
        "fruit": {"kind": "apple", "seeds": 7},
        "colour": "green",
        "sizes": [[1, 2]],
    }
    assert table == {"fruit": {"kind": "apple"}}
    for wrong in ("colour", "=3", "fruit..seeds=3"):
        with pytest.raises(ValueError, match="expected a setting such as"):
            override(table, [wrong])
    with pytest.raises(ValueError, match="is a value, not a table"):
        override({"weight": 1}, ["weight.unit=3"])


def test_every_bundled_recipe_loads_and_describes_a_model():
    assert {"tiny", "small", "medium", "original"} <= set(recipe_names())
    for name in recipe_names():
        recipe = load_recipe(name)
        assert build(BiLMConfig, dump(recipe.model)) == recipe.model


def test_the_published_sizes():
    """Parameters as the published files have them: 13.6, 28.0 and 93.6 million (allennlp.org/elmo)."""
    import torch

    for name, millions in (("small", 13.6), ("medium", 28.0), ("original", 93.6)):
        with torch.device("meta"):
            parameters = sum(p.numel() for p in BiLM(load_recipe(name).model).parameters())
        assert round(parameters / 1e6, 1) == millions


def test_a_recipe_can_be_a_file_with_settings_on_top(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text((RECIPES / "tiny.toml").read_text())
    assert load_recipe(path, ["model.lstm.cells=64"]).model.lstm.cells == 64
    assert isinstance(load_recipe(path), Recipe)
    path.write_text("[model.lstm]\ncels = 3\n")
    with pytest.raises(ValueError, match="did you mean 'cells'"):
        load_recipe(path)
    path.write_text("not toml")
    with pytest.raises(ValueError, match="not valid TOML"):
        load_recipe(path)


def test_an_unknown_recipe_is_answered_with_suggestions():
    with pytest.raises(ValueError, match="did you mean 'small'"):
        load_recipe("smal")
    with pytest.raises(ValueError, match="no recipe file"):
        load_recipe("nowhere.toml")
