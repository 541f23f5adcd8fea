"""Read back what `elmo embed` wrote, whatever the format: vectors, tokens and text by sentence number."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from elmokit.config import shown
from elmokit.errors import UserError
from elmokit.hdf5 import BROKEN as BROKEN_HDF5
from elmokit.hdf5 import Strings, check_heaps, dataset_at

METADATA = ("shape", "layers", "pooling", "model", "elmokit")
# What the libraries have been seen to raise for damaged files.
BROKEN = (
    *BROKEN_HDF5,
    *(IndexError, EOFError, RecursionError, zipfile.BadZipFile, zlib.error, struct.error, SafetensorError),
    *(SyntaxError, TokenError),  # NumPy's headers are Python
)


class Embedded(NamedTuple):
    line: int  # of the input, from 1
    text: str
    tokens: list[str]
    vectors: NDArray[Any]  # [layers, T, D] or [T, D]; without T where pooled


class VectorFile(ABC):
    """`len(file)`, `file[i]`, `for sentence in file`. .h5 and .parquet are read piece by piece, others whole."""

    def __init__(self, path: Path, metadata: dict[str, str]) -> None:
        absent = [key for key in METADATA if key not in metadata]
        if absent:
            raise UserError(f"{path}: not written by elmo embed: it does not state its {', '.join(absent)}")
        self.path, self.metadata = path, metadata
        if not 1 <= len(self.shape) <= 2 or min(self.shape) < 1:
            raise UserError(f"{path}: expected the shape of a vector, found {shown(metadata['shape'])}")

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, i: int) -> Embedded: ...

    def __getitem__(self, i: int) -> Embedded:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sentence {i} of {len(self)}")
        with _damage(self.path):
            return self._read(i % len(self))

    def __iter__(self) -> Iterator[Embedded]:
        return (self[i] for i in range(len(self)))

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

        self._file = h5py.File(path, "r")
        attributes = self._file.attrs
        said = [key for key in METADATA if key in attributes and attributes.get_id(key).shape == ()]
        kinds = [h5py.check_string_dtype(attributes.get_id(key).dtype) for key in said]
        said = [key for key, kind in zip(said, kinds) if kind is not None]
        if any(kind is not None and kind.length is None for kind in kinds):  # files of before have them so
            check_heaps(path)
        super().__init__(path, {key: _as_text(attributes[key]) for key in said})
        self._lines = self._dataset("line", 1)
        self._texts, self._tokens = (Strings(self._dataset(name, 1)) for name in ("text", "tokens"))
        if not len(self._lines) == len(self._texts) == len(self._tokens):
            raise UserError(f"{path}: not as many lines as texts and sentences of tokens: make it again")

    def _dataset(self, name: str, dimensions: int) -> Any:
        dataset = dataset_at(self._file, name)
        if dataset is None or dataset.ndim != dimensions:
            raise UserError(f"{self.path}: expected {name} as elmo embed writes it, found none: make it again")
        return dataset

    def __len__(self) -> int:
        return len(self._lines)

    def _read(self, i: int) -> Embedded:
        text, tokens = self._texts[i], self._tokens[i]
        vectors = self._dataset(str(i), len(self.shape) + (not self.pooled))[...]
        return Embedded(int(self._lines[i]), text, json.loads(tokens), vectors)


class _FlatFile(VectorFile):
    """.npz and .safetensors: all vectors in one array, with offsets."""

    def __init__(self, path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> None:
        super().__init__(path, metadata)
        self._vectors, self._offsets = arrays["vectors"], arrays["offsets"]
        self._sentences = arrays["sentences"]
        if self._sentences.dtype != np.uint8 or self._sentences.ndim != 1:
            raise UserError(f"{path}: sentences: expected bytes, found {self._sentences.dtype}: make it again")
        ends = np.flatnonzero(self._sentences == ord("\n")) + 1
        self._starts = np.concatenate([[0], ends])
        at = self._offsets
        if at.dtype != np.int64 or at.shape != self._starts.shape or at[0] != 0 or (np.diff(at) < 0).any():
            raise UserError(f"{path}: offsets: expected one more than its {len(ends)} sentences, rising from 0")
        if self._vectors.ndim < 2 or at[-1] != len(self._vectors):
            raise UserError(f"{path}: expected {at[-1]} vectors, found {self._vectors.shape}: make it again")

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
        self._file = pq.ParquetFile(path)
        metadata = self._file.schema_arrow.metadata or {}
        super().__init__(
            path, {key: metadata[key.encode()].decode() for key in METADATA if key.encode() in metadata}
        )
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
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > path.stat().st_size:  # compressed, or said to be there
            raise UserError(f"{path}: expected members no larger than the file, found more: make it again")
        arrays = {member.filename.removesuffix(".npy"): _as_array(archive.read(member)) for member in members}
    return _FlatFile(path, arrays, _as_metadata(json.loads(arrays["metadata"].tobytes())))


def _as_array(content: bytes) -> NDArray[Any]:
    """NumPy's own reader makes room for whatever shape the header says; here the bytes must be there."""
    file = io.BytesIO(content)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(file)]
    shape, by_columns, dtype = read_header(file)
    at = file.tell()
    if by_columns or dtype.hasobject or len(content) - at != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of {shape} {dtype} in {len(content) - at:,} bytes")
    array: NDArray[Any] = np.frombuffer(content, dtype, offset=at).reshape(shape)
    return array


def _open_safetensors(path: Path) -> VectorFile:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _FlatFile(path, arrays, _as_metadata(file.metadata()))


def _as_metadata(table: Any) -> dict[str, str]:
    return {key: _as_text(table[key]) for key in METADATA if key in table} if isinstance(table, dict) else {}


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} where text is expected")
    return value


READERS: dict[str, Callable[[Path], VectorFile]] = {
    ".h5": _H5File,
    ".hdf5": _H5File,
    ".npz": _open_npz,
    ".safetensors": _open_safetensors,
    ".parquet": _ParquetFile,
}


def open_vectors(path: str | Path) -> VectorFile:
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no file {path}")
    if path.suffix not in READERS:
        raise UserError(f"{path}: expected .h5, .npz, .safetensors or .parquet, found {path.suffix!r}")
    with _damage(path):
        return READERS[path.suffix](path)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What the libraries raise for files that are not as they were written, in one line."""
    try:
        yield
    except UserError:
        raise
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the machine's, not the file's
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: not a whole file as elmo embed writes them ({what}): make it again") from None
