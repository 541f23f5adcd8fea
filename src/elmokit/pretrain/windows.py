"""A corpus -> windows of contiguous streams, for both directions of a language model.

Ids here are type ids moved up by two: 0 is <S>, 1 is </S>, type t is t + 2. Each row is an endless stream,
forward `<S> w1 .. wn </S> <S> ..`, backward the same sentences in the same order, each one reversed:
`</S> wn .. w1 <S> </S> ..`. The target of a step is the next id of its stream, or -1 where the next id begins
a new sentence: what follows a sentence is chance, and nothing to learn.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UserError

BEGIN, END, SHIFT = 0, 1, 2
NO_TARGET = -1

Ids = NDArray[np.int64]
State = dict[str, Ids]


class Sentences(Protocol):
    """A corpus: sentence i is token_ids[offsets[i]:offsets[i + 1]]."""

    @property
    def token_ids(self) -> NDArray[np.uint32]: ...

    @property
    def offsets(self) -> NDArray[np.int64]: ...


class Window(NamedTuple):
    forward_inputs: Ids  # [rows, steps], as are all the arrays
    forward_targets: Ids
    backward_inputs: Ids
    backward_targets: Ids
    begins: NDArray[np.bool_]  # where a sentence begins; the same in both directions
    tokens: int  # targets that are not -1; as many in each direction
    epoch: float  # how often the slowest row's share of the corpus has been read when this window ends


class WindowStream:
    """Window after window, without end.

    Row r's k-th sentence is number r + rows * k of an endless sequence: the corpus over and over, in an order
    drawn from (seed, epoch), or as it stands with shuffle=False.

    first_row, last_row   the rows [first_row, last_row) that this stream makes, of `rows` in all: each rank of a
                          distributed run takes its own.
    """

    def __init__(
        self,
        corpus: Sentences,
        *,
        rows: int,
        steps: int,
        seed: int = 0,
        shuffle: bool = True,
        first_row: int = 0,
        last_row: int | None = None,
    ) -> None:
        last_row = rows if last_row is None else last_row
        if rows < 1 or steps < 1 or seed < 0:
            raise UserError(
                f"expected 1 or more rows and steps and a seed of 0 or more, found {rows=}, {steps=}, {seed=}"
            )
        if not 0 <= first_row < last_row <= rows:
            raise UserError(f"expected 0 <= first_row < last_row <= {rows} rows, found {first_row=}, {last_row=}")
        # Plain arrays: indexing an np.memmap goes through Python each time.
        self._token_ids, self._offsets = np.asarray(corpus.token_ids), np.asarray(corpus.offsets)
        self._size = len(self._offsets) - 1
        if self._size < 1:
            raise UserError("expected a corpus of one sentence or more, found none")
        self.rows, self.steps, self.seed, self.shuffle = rows, steps, seed, shuffle
        self._row = np.arange(first_row, last_row, dtype=np.int64)
        self._sentence = np.zeros_like(self._row)  # k, of the sentence that the next step is in
        self._offset = np.zeros_like(self._row)  # of that step inside it; <S> and </S> count
        self._orders: dict[int, NDArray[np.uint32] | NDArray[np.int64]] = {}

    def __iter__(self) -> Iterator[Window]:
        return self

    def __next__(self) -> Window:
        steps, rows = self.steps, len(self._row)
        # Enough sentences to fill the window, a step after it for the last target, and one more to see whether
        # that one ends its sentence; even sentences without words are two ids long.
        ahead = np.arange((steps + 1) // 2 + 2)
        sentences = self._numbers(self._row[:, None] + self.rows * (self._sentence[:, None] + ahead))
        first = self._offsets.take(sentences)
        lengths = self._offsets.take(sentences + 1) - first
        ends = np.cumsum(lengths + 2, axis=1) - self._offset[:, None]  # in steps of this window
        starts = ends - lengths - 2

        # begins[:, t]: a sentence begins at step t; the last column collects what lies beyond.
        begins = np.zeros((rows, steps + 3), dtype=np.bool_)
        np.put_along_axis(begins, np.minimum(ends, steps + 2), True, axis=1)
        which = np.cumsum(begins[:, : steps + 1], axis=1)
        begins[:, 0] = self._offset == 0
        is_first, is_last = begins[:, : steps + 1], begins[:, 1 : steps + 2]

        # Forward, step t of a sentence that starts at s is its word t - s - 1; backward, its n-th minus that.
        at = which + ahead.size * np.arange(rows)[:, None]
        step = np.arange(steps + 1)
        forward = self._look_up((first - starts - 1).take(at) + step)
        backward = self._look_up((first + starts + lengths).take(at) - step)
        forward[is_first], forward[is_last] = BEGIN, END
        backward[is_first], backward[is_last] = END, BEGIN

        self._offset = step[-1] - starts[np.arange(rows), which[:, -1]]
        self._sentence = self._sentence + which[:, -1]
        junctions = is_first[:, 1:]
        return Window(
            forward[:, :-1],
            np.where(junctions, NO_TARGET, forward[:, 1:]),
            backward[:, :-1],
            np.where(junctions, NO_TARGET, backward[:, 1:]),
            is_first[:, :-1].copy(),
            int(junctions.size - np.count_nonzero(junctions)),
            float(self._sentence.min() * self.rows / self._size),
        )

    def state(self) -> State:
        """Where each row stands. States of several ranks, joined key by key, are a state of all their rows."""
        return {"row": self._row.copy(), "sentence": self._sentence.copy(), "offset": self._offset.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume where a stream of the same corpus, seed and number of rows stood; it may hold more rows."""
        missing = [key for key in ("row", "sentence", "offset") if key not in state]
        if missing:
            raise UserError(f"not the state of a stream: no {', '.join(missing)}")
        places = {int(row): place for place, row in enumerate(state["row"])}
        absent = [int(row) for row in self._row if int(row) not in places]
        if absent:
            raise UserError(
                f"expected a state with rows {self._row[0]} to {self._row[-1]}, found no row {absent[0]}"
            )
        chosen = [places[int(row)] for row in self._row]
        sentence, offset = (np.asarray(state[key], dtype=np.int64)[chosen] for key in ("sentence", "offset"))
        number = self._numbers(self._row + self.rows * np.maximum(sentence, 0))
        lengths = self._offsets.take(number + 1) - self._offsets.take(number) + 2
        if np.any(sentence < 0) or np.any(offset < 0) or np.any(offset >= lengths):
            raise UserError(
                "the state does not fit this corpus: expected that of a stream of the same text, seed and rows"
            )
        self._sentence, self._offset = sentence, offset

    def _look_up(self, positions: Ids) -> Ids:
        # Clipped: where <S> or </S> will stand, the position may be just outside the corpus.
        return self._token_ids.take(positions, mode="clip").astype(np.int64) + SHIFT

    def _numbers(self, sequence: Ids) -> Ids:
        """Places in the endless sequence -> numbers of sentences in the corpus."""
        epochs, places = np.divmod(sequence, self._size)
        if not self.shuffle:
            return places
        in_use = range(int(epochs.min()), int(epochs.max()) + 1)
        self._orders = {
            epoch: self._orders[epoch] if epoch in self._orders else self._order(epoch) for epoch in in_use
        }
        if len(in_use) == 1:
            return self._orders[in_use[0]].take(places).astype(np.int64)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            numbers[here] = self._orders[int(epoch)][places[here]]
        return numbers

    def _order(self, epoch: int) -> NDArray[np.uint32] | NDArray[np.int64]:
        order = np.random.default_rng([self.seed, epoch]).permutation(self._size)
        return order.astype(np.uint32) if self._size < 2**32 else order  # half the memory


