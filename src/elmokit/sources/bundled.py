"""The models that the package brings along, by name."""

from __future__ import annotations

from pathlib import Path

from elmokit.checkpoint import CONFIG
from elmokit.data import MODELS


def bundled_names() -> list[str]:
    return sorted(path.parent.name for path in MODELS.glob(f"*/{CONFIG}"))


def bundled_folder(name: str) -> Path:
    return MODELS / name
