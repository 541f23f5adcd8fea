"""What a job has done so far, on disk: a folder beside the output that a killed job resumes from.

Vectors and sentences are only ever appended. journal.json, replaced atomically, says how much of them
counts; whatever lies behind that when a job is resumed was half written, and is cut off.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from elmokit.atomic import fsync, remove_all_leftovers, remove_folder, write_file
from elmokit.errors import UserError
from elmokit.lock import Lock
from elmokit.model.bilm import BiLMState

JOURNAL, VECTORS, SENTENCES, LOCK = "journal.json", "vectors.bin", "sentences.jsonl", "lock"


class Record(NamedTuple):
    """One embedded sentence."""

    line: int  # of the input, from 1
    text: str
    tokens: list[str]
    vectors: NDArray[Any]  # [T, ...] or, pooled, [1, ...]


class Mark(NamedTuple):
    sentences: int
    sizes: dict[str, int]
    input_digest: str  # of the input up to there
    state: BiLMState | None  # what is carried on from there, under that policy


class Written(NamedTuple):
    """A file's marks that stay when it is moved into its place."""

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Written:
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


class Scratch:
    """
    settings   everything that the output depends on; a folder made with other settings is refused.
    shape      of one vector: [D] or [layers, D].
    restart    forget what is there; a folder that another process has is refused all the same.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        shape: tuple[int, ...],
        dtype: str,
        pooled: bool,
        restart: bool = False,
    ) -> None:
        self.folder, self.settings, self.shape, self.dtype, self.pooled = folder, settings, shape, dtype, pooled
        self.sentences = 0
        self._mark = Mark(0, {VECTORS: 0, SENTENCES: 0}, "", None)
        try:
            self._lock = _claim(folder)
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from None
        try:
            if restart:
                self._forget()
            remove_all_leftovers(folder)
            if (folder / JOURNAL).is_file():
                self._resume()
            else:
                for name in (VECTORS, SENTENCES):
                    (folder / name).write_bytes(b"")
        except BaseException:
            self._lock.release()
            raise
        self._vectors: BinaryIO = (folder / VECTORS).open("ab")
        self._sentences: BinaryIO = (folder / SENTENCES).open("ab")

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for file in (self._vectors, self._sentences):
                try:
                    file.close()
                except OSError:  # what a full disk did not take is not in the journal either
                    if kind is None:
                        raise
        finally:
            self._lock.release()

    def append(self, record: Record) -> None:
        self._vectors.write(np.ascontiguousarray(record.vectors).data)
        entry = {"line": record.line, "text": record.text, "tokens": record.tokens}
        self._sentences.write((json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
        self.sentences += 1

    def mark(self, input_digest: str, state: BiLMState | None = None) -> None:
        """A place where the work may be resumed: `commit` saves up to here, never further."""
        sizes = {VECTORS: self._vectors.tell(), SENTENCES: self._sentences.tell()}
        self._mark = Mark(self.sentences, sizes, input_digest, state)

    def commit(self, written: Written | None = None) -> None:
        """From here on, what was appended before the last mark survives whatever happens.

        written    the output, which is whole and about to take its place.
        """
        for file in (self._vectors, self._sentences):
            file.flush()
            os.fsync(file.fileno())
        mark = self._mark
        state_name = None
        if mark.state is not None:
            state_name = f"state-{mark.sentences}.safetensors"
            tensors = {name: part.cpu().contiguous() for name, part in mark.state._asdict().items()}
            write_file(self.folder / state_name, save(tensors))
        journal = {
            "settings": dict(self.settings),
            "sentences": mark.sentences,
            "bytes": mark.sizes,
            "input_digest": mark.input_digest,
            "state": state_name,
            "written": written,
        }
        write_file(self.folder / JOURNAL, json.dumps(journal, indent=1).encode())
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != state_name:
                old.unlink(missing_ok=True)

    def check(self) -> None:
        """Refuse to make an output of files that are not what was appended to them."""
        for name, size in self._mark.sizes.items():
            path = self.folder / name
            found = path.stat().st_size if path.is_file() else 0
            if found != size:
                raise UserError(
                    f"{path}: {size:,} bytes were written, found {found:,}: begin again with --restart"
                )

    def records(self) -> Iterator[Record]:
        """All that was committed, from the beginning, one at a time."""
        self._vectors.flush()
        self._sentences.flush()
        size = int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize
        with (self.folder / VECTORS).open("rb") as vectors, (self.folder / SENTENCES).open("rb") as sentences:
            for raw in sentences:
                entry = json.loads(raw)
                count = 1 if self.pooled else len(entry["tokens"])
                array = np.frombuffer(vectors.read(count * size), dtype=self.dtype).reshape(count, *self.shape)
                yield Record(entry["line"], entry["text"], entry["tokens"], array)

    def remove(self) -> None:
        """While it is locked: nobody else can have begun in it."""
        self._vectors.close()
        self._sentences.close()
        remove_folder(self.folder)
        self._lock.release()

    @property
    def resumed(self) -> Mark:
        """Where the work stands: the last mark."""
        return self._mark

    @property
    def vectors_path(self) -> Path:
        return self.folder / VECTORS

    @property
    def sentences_path(self) -> Path:
        return self.folder / SENTENCES

    def _forget(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

    def _resume(self) -> None:
        try:
            journal = json.loads((self.folder / JOURNAL).read_bytes())
            settings, sizes = journal["settings"], journal["bytes"]
            self.sentences, name = journal["sentences"], journal["state"]
            state = BiLMState(**load_file(self.folder / name)) if name else None
        except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
            raise UserError(f"{self.folder} is damaged ({error}): begin again with --restart") from None
        changed = [key for key in self.settings if settings.get(key) != self.settings[key]]
        if changed:
            was = ", ".join(f"{key} {settings.get(key)!r}, now {self.settings[key]!r}" for key in changed)
            raise UserError(
                f"{self.folder} was begun with other settings ({was}): use the same ones to resume, "
                f"or --restart to begin again"
            )
        for name, size in sizes.items():
            path = self.folder / name
            found = path.stat().st_size if path.is_file() else 0
            if found < size:
                raise UserError(f"{path}: expected {size} bytes, found {found}: begin again with --restart")
            os.truncate(path, size)
            fsync(path)
        self._mark = Mark(self.sentences, sizes, journal["input_digest"], state)


def is_written(folder: Path, output: Path) -> bool:
    """Whether `output` is what the job of this folder made, killed before it could remove the folder."""
    try:
        journal = json.loads((folder / JOURNAL).read_bytes())
        return output.is_file() and journal.get("written") == list(Written.of(output))
    except (OSError, ValueError, AttributeError):
        return False


def _claim(folder: Path) -> Lock:
    while True:
        folder.mkdir(exist_ok=True)
        try:
            return Lock(folder / LOCK, f"another process is writing to {folder}: wait for it, or stop it")
        except FileNotFoundError:  # a job that is done has just removed it
            continue
