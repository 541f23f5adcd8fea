"""A finished job's records -> one file: .h5, .npz, .safetensors or .parquet. Same records, same bytes.

.h5 has one dataset per sentence, named 0, 1, 2 ..., as AllenNLP's files; .npz and .safetensors hold all vectors
in one array with offsets; .parquet has one row per sentence. `elmokit.embed.vectors` reads them all.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from elmokit.embed.scratch import Record, Scratch
from elmokit.errors import UserError
from elmokit.hdf5 import new_hdf5

OnProgress = Callable[[int], None]  # told how many sentences are written
ROWS_AT_ONCE = 256


def write_h5(scratch: Scratch, path: Path, metadata: dict[str, str], on_progress: OnProgress) -> None:
    with new_hdf5(path) as (file, check):
        for key, value in metadata.items():
            file.attrs[key] = np.bytes_(value.encode())  # of fixed length: nothing to follow when it is read
        text = h5py.string_dtype()
        columns = {
            "line": file.create_dataset("line", (scratch.sentences,), dtype=np.int64, track_times=False),
            "text": file.create_dataset("text", (scratch.sentences,), dtype=text, track_times=False),
            "tokens": file.create_dataset("tokens", (scratch.sentences,), dtype=text, track_times=False),
        }
        done = 0
        for rows in _groups(scratch.records()):
            for i, record in enumerate(rows, start=done):
                vectors = record.vectors[0] if scratch.pooled else record.vectors
                if not scratch.pooled and vectors.ndim == 3:
                    vectors = vectors.swapaxes(0, 1)  # [T, layers, D] -> [layers, T, D]
                file.create_dataset(str(i), data=vectors, track_times=False)
            here = slice(done, done + len(rows))
            columns["line"][here] = [record.line for record in rows]
            # HDF5's strings end at NUL; JSON escapes it, so `tokens` stays exact.
            columns["text"][here] = [record.text.replace("\0", "\u2400") for record in rows]
            columns["tokens"][here] = [json.dumps(record.tokens, ensure_ascii=False) for record in rows]
            done += len(rows)
            check()
            on_progress(done)


def write_npz(scratch: Scratch, path: Path, metadata: dict[str, str], on_progress: OnProgress) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:

        def member(name: str) -> IO[bytes]:
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))  # no clock in the bytes
            return archive.open(info, "w", force_zip64=True)

        for name, array in (("offsets", _offsets(scratch)), ("metadata", _as_bytes(metadata))):
            with member(name) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        for name, (source, dtype, shape) in _big_arrays(scratch).items():
            with member(name) as file, source.open("rb") as raw:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(file, header)
                shutil.copyfileobj(raw, file, 1 << 20)
    on_progress(scratch.sentences)


def write_safetensors(scratch: Scratch, path: Path, metadata: dict[str, str], on_progress: OnProgress) -> None:
    """By hand (a length, a JSON header, raw bytes): the library would hold everything in memory."""
    names = {"int64": "I64", "float32": "F32", "float16": "F16", "uint8": "U8"}
    offsets = _offsets(scratch)
    big = _big_arrays(scratch)
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, dtype, shape in [
        ("offsets", offsets.dtype, offsets.shape),  # the widest numbers first, so that all are aligned
        *((name, dtype, shape) for name, (_, dtype, shape) in big.items()),
    ]:
        size = int(np.prod(shape)) * dtype.itemsize
        header[name] = {"dtype": names[dtype.name], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(offsets.tobytes())
        for source, _, _ in big.values():
            with source.open("rb") as raw:
                shutil.copyfileobj(raw, file, 1 << 20)
    on_progress(scratch.sentences)


def write_parquet(scratch: Scratch, path: Path, metadata: dict[str, str], on_progress: OnProgress) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = pa.float32() if scratch.dtype == "float32" else pa.float16()
    vector = pa.list_(number, int(np.prod(scratch.shape)))  # layers after one another
    fields = {
        "id": pa.int64(),
        "line": pa.int64(),
        "text": pa.string(),
        "tokens": pa.list_(pa.string()),
        "vectors": vector if scratch.pooled else pa.list_(vector),
    }
    schema = pa.schema(list(fields.items()), metadata=metadata)
    done = 0
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _groups(scratch.records()):
            flat = np.concatenate([record.vectors.reshape(-1) for record in rows])
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat, type=number), type=vector)
            if not scratch.pooled:
                ends = np.cumsum([0, *(len(record.vectors) for record in rows)]).astype(np.int32)
                vectors = pa.ListArray.from_arrays(pa.array(ends), vectors, type=fields["vectors"])
            columns = [
                pa.array(range(done, done + len(rows)), fields["id"]),
                pa.array([record.line for record in rows], fields["line"]),
                pa.array([record.text for record in rows], fields["text"]),
                pa.array([record.tokens for record in rows], fields["tokens"]),
                vectors,
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            done += len(rows)
            on_progress(done)


WRITERS = {".h5": write_h5, ".hdf5": write_h5, ".npz": write_npz, ".safetensors": write_safetensors}
WRITERS[".parquet"] = write_parquet


def check_output(path: Path) -> None:
    """Refuse before hours of work what could not be written after them."""
    if path.suffix not in WRITERS:
        raise UserError(f"{path}: expected a name that ends in {', '.join(WRITERS)}, found {path.suffix!r}")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UserError("parquet files need the extra: pip install 'elmokit[parquet]'") from None


def check_space(scratch: Scratch, path: Path) -> None:
    """The output holds at least what the scratch folder does: no use to begin without room for that."""
    needed = scratch.vectors_path.stat().st_size + scratch.sentences_path.stat().st_size
    if path.suffix != ".parquet" and shutil.disk_usage(path.parent).free < needed:  # parquet may compress it
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: the output needs {needed:,} bytes", str(path))


def _big_arrays(scratch: Scratch) -> dict[str, tuple[Path, np.dtype[Any], tuple[int, ...]]]:
    """name -> the file of raw bytes that it is, its type and its shape."""
    dtype = np.dtype(scratch.dtype)
    size = scratch.vectors_path.stat().st_size
    count = size // (int(np.prod(scratch.shape)) * dtype.itemsize)
    return {
        "vectors": (scratch.vectors_path, dtype, (count, *scratch.shape)),
        "sentences": (scratch.sentences_path, np.dtype(np.uint8), (scratch.sentences_path.stat().st_size,)),
    }


def _offsets(scratch: Scratch) -> NDArray[np.int64]:
    """Sentence i has the vectors offsets[i] to offsets[i + 1]."""
    offsets = np.zeros(scratch.sentences + 1, dtype=np.int64)
    with scratch.sentences_path.open("rb") as sentences:
        for i, raw in enumerate(sentences, start=1):
            offsets[i] = 1 if scratch.pooled else len(json.loads(raw)["tokens"])
    result: NDArray[np.int64] = offsets.cumsum()
    return result


def _as_bytes(metadata: dict[str, str]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(metadata).encode(), dtype=np.uint8)


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    while rows := list(islice(records, ROWS_AT_ONCE)):
        yield rows
