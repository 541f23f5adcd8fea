"""What the native library is compiled from, as a digest. For setup.py too: nothing of elmokit is imported."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sources_digest(folder: Path) -> str:
    """16 hexadecimal digits of all C++ files of the folder: their names and what is in them."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cpp", ".h"):
            content = path.read_bytes().replace(b"\r\n", b"\n")  # git may check out either ending
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
