"""A corpus, tokenized once, on disk: what training reads, memory-mapped, as often as it likes.

A folder with

    tokens.u32        type ids, sentence after sentence, no boundaries
    offsets.i64       sentence i is tokens[offsets[i]:offsets[i + 1]]
    types.utf8        the distinct tokens, in order of first occurrence, one after the other
    types.i64         type t is the bytes [types[t], types[t + 1]) of them
    counts.i64        how often each type occurs
    meta.json         counts, settings, and each file's size and SHA-256

All numbers are little-endian. preparation.py writes it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.config import build, present_names, read_json
from elmokit.errors import UserError
from elmokit.text.tokens import TokenizerConfig

FORMAT = 1
META, TRAIN, HELD_OUT = "meta.json", "train", "held-out"
TOKENS, OFFSETS, TYPES, TYPE_OFFSETS, COUNTS = "tokens.u32", "offsets.i64", "types.utf8", "types.i64", "counts.i64"


class Corpus:
    """Sentences as arrays of type ids."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder, self.meta = folder, meta
        self.sentences: int = meta["sentences"]
        self.tokens: int = meta["tokens"]
        self.token_ids: NDArray[np.uint32] = _mapped(folder / TOKENS, "<u4")
        self.offsets: NDArray[np.int64] = _mapped(folder / OFFSETS, "<i8")
        self.counts: NDArray[np.int64] = _mapped(folder / COUNTS, "<i8")

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Refuses what is not whole; `verify` also looks into the files."""
        folder = Path(folder)
        if not (folder / META).is_file():
            hint = f": did you mean {folder / TRAIN}?" if (folder / TRAIN / META).is_file() else ""
            raise UserError(f"{folder} is not a prepared corpus: no {META}{hint}")
        meta = present_names(read_json(folder / META))
        if meta.get("format") != FORMAT:
            raise UserError(
                f"{folder}: expected a prepared corpus of format {FORMAT}, found {meta.get('format')!r}: "
                f"prepare it again"
            )
        try:
            sentences, tokens, types = meta["sentences"], meta["tokens"], meta["types"]
            expected = {name: file["bytes"] for name, file in meta["files"].items()}
            fixed = {
                TOKENS: 4 * tokens,
                OFFSETS: 8 * (sentences + 1),
                TYPE_OFFSETS: 8 * (types + 1),
                COUNTS: 8 * types,
            }
            if {**expected, **fixed} != expected or TYPES not in expected:
                raise UserError("its counts do not agree")
        except (KeyError, TypeError, AttributeError, UserError) as error:
            raise UserError(f"{folder / META} is damaged ({error}): prepare the corpus again") from None
        for name, size in expected.items():
            found = (folder / name).stat().st_size if (folder / name).is_file() else None
            if found != size:
                seen = "no such file" if found is None else f"{found} bytes"
                raise UserError(
                    f"{folder} is damaged: {name}: expected {size} bytes, found {seen}: prepare the corpus again"
                )
        return cls(folder, meta)

    def sentence(self, i: int) -> NDArray[np.uint32]:
        return self.token_ids[self.offsets[i] : self.offsets[i + 1]]

    def words(self, i: int) -> list[str]:
        """The tokens of a sentence."""
        return [self.types[t] for t in self.sentence(i)]

    @cached_property
    def types(self) -> list[str]:
        text = (self.folder / TYPES).read_bytes()
        ends = _mapped(self.folder / TYPE_OFFSETS, "<i8").tolist()
        return [text[start:end].decode("utf-8") for start, end in pairwise(ends)]

    @property
    def tokenizer(self) -> TokenizerConfig:
        return build(TokenizerConfig, self.meta["tokenizer"], "tokenizer")

    @cached_property
    def digest(self) -> str:
        """Of the sentences, wherever they came from and wherever they lie."""
        files = sorted((name, file["sha256"]) for name, file in self.meta["files"].items())
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()

    def verify(self) -> None:
        """Read every byte; UserError where one is not what was written."""
        for name, file in self.meta["files"].items():
            digest = hashlib.sha256()
            with (self.folder / name).open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            if digest.hexdigest() != file["sha256"]:
                raise UserError(f"{self.folder} is damaged: {name} has changed since: prepare the corpus again")


class CorpusParts(NamedTuple):
    """What is trained on, and what was held out of it, if anything was."""

    train: Corpus
    held_out: Corpus | None

    @classmethod
    def open(cls, folder: str | Path) -> CorpusParts:
        train, held_out = Path(folder, TRAIN), Path(folder, HELD_OUT)
        return cls(Corpus.open(train), Corpus.open(held_out) if held_out.is_dir() else None)


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    # As a plain array: indexing an np.memmap goes through Python each time.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))
