"""A written output, read back before it takes its place: the same sentences and the same bytes of vectors."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from safetensors import SafetensorError

from elmokit.embed.scratch import Scratch
from elmokit.errors import UserError

_AT_ONCE = 1 << 20  # bytes
_ROWS = 256


class _Sentence(NamedTuple):
    line: int
    tokens: list[str]
    vectors: bytes  # as the scratch folder has them: [T, ...]


def verify(scratch: Scratch, path: Path, output: Path) -> None:
    """Refuse `path`, which is to become `output`, if it does not hold what the job appended."""
    try:
        same = _VERIFIERS[path.suffix](scratch, path)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UserError(_message(output, str(error))) from None
    if not same:
        raise UserError(_message(output, "its sentences or vectors are others"))


def _message(output: Path, why: str) -> str:
    return f"{output} was not put in place: read back, it is not what was computed ({why}). Run the command again"


def _verify_h5(scratch: Scratch, path: Path) -> bool:
    import h5py

    def sentences(file: h5py.File) -> Iterator[_Sentence]:
        for start in range(0, len(file["line"]), _ROWS):
            rows = slice(start, start + _ROWS)
            for i, (line, tokens) in enumerate(zip(file["line"][rows], file["tokens"].asstr()[rows]), start):
                vectors = file[str(i)][...]  # [layers, T, D], [T, D], or pooled without T
                if not scratch.pooled and vectors.ndim == 3:
                    vectors = vectors.swapaxes(0, 1)
                yield _Sentence(int(line), json.loads(tokens), vectors.tobytes())

    with h5py.File(path, "r") as file:
        return _are_the_same(scratch, sentences(file))


def _verify_parquet(scratch: Scratch, path: Path) -> bool:
    import pyarrow.parquet as pq

    def sentences(file: pq.ParquetFile) -> Iterator[_Sentence]:
        for batch in file.iter_batches(_ROWS, columns=["line", "tokens", "vectors"]):
            for line, tokens, vectors in zip(batch["line"], batch["tokens"], batch["vectors"]):
                flat = vectors.values if scratch.pooled else vectors.values.flatten()
                yield _Sentence(line.as_py(), tokens.as_py(), flat.to_numpy(zero_copy_only=False).tobytes())

    with pq.ParquetFile(path) as file:
        return _are_the_same(scratch, sentences(file))


def _verify_npz(scratch: Scratch, path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        for name, source in _raw(scratch).items():
            with archive.open(f"{name}.npy") as member, source.open("rb") as raw:
                np.lib.format.read_magic(member)
                np.lib.format.read_array_header_2_0(member)
                if not _same_bytes(member, raw, source.stat().st_size):
                    return False
        with archive.open("offsets.npy") as member:
            return len(np.lib.format.read_array(member, allow_pickle=False)) == scratch.sentences + 1


def _verify_safetensors(scratch: Scratch, path: Path) -> bool:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        for name, source in _raw(scratch).items():
            begin, end = header[name]["data_offsets"]
            with source.open("rb") as raw:
                file.seek(8 + length + begin)
                if end - begin != source.stat().st_size or not _same_bytes(file, raw, end - begin):
                    return False
    return bool(header["offsets"]["shape"] == [scratch.sentences + 1])


_VERIFIERS = {
    ".h5": _verify_h5,
    ".hdf5": _verify_h5,
    ".npz": _verify_npz,
    ".safetensors": _verify_safetensors,
    ".parquet": _verify_parquet,
}


def _raw(scratch: Scratch) -> dict[str, Path]:
    return {"vectors": scratch.vectors_path, "sentences": scratch.sentences_path}


def _are_the_same(scratch: Scratch, found: Iterator[_Sentence]) -> bool:
    kept = (_Sentence(r.line, r.tokens, r.vectors.tobytes()) for r in scratch.records())
    return all(one == other for one, other in zip_longest(kept, found))


def _same_bytes(one: IO[bytes], other: IO[bytes], size: int) -> bool:
    while size > 0:
        wanted = min(size, _AT_ONCE)
        block = one.read(wanted)
        if not block or other.read(len(block)) != block:
            return False
        size -= len(block)
    return True
