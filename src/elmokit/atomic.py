"""Files and folders that are either whole or not there: temporary folder, fsync, rename.

What is being made lies in .NAME.xxxxxxxx.tmp/ beside it, which its process owns (lock.py). What a killed one left
is removed by the next that makes the same.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.lock import Taken, own

_NEW, _OLD = "new", "old"
_LEFTOVER = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tmp", re.DOTALL)  # the random part is tempfile's


def write_file(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path near `path` to write to; it takes the place of `path` if the block ends well."""
    remove_leftovers(path)
    with _workshop(path) as folder:
        temporary = folder / path.name
        temporary.touch()
        yield temporary
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)


@contextmanager
def replacing_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `path` if the block ends well.

    An existing folder is replaced only on request, and only at the end: it is moved aside, the new one
    takes its name, and then it is deleted. If moving in fails, the old one is moved back.
    """
    path = Path(os.path.abspath(path))
    remove_leftovers(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already: choose another name, or ask to overwrite it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _workshop(path) as folder:
        temporary, aside = folder / _NEW, folder / _OLD
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            fsync(file)
        fsync(temporary)
        if path.exists():
            path.rename(aside)
        try:
            temporary.rename(path)
        except OSError:
            if aside.exists():
                aside.rename(path)
            raise
        fsync(path.parent)


def remove_folder(path: Path) -> None:
    """It is gone at once for all who look, whatever happens while its files are deleted."""
    with _workshop(path) as folder:
        path.rename(folder / path.name)


def remove_leftovers(path: Path) -> None:
    """What killed processes left on their way to `path`. What a living one owns stays."""
    _remove(path.parent, path.name)


def remove_all_leftovers(folder: Path) -> None:
    """The same for whatever was to come into a folder that is ours alone."""
    _remove(folder, None)


def _remove(folder: Path, name: str | None) -> None:
    if not folder.is_dir():
        return
    for leftover in sorted(folder.glob(".*.tmp")):
        match = _LEFTOVER.fullmatch(leftover.name)
        if match is None or (name is not None and match[1] != name):
            continue
        try:
            owned = own(leftover)
        except (Taken, OSError):
            continue
        if owned is None:
            continue
        try:
            old, path = leftover / _OLD, folder / match[1]
            if old.is_dir() and not path.exists():  # killed between the two renames
                old.rename(path)
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:  # as 0.1.0 wrote them
                leftover.unlink(missing_ok=True)
        finally:
            os.close(owned)


@contextmanager
def _workshop(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, this process' own, removed with all that is in it at the end."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
        try:
            owned = own(folder)
            break
        except Taken:  # another process took it for a leftover before it was ours
            shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if owned is not None:
            os.close(owned)


def fsync(path: Path) -> None:
    """Have the file or folder on the disk, not only in the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
