"""Word vectors of word2vec, GloVe and fastText, and a biLM over them.

Files are .txt, .bin or .vec, plain, .gz or .xz. The format shows in the content, not in the name: a first line of
two whole numbers is a header, and what follows it is text or binary; without a header it is GloVe's text. Files
are read row by row into one array that grows, so that a file of several gigabytes is in memory once.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.recipe import ModelRecipe
from elmokit.model.seeding import seeded
from elmokit.model.shapes import shapes_only
from elmokit.model.word_encoder import WordEncoderConfig
from elmokit.text.vocabulary import BEGIN, END, SPECIALS, UNKNOWN, WordMapper

CHUNK = 1 << 20  # bytes read at one time, and more than any word or line of text takes
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
OTHER = {
    b"PK\x03\x04": "a zip archive: unpack it and give the file inside",
    b"\xba\x16\x4f\x2f": "a fastText model: give its .vec file instead",
}
HEADER = re.compile(rb"(\d{1,18})[ \t]+(\d{1,18})\s*")
NUMBER = re.compile(rb"\s[-+]?[\d.]+([eE][-+]?\d+)?(?!\S)")
CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # in no text
MOST_UNPACKED, SMALL = 16, 1 << 24  # bytes of vectors for a byte of a file, which has 1 to 4; and whatever it is
WIDEST = 1 << 16  # numbers of a vector: a header that promises more is damaged
# Files that have the sentence's ends and the unknown word name them in these ways.
SPELLINGS = ((BEGIN, "<s>"), (END, "</s>"), (UNKNOWN, "<unk>", "UNK"))
PADDING = 1
FIRST = PADDING + len(SPECIALS)  # the row of the first word: see WordMapper


class _Layout(NamedTuple):
    binary: bool
    promised: int | None  # rows, where a header says so
    width: int  # D, the numbers of a vector


class _Row(NamedTuple):
    where: str
    word: bytes
    vector: Sequence[float] | NDArray[np.float32]


def read_word_vectors(path: str | Path, *, limit: int | None = None) -> tuple[list[str], NDArray[np.float32]]:
    """The words in the file's order, each once (its first vector counts), and their vectors [V, D].

    `limit`: no more than so many words, the first ones; files list the frequent words first. Bytes that are
    not UTF-8, which some published files have in words, are read as U+FFFD.
    """
    return _read(Path(path), limit, spare=0)


def bilm_from_vectors(
    path: str | Path, recipe: ModelRecipe, *, limit: int | None = None, trainable: bool = False, seed: int = 0
) -> Checkpoint:
    """A fresh biLM over the file's vectors: the recipe's LSTMs and tokenizer, equal for an equal seed."""
    words, table = _read(Path(path), limit, spare=FIRST)
    vectors = torch.from_numpy(table)[FIRST:]
    width = vectors.shape[1]
    rows = {word: row for row, word in enumerate(words)}
    spread, generator = float(vectors.std(correction=0)), torch.Generator().manual_seed(seed)
    for row, spellings in enumerate(SPELLINGS, start=PADDING):
        vector = torch.randn(width, generator=generator) * spread
        known = [rows[word] for word in spellings if word in rows]
        if known:
            vector = vectors[known[0]]
        elif spellings[0] == UNKNOWN:
            vector = vectors.mean(dim=0)
        table[row] = vector.numpy()
    twice = [FIRST + rows[word] for word in SPECIALS if word in rows]  # they have their own rows now
    if twice:
        table = np.delete(table, twice, axis=0)

    lstm = recipe.model.lstm
    # The LSTMs are made beside the least table there is: the same ones however many words there are.
    with seeded(seed):
        state = BiLM(BiLMConfig(WordEncoderConfig(embedding=width), lstm)).state_dict()
    state["encoder.word_embedding.weight"] = torch.from_numpy(table)
    with shapes_only():
        bilm = BiLM(BiLMConfig(WordEncoderConfig(words=len(table), embedding=width, trainable=trainable), lstm))
    bilm.load_state_dict(state, assign=True)
    return Checkpoint(bilm.eval(), WordMapper(words), recipe.tokenizer)


def _read(path: Path, limit: int | None, spare: int) -> tuple[list[str], NDArray[np.float32]]:
    """Words, and an array with `spare` rows of zeros before the vectors."""
    if limit is not None and limit < 1:
        raise UserError(f"limit: expected 1 or more words, found {limit}")
    if not path.is_file():
        raise UserError(f"no file of word vectors {path}")
    try:
        with _open(path) as file:
            layout = _detect(file)
            file.seek(0)
            rows = _binary_rows(file, layout) if layout.binary else _text_rows(file, layout)
            return _collect(rows, layout, limit, spare, MOST_UNPACKED * path.stat().st_size + SMALL)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: not a whole compressed file ({error}): copy or download it again") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        magic = file.read(6)
    for start, what in OTHER.items():
        if magic.startswith(start):
            raise UserError(f"expected word vectors, found {what}")
    if magic.startswith(GZIP):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return lzma.open(path, "rb") if magic.startswith(XZ) else path.open("rb")


def _detect(file: IO[bytes]) -> _Layout:
    first = file.readline(CHUNK)
    fields = first.split()
    header = HEADER.fullmatch(first)
    if header:
        promised, width = int(header[1]), int(header[2])
        after = file.read(CHUNK)
        line, numbers = after.partition(b"\n")[0], after.partition(b" ")[2][: 4 * width]
        if width <= WIDEST and _parse(line, width):
            return _Layout(False, promised, width)
        if _is_text(numbers) and len(line.split()) == 2 and _parse(line, 1):
            return _Layout(False, None, 1)  # one number per word, and the first word is a number itself
        if width > WIDEST:
            raise UserError(f"line 1: expected vectors of no more than {WIDEST} numbers, found {_shown(first)}")
        # Floats can have the bytes of letters, but hardly those of a number between spaces as well.
        damaged_text = _is_text(numbers) and (NUMBER.search(line) or not numbers)
        return _Layout(not damaged_text, promised, width)
    if not fields:
        raise UserError("expected word vectors, found an empty file" if not first else "found an empty line 1")
    if not _parse(first, len(fields) - 1):
        raise UserError(f"line 1: expected a word and its numbers, or a header of two, found {_shown(first)}")
    if len(fields) - 1 > WIDEST:
        raise UserError(f"line 1: expected vectors of no more than {WIDEST} numbers, found {_shown(first)}")
    return _Layout(False, None, len(fields) - 1)


def _is_text(sample: bytes) -> bool:
    """Whether the bytes where numbers should be can be those of a text; most floats' cannot."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # the sample may end inside a character
    except UnicodeDecodeError:
        return False
    return not CONTROLS.search(sample)


