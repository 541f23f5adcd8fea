"""New HDF5 files on disks that may be full. HDF5 itself cannot give up: a file that it fails to flush it cannot
close, and the process crashes later. So it writes to a file that never fails, but remembers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py


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
