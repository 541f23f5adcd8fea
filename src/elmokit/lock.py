"""Locks that end with the process that has them, however it ends: one job per folder, and whose a leftover is.

They are flock's. Windows has none, and some network file systems lack them: there nothing is refused for another's
sake and no leftover removed, and keeping two jobs apart is the user's care.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from elmokit.errors import UserError


class Taken(Exception):
    """Another process has it, or it is gone."""


def own(path: Path) -> int | None:
    """A descriptor of a file or folder that is this process' until it closes it; None where there are no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    # A shared file system asks for the right to write, and a folder cannot be opened so.
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    try:
        descriptor = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Taken from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Taken from None
    except OSError:
        os.close(descriptor)
        return None
    if not _is_at(descriptor, path):  # removed by its owner, just before
        os.close(descriptor)
        raise Taken
    return descriptor


class Lock:
    """A file that one process holds at a time. Released, it is gone; one that is there and not held counts for
    nothing.

    busy    what the second one is told.
    """

    def __init__(self, path: Path, busy: str) -> None:
        self.path = path
        while True:
            path.touch()
            try:
                self._descriptor = own(path)
                return
            except Taken:
                if path.exists():
                    raise UserError(busy) from None

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if _is_at(descriptor, self.path):  # else the folder around it was moved or removed
            self.path.unlink(missing_ok=True)
        os.close(descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
