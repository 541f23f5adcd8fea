"""Parts of speech by linear probes that come with the bundled models: a file each, found by the model's digest.

tools/play_tags.py makes the files. Shapes: L layers, D width, K tags, T tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from elmokit.analysis.probes.linear import LinearProbe
from elmokit.data import HERE

FOLDER = HERE / "play"
PARTS = ("weights", "bias", "mean", "scale")  # of a LinearProbe, each with the layers before its own dimensions


@dataclass(frozen=True)
class TagProbes:
    """One probe a layer, and how they were made."""

    labels: tuple[str, ...]  # K
    probes: tuple[LinearProbe, ...]  # L
    accuracy: tuple[float, ...]  # of each on the development set, 0 to 1
    data: str  # what they were measured on, in words
    model: str  # the digest of the model that they are of
    command: str

    def probabilities(self, layers: NDArray[np.float32]) -> NDArray[np.float32]:
        """[L, T, D] -> [L, T, K]"""
        return np.stack([probe.probabilities(layer) for probe, layer in zip(self.probes, layers)])

    def save(self, path: Path) -> None:
        """As float16: half the bytes, for the same tags."""
        tensors = {
            part: torch.stack([getattr(probe, part) for probe in self.probes]).to(torch.float16) for part in PARTS
        }
        facts = {"labels": json.dumps(self.labels), "accuracy": json.dumps(self.accuracy)}
        others = {"data": self.data, "model": self.model, "command": self.command}
        save_file(tensors, path, {**facts, **others})

    @classmethod
    def load(cls, path: Path) -> TagProbes:
        with safe_open(path, "pt") as file:
            facts = file.metadata()
            parts = {part: file.get_tensor(part).to(torch.float32) for part in PARTS}
        return cls(
            labels=tuple(json.loads(facts["labels"])),
            probes=tuple(
                LinearProbe(weights, bias, mean, scale, iterations=0, converged=True)
                for weights, bias, mean, scale in zip(*parts.values())
            ),
            accuracy=tuple(json.loads(facts["accuracy"])),
            data=facts["data"],
            model=facts["model"],
            command=facts["command"],
        )


@cache
def tags_of(digest: str) -> TagProbes | None:
    """The probes of a model; None where none came with it."""
    return next((probes for probes in _all(FOLDER) if probes.model == digest), None)


@cache
def _all(folder: Path) -> tuple[TagProbes, ...]:
    return tuple(TagProbes.load(path) for path in sorted(folder.glob("tags-*.safetensors")))
