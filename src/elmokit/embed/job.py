"""A text file -> a file of vectors: streaming, resumable, the same bytes however often it was interrupted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np

from elmokit import __version__
from elmokit.atomic import fsync, remove_leftovers, replacing
from elmokit.config import dump
from elmokit.embed.embedder import Elmo
from elmokit.embed.outputs import WRITERS, check_output, check_space
from elmokit.embed.pooling import DType, Pooling, WhichLayers
from elmokit.embed.reader import Array
from elmokit.embed.scratch import Record, Scratch, Written, is_written
from elmokit.embed.sentences import Sentence
from elmokit.embed.verification import verify
from elmokit.errors import UserError
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model.state import CarryState, StatePolicy, WarmState
from elmokit.progress import Progress, silent
from elmokit.text.batches import windows
from elmokit.text.columns import Column, Columns, Format, asked_columns
from elmokit.text.corpus import BadLine, LineReader, open_text
from elmokit.text.table import TableReader, one_line
from elmokit.text.tokens import Tokenizer

SECONDS_BETWEEN_COMMITS = 2.0
_NOTHING = np.zeros(0)  # a sentence's vectors before it is embedded


@dataclass(frozen=True)
class JobProgress(Progress):
    """Stages are skipping, embedding and writing; the fraction is of the input, or of the writing."""

    sentences: int = 0
    tokens: int = 0


class Summary(NamedTuple):
    sentences: int
    tokens: int
    resumed_at: int  # sentences that were there already
    skipped_lines: list[int]


class Embedder(Protocol):
    """What a job reads with: an `Elmo`, or a `Client` of one that is served elsewhere."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def layers(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def digest(self) -> str: ...

    @property
    def weights(self) -> str: ...

    @property
    def state(self) -> StatePolicy | None: ...

    @property
    def state_name(self) -> str: ...

    @property
    def batch_tokens(self) -> int: ...

    @property
    def window_tokens(self) -> int: ...

    def check(self, which_layers: WhichLayers, pooling: str | None, dtype: DType) -> None: ...

    def stream(
        self,
        sentences: Iterable[Sentence],
        *,
        layers: WhichLayers = "all",
        pooling: Pooling | None = None,
        dtype: DType = "float32",
    ) -> Iterator[Array]: ...


