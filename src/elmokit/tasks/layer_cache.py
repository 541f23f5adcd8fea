"""The frozen biLM runs once over a task's sentences: all its layers on disk, float16, read through memory maps.

A file holds the layers of one set of sentences by one model: both are in its name by their digests, so another
model or another text has another file. It is whole or not there.

Shapes: N tokens of all sentences, L layers, T tokens of a sentence, D width.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import replacing
from elmokit.embed.arrays import as_half
from elmokit.embed.embedder import Elmo
from elmokit.embed.reader import Array
from elmokit.progress import silent
from elmokit.tasks.progress import OnTaskProgress, TaskProgress

FOLDER = "ELMOKIT_CACHE"  # the environment's name for where caches lie
KEYS = b"layers 2\n"  # how sentences make a file's name; files of another way are not found
Key = tuple[str, ...]


def default_folder() -> Path:
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "elmokit"


class LayerCache:
    """Layers [L, T, D] of the sentences that it was made of."""

    def __init__(self, layers: NDArray[np.float16], places: dict[Key, tuple[int, int]], path: Path) -> None:
        self._layers = layers  # [N, L, D]
        self._places = places
        self.path = path

    @classmethod
    def open(
        cls,
        elmo: Elmo,
        sentences: Iterable[Sequence[str]],
        folder: Path | None = None,
        on_progress: OnTaskProgress = silent,
    ) -> LayerCache:
        """The cache of these sentences: from disk, or made now; equal sentences are kept once."""
        folder = folder or default_folder()
        places: dict[Key, tuple[int, int]] = {}
        count = 0
        digest = hashlib.sha256(KEYS)
        for sentence in sentences:
            key = tuple(sentence)
            if key not in places:
                places[key] = (count, count + len(key))
                count += len(key)
                digest.update(_spelled(key))
        model = hashlib.sha256(f"{elmo.digest} {elmo.weights} {elmo.tokenizer.config}".encode())
        path = folder / f"{model.hexdigest()[:16]}-{digest.hexdigest()[:24]}.layers"
        shape = (count, elmo.layers, elmo.width)
        if not (path.is_file() and path.stat().st_size == 2 * int(np.prod(shape))):
            folder.mkdir(parents=True, exist_ok=True)
            _write(path, elmo, list(places), on_progress)
        if not count:  # nothing to map
            return cls(np.zeros(shape, dtype=np.float16), places, path)
        return cls(np.memmap(path, dtype=np.float16, mode="r", shape=shape), places, path)

    @property
    def bytes(self) -> int:
        return int(self._layers.nbytes)

    def __contains__(self, sentence: Sequence[str]) -> bool:
        return tuple(sentence) in self._places

    def padded(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """[L, B, T, D] float32, zero where a sentence has ended."""
        slices = [slice(*self._places[tuple(sentence)]) for sentence in sentences]
        return _padded([self._layers[rows] for rows in slices], *self._layers.shape[1:])


def _spelled(key: Key) -> bytes:
    """By lengths, not separators: a token may hold any character, and no two sentences are spelled alike."""
    tokens = [token.encode("utf-8", "surrogatepass") for token in key]
    return b"%d:" % len(tokens) + b"".join(b"%d:%b" % (len(token), token) for token in tokens)


def computed_layers(elmo: Elmo, sentences: Sequence[Sequence[str]]) -> Tensor:
    """[L, B, T, D] of sentences that are in no cache: the same numbers as if they were.

    Bit by bit by the compiled kernels, for which a sentence's batch does not matter; torch's own differ in the
    last bit of a few values per million.
    """
    return _padded([_rounded(array) for array in elmo.stream(sentences)], elmo.layers, elmo.width)


def _rounded(layers: Array) -> NDArray[np.float16]:  # [L, T, D] -> [T, L, D]
    return as_half(layers).swapaxes(0, 1)


def _padded(rows: Sequence[NDArray[np.float16]], layers: int, width: int) -> Tensor:
    longest = max(map(len, rows), default=0)
    batch = np.zeros((layers, len(rows), longest, width), dtype=np.float32)
    for number, row in enumerate(rows):
        batch[:, number, : len(row)] = row.swapaxes(0, 1)
    return torch.from_numpy(batch)


def _write(path: Path, elmo: Elmo, sentences: list[Key], on_progress: OnTaskProgress) -> None:
    total = len(sentences)
    with replacing(path) as temporary, temporary.open("wb") as file:
        for done, array in enumerate(elmo.stream(sentences), start=1):
            file.write(np.ascontiguousarray(_rounded(array)).tobytes())
            on_progress(TaskProgress("the biLM reads the sentences, once", done, total))
