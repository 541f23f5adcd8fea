"""HDF5 files: new ones on disks that may be full, and other people's, which are not to be trusted.

HDF5 itself cannot give up: a file that it fails to flush it cannot close, and the process crashes later. So it
writes to a file that never fails, but remembers. Reading, it follows links to other files and makes arrays of any
size out of nothing: here an array is read only if the file itself holds all of it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from elmokit.errors import UserError

# What h5py has been seen to raise for damaged files.
BROKEN = (
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    NotImplementedError,
)


class _Disk(io.FileIO):
    """Takes whatever it is given; from the first error on it keeps nothing, and has the error to show."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            while self.error is None and len(view):
                view = view[super().write(view) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


@contextmanager
def new_hdf5(path: Path) -> Iterator[tuple[Any, Callable[[], None]]]:
    """An h5py.File to fill, and what to call now and then: it raises the OSError that there has been."""
    with _Disk(path, "w+") as disk:

        def check() -> None:
            if disk.error is not None:
                raise disk.error

        with h5py.File(disk, "w") as file:
            yield file, check
        check()


@contextmanager
def reading_hdf5(path: Path) -> Iterator[Any]:
    """An h5py.File to read; whatever h5py says of a damaged one is a UserError."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    except BROKEN as error:
        raise UserError(f"{path}: not a whole HDF5 file ({error}): copy or download it again") from None


def dataset_at(file: Any, name: str) -> Any:
    """The h5py.Dataset of that path, or None; its numbers are in the file as they are, unread so far.

    Links to elsewhere, numbers in other files, compressed ones and those that were never written are refused: by
    these a small file makes arrays of any size, or has any file read.
    """
    item, path = file, file.filename
    for part in name.split("/"):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise UserError(f"{path}: {name}: expected an array, found a link to elsewhere, which is not followed")
        item = item[part]
    if not isinstance(item, h5py.Dataset):
        raise UserError(f"{path}: {name}: expected an array, found a {type(item).__name__.lower()}")
    if item.external or item.is_virtual:
        raise UserError(f"{path}: {name}: its numbers are in other files, which are not read")
    if item.chunks is not None:
        raise UserError(
            f"{path}: {name}: expected an array in one piece, found chunks ({item.compression or 'as it is'}): "
            "`h5repack -l CONTI -f NONE` mends it"
        )
    stored = item.id.get_storage_size()
    if stored < item.nbytes:
        raise UserError(f"{path}: {name}: expected {item.nbytes:,} bytes for {item.shape}, found {stored:,}")
    return item