class Prefetch:
    """Makes the next windows in a thread while the consumer works on this one.

    `state` is where the consumer stands, not the thread: what waits in the queue is made again after a
    `restore`. Close it, or use it in a `with` block.
    """

    def __init__(self, stream: WindowStream, depth: int = 4) -> None:
        if depth < 1:
            raise UserError(f"expected a depth of 1 or more, found {depth}")
        self._stream = stream
        self._consumed = stream.state()
        self._queue: queue.Queue[tuple[Window, State] | Exception] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Window]:
        return self

    def __next__(self) -> Window:
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._fill, name="elmokit windows", daemon=True)
            self._thread.start()
        made = self._queue.get()
        if isinstance(made, Exception):
            self._failure = made
            raise made
        window, self._consumed = made
        return window

    def state(self) -> State:
        return {key: value.copy() for key, value in self._consumed.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.close()
        self._stream.restore(state)
        self._consumed = self._stream.state()
        self._failure = None

    def close(self) -> None:
        """Ends the thread; the stream goes back to where the consumer stands."""
        if self._thread is None:
            return
        self._stop.set()
        while self._thread.is_alive():
            self._drain()  # the thread may be waiting for room
            self._thread.join(0.01)
        self._drain()
        self._thread = None
        self._stream.restore(self._consumed)

    def _drain(self) -> None:
        while not self._queue.empty():
            self._queue.get()

    def _fill(self) -> None:
        try:
            while not self._stop.is_set():
                self._queue.put((next(self._stream), self._stream.state()))
        except Exception as error:
            self._queue.put(error)
