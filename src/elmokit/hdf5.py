"""HDF5 files: new ones on disks that may be full, and other people's, which are not to be trusted.

HDF5 itself cannot give up: a file that it fails to flush it cannot close, and the process crashes later. So it
writes to a file that never fails, but remembers. Reading, it follows links to other files and makes arrays of any
size out of nothing: here an array is read only if the file itself holds all of it.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

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


REFERENCE, HEAP, ENTRY = struct.Struct("<IQI"), struct.Struct("<4sB3xQ"), struct.Struct("<HHIQ")
SIGN = b"GCOL"  # a heap begins with it


class Strings:
    """A column of strings, each looked at before HDF5 reads it.

    A string is a length, the address of a heap and a number in it. HDF5 makes room for any length that it says,
    and reads a heap with an empty entry for ever.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._path = dataset, Path(dataset.file.filename)
        self._offset = dataset.id.get_offset()
        self._address, self._sizes = -1, dict[int, int]()  # of the last heap
        kind = h5py.check_string_dtype(dataset.dtype)
        self._in_heap = kind is not None and kind.length is None
        layout = (dataset.id.get_storage_size(), dataset.file.userblock_size)
        if kind is None or (self._in_heap and layout != (REFERENCE.size * len(self), 0)):
            raise UserError(f"{self._path}: {dataset.name}: expected a column of strings as h5py writes it")

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> str:
        if self._in_heap:
            self._check(i)
        text: str = self._dataset.asstr()[i]
        return text

    def _check(self, i: int) -> None:
        with self._path.open("rb") as file:
            file.seek(self._offset + i * REFERENCE.size)
            length, address, number = REFERENCE.unpack(file.read(REFERENCE.size))
            if length and address != self._address:
                self._address, self._sizes = address, heap_entries(file, address)
        if length > self._sizes.get(number, 0):
            raise UserError(f"{self._path}: {self._dataset.name}: string {i} is damaged")


def heap_entries(file: IO[bytes], address: int) -> dict[int, int]:
    """The sizes of the strings of a heap, by their number."""
    end = os.fstat(file.fileno()).st_size
    damaged = UserError(f"{file.name}: its strings are damaged: copy or make it again")
    if not 0 < address <= end - HEAP.size:
        raise damaged
    file.seek(address)
    sign, version, size = HEAP.unpack(file.read(HEAP.size))
    if (sign, version) != (SIGN, 1) or not HEAP.size < size <= end - address:
        raise damaged
    content = file.read(size - HEAP.size)
    sizes, at = {}, 0
    while at + ENTRY.size <= len(content):
        number, _, _, length = ENTRY.unpack_from(content, at)
        # Number 0 is free space; its length counts the entry's head, too.
        step = ENTRY.size + -(-length // 8) * 8 if number else length
        if step < ENTRY.size or at + step > len(content):
            raise damaged
        sizes[number] = length if number else 0
        at += step
    return sizes


def check_heaps(path: Path) -> None:
    """All heaps of a file: for strings whose place HDF5 does not tell, as attributes of any length."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(SIGN)
        while at >= 0:
            if at % 8 == 0 and content[at + 4 : at + 8] == b"\1\0\0\0":
                heap_entries(file, at)
            at = content.find(SIGN, at + 1)
