"""Text -> a corpus: read, split, tokenized and counted once, by as many processes as are given."""

from __future__ import annotations

import hashlib
import json
import shutil
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, closing
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.atomic import replacing_folder
from elmokit.config import dump
from elmokit.errors import UserError, listed_paths
from elmokit.pretrain.corpus import (
    COUNTS,
    FORMAT,
    HELD_OUT,
    META,
    OFFSETS,
    TOKENS,
    TRAIN,
    TYPE_OFFSETS,
    TYPES,
    CorpusParts,
)
from elmokit.text.columns import Columns
from elmokit.text.corpus import BadLine, CorpusReader
from elmokit.text.tokens import Tokenizer, TokenizerConfig, make_tokenizer

_LINES_LOOKED_AT = 1000  # to see whether lines are sentences or paragraphs
_CHARACTERS_LOOKED_AT = 1 << 20
_BATCH_CHARACTERS = 1 << 18
_BATCH_LINES = 1 << 12


class ReadingProgress(NamedTuple):
    lines: int
    sentences: int
    tokens: int
    fraction: float | None  # of the sources; None where that cannot be known
    skipped: int  # lines that are not UTF-8, with on_bad_line="skip"


def prepare(
    sources: Sequence[str | Path],
    folder: str | Path,
    tokenizer: Tokenizer | TokenizerConfig | str,
    *,
    split: bool | None = None,
    held_out: float = 0.0,
    seed: int = 0,
    on_bad_line: BadLine = "refuse",
    columns: Columns | None = None,
    workers: int = 1,
    report: Callable[[ReadingProgress], None] = lambda progress: None,
    limit_tokens: int | None = None,
    overwrite: bool = False,
) -> CorpusParts:
    """Tokenize text into folder/train and, where lines were held out, folder/held-out.

    sources        files, folders, patterns, "-": see `expand_sources`.
    split          lines are paragraphs: split them into sentences. None decides by the first 1000 lines that
                   are not blank (or the first million characters): paragraphs, if more than one in four holds
                   more than one sentence.
    held_out       share of the lines that is kept from training, each chosen by a hash of (seed, its text): a line
                   is on the same side wherever it stands, and so are lines that are equal.
    columns        where the text of tables (.csv, .tsv, .jsonl) is.
    workers        processes that tokenize; the outcome is the same with any number.
    limit_tokens   the training part ends with the sentence that reaches this number.
    overwrite      replace an earlier preparation in `folder`; nothing else is ever replaced.

    The result is the same for the same text, settings and seed. Memory grows with the distinct tokens only.
    """
    folder = Path(folder)
    if not 0 <= held_out < 1:
        raise UserError(f"held_out is a share of the lines: expected 0 <= held_out < 1, found {held_out}")
    if workers < 1 or (limit_tokens is not None and limit_tokens < 1):
        raise UserError(f"expected 1 or more workers and tokens, found {workers=}, {limit_tokens=}")
    if folder.exists() and not (overwrite and (folder / TRAIN / META).is_file()):
        what = "is not a prepared corpus" if overwrite else "exists already"
        raise UserError(f"{folder} {what}: choose another name")
    config = tokenizer.config if isinstance(tokenizer, Tokenizer) else make_tokenizer(tokenizer).config
    reader = CorpusReader(sources, on_bad_line, columns)
    texts: Iterator[str] = (line.text for line in reader)
    if split is None:
        first = _first(texts)
        split = holds_paragraphs(first, make_tokenizer(config))
        texts = chain(first, texts)
    settings: dict[str, Any] = {
        "tokenizer": dump(config),
        "split": split,
        "held_out": held_out,
        "seed": seed,
        "on_bad_line": on_bad_line,
        **({} if columns is None else {"columns": dump(columns)}),
        "limit_tokens": limit_tokens,
        "sources": [str(path) for path in reader.paths],
    }
    with (
        replacing_folder(folder, overwrite) as temporary,
        _Part(temporary / TRAIN) as train,
        _Part(temporary / HELD_OUT) as held,
        closing(_encoded(_batches(texts, held_out, seed), config, split, workers)) as batches,
    ):
        read = 0
        for count, encoded, encoded_held in batches:
            read += count
            if limit_tokens is not None:
                encoded = encoded.until(limit_tokens - train.tokens)
            train.add(encoded)
            held.add(encoded_held)
            sentences, tokens = train.sentences + held.sentences, train.tokens + held.tokens
            report(ReadingProgress(read, sentences, tokens, reader.fraction(), reader.skipped))
            if limit_tokens is not None and train.tokens >= limit_tokens:
                break
        if not train.tokens:
            found = f"{read} lines without a token" if read else "no lines at all"
            if held.tokens:
                found = f"all {held.sentences} sentences were held out: hold out a smaller share, or none"
            raise UserError(f"nothing to train on in {listed_paths(settings['sources'])}: {found}")
        train.finish({**settings, "part": TRAIN})
        if held.tokens:
            held.finish({**settings, "part": HELD_OUT})
        else:
            held.remove()
    return CorpusParts.open(folder)


def _first(texts: Iterator[str]) -> list[str]:
    """The first lines, as many as it takes to judge, however long or blank."""
    first: list[str] = []
    seen = characters = 0
    for text in texts:
        first.append(text)
        seen, characters = seen + bool(text.strip()), characters + len(text) + 1
        if seen >= _LINES_LOOKED_AT or characters >= _CHARACTERS_LOOKED_AT:
            break
    return first