def _parse(line: bytes, width: int) -> tuple[bytes, list[float]] | None:
    """A word and the line's last `width` fields, if numbers. GloVe has words with spaces in them.

    Bytes are split, not text: no-break and other Unicode spaces are words, or parts of words, here.
    """
    fields = line.rsplit(None, width)
    if width < 1 or len(fields) != width + 1:
        return None
    try:
        return fields[0], [float(field) for field in fields[1:]]
    except ValueError:
        return None


def _text_rows(file: IO[bytes], layout: _Layout) -> Iterator[_Row]:
    number = 0
    if layout.promised is not None:
        file.readline()
        number = 1
    empty = None
    while line := file.readline(CHUNK):
        number += 1
        if not line.strip():
            empty = empty or number
            continue
        parsed = _parse(line, layout.width) if empty is None else None
        # A word with spaces is a word; one that ends in a number is a line with a number too many.
        if parsed is None or (len(parsed[0].split()) > 1 and _parse(parsed[0], 1)):
            raise UserError(
                f"line {empty or number}: expected a word and {layout.width} numbers, "
                f"found {_shown(b'' if empty else line)}"
            )
        yield _Row(f"line {number}", *parsed)


def _binary_rows(file: IO[bytes], layout: _Layout) -> Iterator[_Row]:
    file.readline()
    size = 4 * layout.width
    buffer, at = b"", 0
    for number in range(1, (layout.promised or 0) + 1):
        while (space := buffer.find(b" ", at)) < 0 or len(buffer) - space - 1 < size:
            more = file.read(max(CHUNK, size))
            if not more or (space < 0 and len(buffer) - at > CHUNK):
                raise UserError(
                    f"vector {number} of {layout.promised}: expected a word, a space and {size} bytes, "
                    f"found {len(buffer) - at} bytes{'' if more else ' to the end of the file'}: "
                    "copy or download it again"
                )
            buffer, at = buffer[at:] + more, 0
        # word2vec itself ends each vector with a newline, others do not
        word = buffer[at:space].lstrip(b"\n")
        yield _Row(f"vector {number}", word, np.frombuffer(buffer, "<f4", layout.width, space + 1))
        at = space + 1 + size
    left = len((buffer[at:] + file.read(CHUNK)).strip())
    if left:
        raise UserError(f"expected {layout.promised} vectors, as the header says, found {left} bytes after them")


def _collect(
    rows: Iterator[_Row], layout: _Layout, limit: int | None, spare: int, most_bytes: int
) -> tuple[list[str], NDArray[np.float32]]:
    words: dict[str, None] = {}
    vectors = np.zeros((spare + 1024, layout.width), dtype=np.float32)
    count = 0
    for row in rows:
        count += 1
        if layout.promised is not None and count > layout.promised:
            raise UserError(f"{row.where}: expected {layout.promised} vectors, as the header says, found more")
        word = row.word.decode("utf-8", "replace")
        if word in words:
            continue
        at = spare + len(words)
        if at == len(vectors):
            if vectors.nbytes > most_bytes:
                raise UserError(
                    f"{row.where}: {vectors.nbytes:,} bytes of vectors so far, {MOST_UNPACKED} times the file or "
                    "more: word vectors do not pack so well, distrust it (or read fewer by a limit)"
                )
            # resize, not a copy: the system moves the pages, if it must move them
            vectors.resize((at + at // 2, layout.width), refcheck=False)
        with np.errstate(over="ignore"):  # a number too large for float32 is reported below
            vectors[at] = row.vector
        if not np.isfinite(vectors[at]).all():
            raise UserError(f"{row.where}: {word!r}: expected finite numbers, found NaN or an infinite one")
        words[word] = None
        if len(words) == limit:
            break
    if len(words) != limit and layout.promised is not None and count < layout.promised:
        raise UserError(f"expected {layout.promised} vectors, as the header says, found {count}")
    if not words:
        raise UserError("expected word vectors, found none")
    vectors.resize((spare + len(words), layout.width), refcheck=False)
    return list(words), vectors


def _shown(line: bytes) -> str:
    """A line in an error message: how many fields, and how it begins."""
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    return f"{len(line.split())} fields: {text[:60]!r}{'...' if len(text) > 60 else ''}"
