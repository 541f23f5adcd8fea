"""Read back what `elmo embed` wrote, whatever the format: vectors, tokens and text by sentence number."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from elmokit.errors import UserError


class Embedded(NamedTuple):
    line: int  # of the input, from 1
    text: str
    tokens: list[str]
    vectors: NDArray[Any]  # [layers, T, D] or [T, D]; without T where pooled


class VectorFile(ABC):
    """`len(file)`, `file[i]`, `for sentence in file`. .h5 and .parquet are read piece by piece, others whole."""

    path: Path
    metadata: dict[str, str]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, i: int) -> Embedded: ...

    def __getitem__(self, i: int) -> Embedded:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sentence {i} of {len(self)}")
        return self._read(i % len(self))

    def __iter__(self) -> Iterator[Embedded]:
        return (self._read(i) for i in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one vector: (D,) or (layers, D)."""
        return tuple(int(n) for n in self.metadata["shape"].split("x"))

    def describe(self) -> dict[str, str | int]:
        """What `elmo info` shows of it."""
        return {
            "file": str(self.path),
            "bytes": self.path.stat().st_size,
            "sentences": len(self),
            "shape of a vector": " x ".join(str(n) for n in self.shape),
            **{key: self.metadata[key] for key in ("layers", "pooling", "model", "elmokit")},
        }

    @property
    def pooled(self) -> bool:
        return self.metadata["pooling"] != "none"

    def _arrange(self, vectors: NDArray[Any]) -> NDArray[Any]:  # [T, *shape], as stored
        vectors = vectors.reshape(-1, *self.shape)
        if self.pooled:
            single: NDArray[Any] = vectors[0]
            return single
        return vectors.swapaxes(0, 1) if vectors.ndim == 3 else vectors


class _H5File(VectorFile):
    def __init__(self, path: Path) -> None:
        import h5py

        self.path = path
        self._file = h5py.File(path, "r")
        self.metadata = {key: str(value) for key, value in self._file.attrs.items()}

    def __len__(self) -> int:
        return len(self._file["line"])

    def _read(self, i: int) -> Embedded:
        text, tokens = (self._file[name].asstr()[i] for name in ("text", "tokens"))
        return Embedded(int(self._file["line"][i]), text, json.loads(tokens), self._file[str(i)][...])


class _FlatFile(VectorFile):
    """.npz and .safetensors: all vectors in one array, with offsets."""

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]], metadata: dict[str, str]) -> None:
        self.path, self.metadata = path, metadata
        self._vectors, self._offsets = arrays["vectors"], arrays["offsets"]
        self._sentences = arrays["sentences"]
        ends = np.flatnonzero(self._sentences == ord("\n")) + 1
        self._starts = np.concatenate([[0], ends])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _read(self, i: int) -> Embedded:
        entry = json.loads(self._sentences[self._starts[i] : self._starts[i + 1]].tobytes())
        vectors = self._vectors[self._offsets[i] : self._offsets[i + 1]]
        return Embedded(entry["line"], entry["text"], entry["tokens"], self._arrange(vectors))


class _ParquetFile(VectorFile):
    def __init__(self, path: Path) -> None:
        try:
            import pyarrow.parquet as pq
        except ImportError:
            raise UserError("parquet files need the extra: pip install 'elmokit[parquet]'") from None
        self.path = path
        self._file = pq.ParquetFile(path)
        metadata = self._file.schema_arrow.metadata or {}
        self.metadata = {key.decode(): value.decode() for key, value in metadata.items() if key != b"ARROW:schema"}
        counts = [self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)]
        self._firsts = np.cumsum([0, *counts])
        self._held: tuple[int, Any] = (-1, None)  # the row group that was read last

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def _read(self, i: int) -> Embedded:
        group = int(np.searchsorted(self._firsts, i, side="right")) - 1
        if self._held[0] != group:
            self._held = (group, self._file.read_row_group(group))
        row = self._held[1].slice(i - int(self._firsts[group]), 1)
        vectors = row["vectors"].combine_chunks().flatten()
        if not self.pooled:
            vectors = vectors.flatten()
        line, text, tokens = (row[name][0].as_py() for name in ("line", "text", "tokens"))
        return Embedded(line, text, tokens, self._arrange(vectors.to_numpy()))


def _open_npz(path: Path) -> VectorFile:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as archive:  # NumPy leaves a broken one open
        arrays = {name: archive[name] for name in archive.files}
    return _FlatFile(path, arrays, json.loads(arrays["metadata"].tobytes()))


def _open_safetensors(path: Path) -> VectorFile:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _FlatFile(path, arrays, file.metadata() or {})


READERS: dict[str, Callable[[Path], VectorFile]] = {
    ".h5": _H5File,
    ".hdf5": _H5File,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".parquet": _ParquetFile,
}
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, SafetensorError)  # by library
METADATA = ("shape", "layers", "pooling", "model", "elmokit")


def open_vectors(path: str | Path) -> VectorFile:
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no file {path}")
    if path.suffix not in READERS:
        raise UserError(f"{path}: expected .h5, .npz, .safetensors or .parquet, found {path.suffix!r}")
    try:
        file = READERS[path.suffix](path)
    except UserError:
        raise
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the machine's, not the file's
        raise UserError(f"{path}: not a whole file as elmo embed writes them ({error}): make it again") from None
    absent = [key for key in METADATA if key not in file.metadata]
    if absent:
        raise UserError(f"{path}: not written by elmo embed: it does not state its {', '.join(absent)}")
    return file