def holds_paragraphs(lines: Sequence[str], tokenizer: Tokenizer) -> bool:
    """Whether more than one line in four, of those that are not blank, holds more than one sentence."""
    several = [len(tokenizer.sentences(line)) > 1 for line in lines if line.strip()]
    return sum(several) > len(several) / 4


class _Encoded(NamedTuple):
    """Some sentences, with types numbered among themselves: cheap to send from one process to another."""

    types: list[str]
    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def until(self, tokens: int) -> _Encoded:
        """The first sentences, up to the one that reaches this number of tokens."""
        ends = np.cumsum(self.lengths)
        kept = int(np.searchsorted(ends, tokens)) + 1
        if kept >= len(self.lengths):
            return self
        ids = self.ids[: ends[kept - 1]]
        return _Encoded(self.types[: int(ids.max()) + 1], ids, self.lengths[:kept])


class _Batch(NamedTuple):
    lines: int  # blank ones count
    train: list[str]
    held_out: list[str]


def _batches(lines: Iterator[str], held_out: float, seed: int) -> Iterator[_Batch]:
    parts: tuple[list[str], list[str]] = ([], [])
    count = characters = 0
    for line in lines:
        count += 1
        if line.strip():
            parts[_is_held_out(line, held_out, seed)].append(line)
            characters += len(line)
        if characters >= _BATCH_CHARACTERS or count >= _BATCH_LINES:
            yield _Batch(count, *parts)
            parts, count, characters = ([], []), 0, 0
    if count:
        yield _Batch(count, *parts)


def _is_held_out(line: str, held_out: float, seed: int) -> bool:
    """By the text alone: whatever files are added, shuffled or renamed, no later model trains on it either."""
    if not held_out:
        return False
    drawn = hashlib.blake2b(f"{seed} {line.strip()}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(drawn, "little") < held_out * 2**64


def _encoded(
    batches: Iterator[_Batch], config: TokenizerConfig, split: bool, workers: int
) -> Generator[tuple[int, _Encoded, _Encoded], None, None]:
    encoder = _Encoder(config, split)
    if workers == 1:
        for batch in batches:
            yield encoder(batch)
        return
    # Spawned, not forked: the caller may have threads. At most two batches a worker are under way, or a fast
    # reader would fill the memory.
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    pending: deque[Future[tuple[int, _Encoded, _Encoded]]] = deque()
    try:
        for batch in batches:
            pending.append(pool.submit(encoder, batch))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class _Encoder:
    def __init__(self, config: TokenizerConfig, split: bool) -> None:
        self.tokenizer, self.split = make_tokenizer(config), split

    def __call__(self, batch: _Batch) -> tuple[int, _Encoded, _Encoded]:
        return batch.lines, self._encode(batch.train), self._encode(batch.held_out)

    def _encode(self, lines: list[str]) -> _Encoded:
        types: dict[str, int] = {}
        ids, lengths = array("I"), array("q")
        for line in lines:
            for sentence in self.tokenizer.sentences(line) if self.split else [line]:
                tokens = self.tokenizer.tokens(sentence)
                if tokens:
                    ids.extend([types.setdefault(token, len(types)) for token in tokens])
                    lengths.append(len(tokens))
        return _Encoded(list(types), np.array(ids, dtype=np.uint32), np.array(lengths, dtype=np.int64))


class _Part:
    """A part of a corpus in the making: everything but the dictionary of types goes to the disk at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.sentences = self.tokens = 0
        self._types: dict[str, int] = {}
        self._type_bytes = 0
        self._counts = array("q")
        self._files: dict[str, _HashedFile] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Part:
        for name in (TOKENS, OFFSETS, TYPES, TYPE_OFFSETS, COUNTS):
            self._files[name] = _HashedFile(self._stack.enter_context((self.folder / name).open("wb")))
        for name in (OFFSETS, TYPE_OFFSETS):
            self._files[name].write(np.zeros(1, dtype="<i8").tobytes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, encoded: _Encoded) -> None:
        known = len(self._types)
        table = np.array([self._types.setdefault(name, len(self._types)) for name in encoded.types], dtype="<u4")
        spelled = [name.encode("utf-8") for name, i in zip(encoded.types, table) if i >= known]
        self._files[TYPES].write(b"".join(spelled))
        self._write(TYPE_OFFSETS, self._type_bytes + np.cumsum([len(name) for name in spelled], dtype="<i8"))
        self._type_bytes += sum(len(name) for name in spelled)
        self._files[TOKENS].write(table[encoded.ids].tobytes())
        self._write(OFFSETS, self.tokens + np.cumsum(encoded.lengths))
        self._counts.frombytes(bytes(8 * len(spelled)))
        np.frombuffer(self._counts, dtype=np.int64)[table] += np.bincount(encoded.ids, minlength=len(table))
        self.sentences += len(encoded.lengths)
        self.tokens += len(encoded.ids)

    def finish(self, settings: dict[str, Any]) -> None:
        self._write(COUNTS, np.frombuffer(self._counts, dtype=np.int64))
        self._stack.close()
        meta = {
            "format": FORMAT,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "types": len(self._types),
            **settings,
            "files": {name: {"bytes": f.size, "sha256": f.digest.hexdigest()} for name, f in self._files.items()},
        }
        (self.folder / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def remove(self) -> None:
        self._stack.close()
        shutil.rmtree(self.folder)

    def _write(self, name: str, numbers: NDArray[np.int64]) -> None:
        self._files[name].write(numbers.astype("<i8").tobytes())


class _HashedFile:
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self.digest.update(content)
        self.size += len(content)
