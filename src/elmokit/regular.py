"""Files that others made, read only if they are regular files and no larger than expected.

A pipe or a device in a model's folder may never end; a file may be larger than the memory. Both are refused before
a byte is read.
"""

from __future__ import annotations

import stat
from pathlib import Path

from elmokit.errors import UserError

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def regular_size(path: Path) -> int:
    """The bytes of a regular file, links followed; an OSError where there is none."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        kind = KINDS.get(stat.S_IFMT(facts.st_mode), "a device")
        raise UserError(f"{path}: expected a regular file, found {kind}")
    return facts.st_size


def read_regular(path: Path, most: int) -> bytes:
    """All of a regular file that has no more than `most` bytes."""
    size = regular_size(path)
    if size > most:
        raise UserError(f"{path}: expected no more than {most:,} bytes, found {size:,}: is it another file?")
    return path.read_bytes()
