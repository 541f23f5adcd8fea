"""Files and folders that are either whole or not there: temporary name, fsync, rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` if the block ends well."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp made it private
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `path` if the block ends well.

    An existing folder is replaced only on request, and only at the end: it is moved aside, the new one
    takes its name, and then it is deleted. If moving in fails, the old one is moved back.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already: choose another name, or ask to overwrite it")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            fsync(file)
        temporary.chmod(0o777 & ~_umask())
        fsync(temporary)
        aside = temporary.with_suffix(".old")
        if path.exists():
            path.rename(aside)
        try:
            temporary.rename(path)
        except OSError:
            if aside.exists():
                aside.rename(path)
            raise
        fsync(path.parent)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def fsync(path: Path) -> None:
    """Have the file or folder on the disk, not only in the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
