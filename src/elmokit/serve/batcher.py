"""Requests of all clients -> batches of like length within a token budget -> one computing thread.

Nothing waits for a batch to fill: while one is computed others gather, and when the thread is free it takes the
oldest sentence that waits and those of its length and kind. A sentence's vectors do not depend on the others, so
neither do answers. The kernels release the GIL: meanwhile the event loop reads requests and writes answers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from elmokit.embed.embedder import Elmo
from elmokit.embed.pooling import Pooling, WhichLayers, pool
from elmokit.embed.reader import BATCHES_PER_WINDOW, Array
from elmokit.serve.limits import Gone, Limits, Refused
from elmokit.serve.metrics import Metrics
from elmokit.text.batches import batches_by_length

SOON = 0.05  # seconds
RECENT = 5  # measurements of a pace: their middle is not moved by one that had to load something


class Kind(NamedTuple):
    """Sentences of one kind may be computed together."""

    model: str
    which_layers: Hashable  # "all", "mean", a number, a tuple of weights
    boundaries: bool


class Place(NamedTuple):
    """A sentence of a job."""

    job: Job
    number: int


@dataclass(eq=False)
class Job:
    """What one request wants computed: sentences of a kind, or a call."""

    future: asyncio.Future[Any]
    pace: Hashable  # jobs that take about the same time per token
    tokens: int  # what it costs, boundaries counted
    kind: Kind | None = None
    sentences: Sequence[Sequence[str]] = ()
    pooling: Pooling | None = None
    call: Callable[[], Any] | None = None
    since: float = field(default_factory=time.perf_counter)
    waiting: list[int] = field(default_factory=list)  # sentences that were not taken yet
    begun: bool = False
    gone: bool = False
    arrays: list[Array] = field(default_factory=list)
    left: int = 0


class Batcher:
    def __init__(self, models: dict[str, Elmo], limits: Limits, metrics: Metrics) -> None:
        self._models, self._limits, self._metrics = models, limits, metrics
        self._jobs: deque[Job] = deque()  # the oldest first
        self._changed = threading.Condition()
        self._held: dict[Hashable, int] = {}  # tokens of all that waits or is computed, by pace
        self._recent: dict[Hashable, deque[float]] = {}  # seconds per token, by pace
        self._seconds: dict[Hashable, float] = {}  # the middle of these
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        metrics.watch_queue(lambda: sum(self._held.values()), lambda: len(self._jobs))

    async def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Within the event loop that answers are awaited in. `before`: what the computing thread does first."""
        self._loop, self._stopping = asyncio.get_running_loop(), False
        begun = self._loop.create_future()

        def work() -> None:
            before()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(begun.set_result, None)
            self._work()

        self._thread = threading.Thread(target=work, name="elmo-batcher", daemon=True)
        self._thread.start()
        await begun

    async def stop(self) -> None:
        """What waits is computed first: whoever awaits it gets it."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._stopping

    def embed(
        self,
        model: str,
        sentences: Sequence[Sequence[str]],
        which_layers: WhichLayers,
        pooling: Pooling | None = None,
        boundaries: bool = False,
        *,
        first: bool = False,
    ) -> Job:
        """Its future gives an array per sentence, as `Elmo.embed`. `first`: before all that waits, and never
        refused: the question whether the service is well."""
        weights = isinstance(which_layers, Sequence) and not isinstance(which_layers, str)
        kind = Kind(model, tuple(which_layers) if weights else which_layers, boundaries)  # type: ignore[arg-type]
        tokens = sum(len(sentence) + 2 for sentence in sentences)
        job = self._job(model, tokens, kind=kind, sentences=sentences, pooling=pooling)
        job.left = len(sentences)
        job.arrays = [np.empty(0)] * job.left
        job.waiting = list(range(job.left))
        if not sentences:
            job.future.set_result([])
        else:
            self._submit(job, first)
        return job

    def call(self, what: str, tokens: int, call: Callable[[], Any]) -> Job:
        """Its future gives what `call` returns or raises, in the computing thread, alone. `what`: calls of that
        name take about the same time per token."""
        job = self._job(what, max(1, tokens), call=call)
        self._submit(job, first=False)
        return job

    def _job(self, pace: Hashable, tokens: int, **what: Any) -> Job:
        if not self.running or self._loop is None:
            raise Refused(503, "not_ready", "the service is not ready: try again in a moment", retry_after=1)
        return Job(self._loop.create_future(), pace, tokens, **what)

    def leave(self, job: Job) -> None:
        """Nobody waits for it any more: what is not computed yet is dropped."""
        if not job.left and not job.tokens:
            return  # it is done
        with self._changed:
            job.gone = True
            if job in self._jobs:
                self._jobs.remove(job)
            self._forget(job)

    def _submit(self, job: Job, first: bool) -> None:
        with self._changed:
            if not first:
                self._admit(job)
            self._held[job.pace] = self._held.get(job.pace, 0) + job.tokens
            (self._jobs.appendleft if first else self._jobs.append)(job)
            self._changed.notify()

    def _admit(self, job: Job) -> None:
        """Whole or not at all, one input or many alike. What finds nothing before it is taken, however large."""
        held = sum(self._held.values())
        if not held:
            return
        wait = sum(tokens * self._seconds.get(pace, 0.0) for pace, tokens in self._held.items())
        longest = self._limits.wait
        if held + job.tokens > self._limits.queue or wait > longest:
            raise Refused(
                429,
                "queue_full",
                f"the queue is full: {self._limits.queue:,} tokens (--queue) or {longest:g} seconds of work "
                "(--max-wait); try again later, Retry-After says when",
                retry_after=min(wait / 2, longest),
            )

    # From here on, in the computing thread.

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            finished = self._call(taken) if isinstance(taken, Job) else self._read(taken)
            assert self._loop is not None
            with self._changed:
                for job, _ in finished:
                    self._forget(job)
            self._loop.call_soon_threadsafe(_deliver, finished)

    def _forget(self, job: Job) -> None:
        """Whoever is the first to say so."""
        self._held[job.pace] -= job.tokens
        job.tokens = 0

    def _take(self) -> Job | list[Place] | None:
        """The oldest job's call, or a batch with its first sentence; None when all is done and to be stopped."""
        with self._changed:
            while not self._jobs:
                if self._stopping:
                    return None
                self._changed.wait()
            head = self._jobs[0]
            if head.call is not None:
                self._jobs.popleft()
                taken: Job | list[Place] = head
                begun = [head]
            else:
                taken = self._batch(head)
                begun = list({place.job: None for place in taken})
        now = time.perf_counter()
        for job in begun:
            if not job.begun:
                job.begun = True
                self._metrics.queue_seconds.observe(now - job.since)
        return taken

    def _batch(self, head: Job) -> list[Place]:
        assert head.kind is not None
        budget = self._models[head.kind.model].batch_tokens
        window: list[Place] = []
        held = 0
        for job in self._jobs:
            if job.kind == head.kind:
                for number in job.waiting:
                    window.append(Place(job, number))
                    held += len(job.sentences[number]) + 2
                    if held > budget * BATCHES_PER_WINDOW:
                        break
            if held > budget * BATCHES_PER_WINDOW:
                break
        lengths = [len(job.sentences[number]) + 2 for job, number in window]
        batch = next(batch for batch in batches_by_length(lengths, budget) if 0 in batch)
        places = [window[i] for i in sorted(batch)]
        for job in {place.job: None for place in places}:
            taken = {place.number for place in places if place.job is job}
            job.waiting = [number for number in job.waiting if number not in taken]
            if not job.waiting:
                self._jobs.remove(job)
        return places

    def _read(self, places: list[Place]) -> list[tuple[Job, Any]]:
        """The jobs that are finished by this batch, with their arrays or with what went wrong."""
        places = [place for place in places if not place.job.gone]
        if not places:
            return []
        kind = places[0].job.kind
        assert kind is not None
        elmo = self._models[kind.model]
        sentences = [list(job.sentences[number]) for job, number in places]
        tokens = sum(len(sentence) + 2 for sentence in sentences)
        begin = time.perf_counter()
        try:
            arrays = elmo.embed_batch(sentences, kind.which_layers, boundaries=kind.boundaries)  # type: ignore[arg-type]
            for place, array in zip(places, arrays):
                job = place.job
                job.arrays[place.number] = array if job.pooling is None else _pooled(array, job.pooling)
        except Exception as error:
            if len(places) > 1:  # each by itself: only whose sentence it is gets to know
                return [done for place in places for done in self._read([place])]
            return [(places[0].job, error)] if not places[0].job.future.done() else []
        self._measured(kind.model, tokens, time.perf_counter() - begin)
        self._metrics.batch_tokens.observe(tokens)
        self._metrics.batch_sentences.observe(len(places))
        finished = []
        for job, _ in places:
            job.left -= 1
            if not job.left:
                finished.append((job, job.arrays))
        return finished

    def _call(self, job: Job) -> list[tuple[Job, Any]]:
        if job.gone or job.call is None:
            return [(job, None)]
        tokens, begin = job.tokens, time.perf_counter()
        try:
            result = job.call()
        except Exception as error:
            result = error
        self._measured(job.pace, tokens, time.perf_counter() - begin)
        return [(job, result)]

    def _measured(self, pace: Hashable, tokens: int, seconds: float) -> None:
        self._metrics.compute_seconds.observe(seconds)
        self._metrics.tokens.inc(tokens)
        if pace not in self._recent:  # the first of its kind loads what the others find
            self._recent[pace] = deque(maxlen=RECENT)
            return
        self._recent[pace].append(seconds / max(1, tokens))
        self._seconds[pace] = median(self._recent[pace])


