"""What the package brings along: models, recipes, pairs of words, layouts of studies."""

from pathlib import Path

HERE = Path(__file__).parent
MODELS, RECIPES, WORD_PAIRS, STUDIES = (HERE / name for name in ("models", "recipes", "word_pairs", "studies"))