@dataclass(frozen=True)
class EmbedJob:
    """
    elmo          an `Elmo`, or a `Client` of a server: the output is the same.
    source        a text file, plain or compressed, or "-" for standard input: one sentence per line. Of a table
                  (.csv, .tsv, .jsonl), one per row; `line` in the output is then the row, from 1.
    output        .h5, .npz, .safetensors or .parquet.
    split         lines are paragraphs: split them into sentences first.
    on_bad_line   a line that is not UTF-8: refuse, skip or replace.
    columns       which column of a table the text is in, where that is not obvious.
    """

    elmo: Embedder
    source: str | Path
    output: Path
    layers: WhichLayers = "all"
    pooling: Pooling | None = None
    dtype: Literal["float32", "float16"] = "float32"
    split: bool = False
    on_bad_line: BadLine = "refuse"
    columns: Columns | None = None

    @property
    def scratch_folder(self) -> Path:
        """What was done so far; there until the output is."""
        return self.output.with_name(self.output.name + ".partial")

    def run(
        self,
        *,
        overwrite: bool = False,
        restart: bool = False,
        on_progress: Callable[[JobProgress], None] = silent,
    ) -> Summary:
        """Resumes what an interrupted run of the same job left in `scratch_folder`, unless `restart`."""
        self.check(overwrite)
        pooled = self.pooling is not None
        with (
            open_text(self.source, self.on_bad_line, self.columns) as lines,
            Scratch(
                self.scratch_folder, self._settings(lines), self._shape, self.dtype, pooled, restart
            ) as scratch,
        ):
            resumed_at = scratch.sentences
            written = not overwrite and is_written(self.scratch_folder, self.output)
            tokens = self._embed(lines, scratch, on_progress)
            if not written or scratch.sentences > resumed_at:
                self._write(scratch, tokens, on_progress)
            scratch.remove()
            return Summary(scratch.sentences, tokens, resumed_at, lines.skipped)

    def _embed(
        self, lines: LineReader | TableReader, scratch: Scratch, on_progress: Callable[[JobProgress], None]
    ) -> int:
        """Read, embed and append what is not there yet. Only whole windows are committed, and windows begin
        where they would have begun anyway: so an interruption changes no batch and no bit."""
        digest = hashlib.sha256()
        tokens = 0
        sentences = self._sentences(lines)
        for done in range(1, scratch.sentences + 1):
            record = next(sentences, None)
            if record is None:
                raise UserError(f"{self.source} is shorter than when {scratch.folder} was begun: use --restart")
            _absorb(digest, record)
            tokens += len(record.tokens)
            if done % 1000 == 0:
                on_progress(JobProgress.at("skipping", lines.fraction(), sentences=done, tokens=tokens))
        if scratch.sentences and digest.hexdigest() != scratch.resumed.input_digest:
            raise UserError(f"{self.source} is not the text that {scratch.folder} was begun with: use --restart")
        carry = self.elmo.state if isinstance(self.elmo.state, CarryState) else None
        if carry is not None:
            carry.state = scratch.resumed.state
        committed = time.monotonic()
        try:
            for window in windows(sentences, self.elmo.window_tokens, lambda record: len(record.tokens)):
                for record in self._embedded(window):
                    scratch.append(record)
                    _absorb(digest, record)
                    tokens += len(record.tokens)
                scratch.mark(digest.hexdigest(), carry.state if carry else None)
                on_progress(
                    JobProgress.at("embedding", lines.fraction(), sentences=scratch.sentences, tokens=tokens)
                )
                if time.monotonic() - committed > SECONDS_BETWEEN_COMMITS:
                    scratch.commit()
                    committed = time.monotonic()
        finally:
            scratch.commit()
        return tokens

    def _write(self, scratch: Scratch, tokens: int, on_progress: Callable[[JobProgress], None]) -> None:
        """The output takes its place when it has been read back."""
        total = max(1, scratch.sentences)

        def tell(done: int) -> None:
            on_progress(JobProgress("writing", done, total, sentences=done, tokens=tokens))

        scratch.check()
        check_space(scratch, self.output)
        with replacing(self.output) as temporary:
            WRITERS[self.output.suffix](scratch, temporary, self._metadata(), tell)
            verify(scratch, temporary, self.output)
            fsync(temporary)
            scratch.commit(Written.of(temporary))

    def _embedded(self, window: list[Record]) -> Iterator[Record]:
        arrays = self.elmo.stream(
            [record.tokens for record in window], layers=self.layers, pooling=self.pooling, dtype=self.dtype
        )
        for record, array in zip(window, arrays):
            if self.pooling is not None:
                array = array[None]
            elif array.ndim == 3:
                array = array.swapaxes(0, 1)  # [layers, T, D] -> [T, layers, D]: tokens can follow tokens
            yield record._replace(vectors=array)

    def _sentences(self, lines: LineReader | TableReader) -> Iterator[Record]:
        tokenizer = self.elmo.tokenizer
        for line in lines:
            for text in map(one_line, tokenizer.sentences(line.text) if self.split else [line.text]):
                yield Record(line.number, text, tokenizer.tokens(text), _NOTHING)

    def check(self, overwrite: bool = False) -> None:
        """Refuse before the work what could not be finished after it."""
        check_output(self.output)
        remove_leftovers(self.output)
        remove_leftovers(self.scratch_folder)
        self.elmo.check(self.layers, self.pooling, self.dtype)
        if self.output.exists() and not overwrite and not is_written(self.scratch_folder, self.output):
            raise UserError(f"{self.output} exists already: choose another name, or --overwrite it")
        if not self.output.parent.is_dir():
            raise UserError(f"no folder {self.output.parent}: make it first")

    def _settings(self, lines: LineReader | TableReader) -> dict[str, object]:
        """All that the vectors depend on, apart from the text."""
        elmo = self.elmo
        settings: dict[str, object] = {
            "model": elmo.digest,
            "tokenizer": dump(elmo.tokenizer.config),
            "layers": self._layers_name(),
            "pooling": self.pooling,
            "dtype": self.dtype,
            "split": self.split,
            "on_bad_line": self.on_bad_line,
            "state": elmo.state_name,
            "batch_tokens": elmo.batch_tokens,
            **({} if elmo.weights == "float32" else {"weights": elmo.weights}),
        }
        if isinstance(elmo.state, WarmState):
            settings["warm"] = hashlib.sha256(elmo.state.state.hidden.cpu().numpy().tobytes()).hexdigest()
        if isinstance(lines, TableReader):
            settings["table"] = lines.identity()
        return settings

    @property
    def _shape(self) -> tuple[int, ...]:
        """Of one vector."""
        every_layer = isinstance(self.layers, str) and self.layers == "all"
        return (self.elmo.layers, self.elmo.width) if every_layer else (self.elmo.width,)

    def _layers_name(self) -> str:
        if isinstance(self.layers, ScalarMix):
            shares = (self.layers.gamma * self.layers.shares()).tolist()
            return "mix " + ",".join(repr(share) for share in shares)
        if isinstance(self.layers, (str, int, np.integer)):
            return str(self.layers)
        return ",".join(repr(float(weight)) for weight in self.layers)

    def _metadata(self) -> dict[str, str]:
        return {
            "elmokit": __version__,
            "model": self.elmo.digest,
            "layers": self._layers_name(),
            "pooling": self.pooling or "none",
            "shape": "x".join(str(n) for n in self._shape),
        }


def embed_file(
    model: Embedder | str | Path,
    source: str | Path,
    output: str | Path,
    *,
    layers: WhichLayers = "all",
    pooling: Pooling | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    split: bool = False,
    on_bad_line: BadLine = "refuse",
    text_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    overwrite: bool = False,
    restart: bool = False,
    on_progress: Callable[[JobProgress], None] = silent,
) -> Summary:
    """`elmo embed` as one call: interrupted and called again, it resumes. Options as of EmbedJob and its run.

    model          a model's name or folder, an `Elmo`, or a `Client` of one that is served elsewhere.
    text_column    of a table: the texts' column, by its name or its number from 1, where it is not obvious.
    header         whether a table's first row has the names of its columns; found out where None.
    table_format   "csv", "tsv" or "jsonl", where the name of the file does not tell.
    """
    elmo = Elmo.from_pretrained(model) if isinstance(model, (str, Path)) else model
    columns = asked_columns(text_column, None, header, table_format)
    job = EmbedJob(elmo, source, Path(output), layers, pooling, dtype, split, on_bad_line, columns)
    return job.run(overwrite=overwrite, restart=restart, on_progress=on_progress)


def _absorb(digest: hashlib._Hash, record: Record) -> None:
    digest.update(f"{record.line}\0{record.text}\n".encode("utf-8", "surrogatepass"))
