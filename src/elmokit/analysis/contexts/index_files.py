"""The files of an index of contexts, whole or not there. `index.py` searches them.

    index.json         what it was made of and with, and every other file's size
    sentences.jsonl    the tokens of one sentence per line
    tokens.lance       LanceDB's table: one row per token, with the byte where its sentence begins, its place
                       there, and a column of unit vectors for each layer, so that the dot product is the cosine

Shapes: L layers kept, W words of a sentence, N vectors, D width.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.analysis.contexts.corpus import Context
from elmokit.atomic import remove_leftovers, replacing_folder
from elmokit.checkpoint import config_digest
from elmokit.config import build, dump, read_json, shown
from elmokit.errors import UserError, listed_paths
from elmokit.progress import OnProgress, Progress, silent
from elmokit.text.tokens import TokenizerConfig

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "elmokit context index", 1
FACTS, SENTENCES, TOKENS = "index.json", "sentences.jsonl", "tokens"
EXACT_BELOW = 50_000
PARTITION = 4096  # vectors in one, on average
_IN_FILE = {"which_layers": "layers"}  # names that index.json has otherwise
_IN_CODE = {theirs: ours for ours, theirs in _IN_FILE.items()}
BUFFER_BYTES = 1 << 26  # vectors in memory before they are written; a fragment of the table each


@dataclass(frozen=True)
class IndexFacts:
    """What an index was made of and with."""

    model: str  # the digest of the function from tokens to vectors
    tokenizer: TokenizerConfig
    which_layers: tuple[int, ...]
    width: int
    sources: tuple[str, ...]
    split: bool = False  # the corpus' lines were paragraphs
    everything: bool = False  # with punctuation and numbers
    sentences: int = 0
    vectors: int = 0
    partitions: int = 0  # 0: every vector is compared

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str) -> IndexFacts:
        return build(cls, {_IN_CODE.get(name, name): value for name, value in table.items()}, where)

    def to_table(self) -> dict[str, Any]:
        return {_IN_FILE.get(name, name): value for name, value in dump(self).items()}


def read_facts(folder: str | Path) -> IndexFacts:
    """What an index was made with. A folder that is none, or is not whole, is refused."""
    folder = Path(folder)
    path = folder / FACTS
    if not path.exists():
        raise UserError(f"{folder} is not an index: it has no {FACTS}. `elmo index build` makes one")
    table = read_json(path)
    if table.get("format") != FORMAT or table.get("version") != VERSION:
        raise UserError(
            f"{path}: expected {FORMAT!r} of version {VERSION}, found {shown(table.get('format'))} of version "
            f"{shown(table.get('version'))}: build the index again with this elmokit"
        )
    if table.get("sha256") != config_digest(table):
        raise UserError(f"{path}: its digest is not the one inside it: the file was changed or damaged")
    files, facts = table.get("files"), table.get("facts")
    if not isinstance(files, dict) or not isinstance(facts, dict):
        raise UserError(f"{path}: expected tables 'files' and 'facts', found {shown(files)} and {shown(facts)}")
    for name, size in files.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            what = "it is missing" if found is None else f"found {found:,}"
            raise UserError(f"{file}: expected {shown(size)} bytes, {what}: copy or build the index again")
    return IndexFacts.from_table(facts, str(path))


def write_index(
    folder: Path,
    facts: IndexFacts,
    contexts: Iterable[Context],
    *,
    exact_below: int = EXACT_BELOW,
    overwrite: bool = False,
    on_progress: OnProgress = silent,
) -> IndexFacts:
    """Make the folder from contexts that come one at a time; it takes its name only when it is whole."""
    lancedb = lancedb_module()
    _check_target(folder, overwrite)
    with replacing_folder(folder, overwrite) as temporary, _refusals(folder):
        writer = _Writer(lancedb.connect(str(temporary)), facts)
        with (temporary / SENTENCES).open("wb") as file:
            for context in contexts:
                writer.add(context, file.tell())
                line = json.dumps(context.tokens, ensure_ascii=False) + "\n"
                file.write(line.encode("utf-8", "backslashreplace"))
        writer.flush()
        if not writer.vectors:
            raise UserError(f"{listed_paths(facts.sources)}: expected text with words to index, found none")
        partitions = 0 if writer.vectors < exact_below else -(-writer.vectors // PARTITION)
        if partitions:
            _partition(writer.table, facts.which_layers, facts.width, partitions, on_progress)
        facts = replace(facts, sentences=writer.sentences, vectors=writer.vectors, partitions=partitions)
        _write_facts(temporary, facts)
    return facts


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """What the machine refuses, such as a full disk, as the OSError that it is: LanceDB only writes of it."""
    try:
        yield
    except RuntimeError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from None


class _Writer:
    """Rows of the table, written whenever the buffer is full."""

    def __init__(self, database: Any, facts: IndexFacts) -> None:
        import pyarrow as pa

        vector = pa.list_(pa.float32(), facts.width)
        columns = [
            ("sentence", pa.int64()),
            ("place", pa.int64()),
            *((column(layer), vector) for layer in facts.which_layers),
        ]
        self.schema: pa.Schema = pa.schema(columns)
        self.table = database.create_table(TOKENS, schema=self.schema)
        self.sentences = self.vectors = 0
        self._width = facts.width
        self._most = max(1, BUFFER_BYTES // (4 * facts.width * len(facts.which_layers)))
        self._clear()

    def _clear(self) -> None:
        self._held = 0
        self._begins: list[int] = []
        self._places: list[int] = []
        self._layers: list[NDArray[np.float32]] = []

    def add(self, context: Context, begin: int) -> None:
        self.sentences += 1
        self._held += len(context.places)
        self._begins += [begin] * len(context.places)
        self._places += context.places
        self._layers.append(context.layers)
        if self._held >= self._most:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        import pyarrow as pa

        layers = np.concatenate(self._layers, axis=1)  # [L, N, D]
        columns = [pa.array(self._begins, pa.int64()), pa.array(self._places, pa.int64())]
        columns += [
            pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self._width) for vectors in layers
        ]
        self.table.add(pa.table(columns, schema=self.schema))
        self.vectors += self._held
        self._clear()


def _partition(
    table: Any, which_layers: Sequence[int], width: int, partitions: int, on_progress: OnProgress
) -> None:
    from lancedb.index import IvfPq

    for done, layer in enumerate(which_layers):
        on_progress(Progress("partitioning", done, len(which_layers)))
        config = IvfPq(
            distance_type="dot",
            num_partitions=partitions,
            num_sub_vectors=width // 8 if width % 8 == 0 else width // 2,  # a byte for each 8 numbers
            max_iterations=10,
            sample_rate=32,
        )
        table.create_index(column(layer), config=config)
    on_progress(Progress("partitioning", len(which_layers), len(which_layers)))


def _write_facts(folder: Path, facts: IndexFacts) -> None:
    files = {
        file.relative_to(folder).as_posix(): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    table = {
        "format": FORMAT,
        "version": VERSION,
        "elmokit": __version__,
        "facts": facts.to_table(),
        "files": files,
    }
    text = json.dumps({**table, "sha256": config_digest(table)}, ensure_ascii=False, indent=1) + "\n"
    (folder / FACTS).write_bytes(text.encode("utf-8", "backslashreplace"))


def _check_target(folder: Path, overwrite: bool) -> None:
    remove_leftovers(folder)
    if not folder.exists():
        return
    if not overwrite:
        raise UserError(f"{folder} exists already: choose another name, or overwrite it (--overwrite)")
    if not (folder / FACTS).is_file():
        raise UserError(f"{folder} is no index: only an index is overwritten. Choose another name")


def column(layer: int) -> str:
    return f"layer_{layer}"


def lancedb_module() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings are not for our users; read once, on import
    try:
        import lancedb
    except ImportError:
        raise UserError("an index on disk needs the extra: pip install 'elmokit[index]'") from None
    return lancedb