def _pooled(array: Array, pooling: Pooling) -> Array:
    return pool(torch.from_numpy(array), pooling).numpy()  # as Reader does: the same bits


def _deliver(finished: list[tuple[Job, Any]]) -> None:
    """In the event loop."""
    for job, result in finished:
        if job.future.done():
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


async def answer(batcher: Batcher, job: Job, limits: Limits, receive: Callable[[], Any]) -> Any:
    """What the job gives, if it comes in time and whoever asked is still there."""
    if job.future.done():
        return job.future.result()
    watch = _Watch(job, limits, receive)
    try:
        return await job.future
    finally:
        watch.end()
        batcher.leave(job)


class _Watch:
    """Ends a job's future where its time is over or its client has left.

    Most answers come at once: only after SOON does it cost more than a timer to look whether the client is there.
    """

    def __init__(self, job: Job, limits: Limits, receive: Callable[[], Any]) -> None:
        self._job, self._limits, self._receive = job, limits, receive
        self._loop = job.future.get_loop()
        self._timer = self._loop.call_later(min(SOON, limits.timeout), self._look)
        self._left: asyncio.Task[None] | None = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(max(0.0, self._limits.timeout - SOON), self._late)
        self._left = self._loop.create_task(self._until_left())

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._fail(Gone())

    def _late(self) -> None:
        self._fail(
            Refused(
                503,
                "timeout",
                f"there was no answer within {self._limits.timeout:g} seconds (--timeout): send less",
                retry_after=1,
            )
        )

    def _fail(self, error: Exception) -> None:
        if not self._job.future.done():
            self._job.future.set_exception(error)

    def end(self) -> None:
        self._timer.cancel()
        if self._left is not None:
            self._left.cancel()
