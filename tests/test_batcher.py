"""Jobs of many requests -> batches -> the library's vectors: laws of the queue that stand for any mix of jobs."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.serve.batcher import Batcher
from elmokit.serve.limits import Limits, Refused
from elmokit.serve.metrics import Metrics
from helpers.models import make_elmo, small_config
from helpers.servers import PATIENCE

WORDS = ["a", "bank", "of", "\uac15\ubcc0", "\u00e9", "x" * 60]
BAD = "a word that breaks the kernel"

sentences = st.lists(st.lists(st.sampled_from(WORDS), max_size=9), max_size=5)
jobs = st.tuples(
    st.sampled_from(["first", "second"]),
    sentences,
    st.sampled_from(["all", "mean", 0, -1, (0.2, 0.3, 0.5)]),
    st.sampled_from([None, "mean", "max"]),
    st.booleans(),
)


class Watched:
    """A model whose batches are written down; it may be held back, and fails on BAD."""

    def __init__(self, elmo):
        self.elmo, self.batch_tokens = elmo, elmo.batch_tokens
        self.batches: list[list[list[str]]] = []
        self.free = threading.Event()
        self.free.set()
        self.reading = threading.Event()

    def embed_batch(self, sentences, which_layers, boundaries=False):
        self.reading.set()
        assert self.free.wait(PATIENCE)
        self.batches.append(sentences)
        if any(BAD in sentence for sentence in sentences):
            raise ValueError("broken")
        return self.elmo.embed_batch(sentences, which_layers, boundaries=boundaries)


@pytest.fixture(scope="module")
def elmos():
    return {"first": make_elmo(), "second": make_elmo(small_config(cells=16))}


@pytest.fixture
def model(elmos):
    return Watched(elmos["first"])


class Batching:
    """A batcher at work, within `async with`."""

    def __init__(self, models, limits=None):
        self.batcher = Batcher(models, limits or Limits(), Metrics())

    async def __aenter__(self):
        await self.batcher.start()
        return self.batcher

    async def __aexit__(self, *_):
        await self.batcher.stop()
        assert not any(self.batcher._held.values())
        assert not self.batcher._jobs


async def until(event: threading.Event) -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, PATIENCE)


def settled(job):
    return asyncio.wait_for(job.future, PATIENCE)


@settings(max_examples=60)
@given(st.lists(jobs, max_size=8), st.integers(1, 60))
def test_any_mix_of_jobs_gives_the_librarys_vectors_in_batches_within_the_budget(elmos, wanted, budget):
    models = {name: Watched(elmo) for name, elmo in elmos.items()}
    for model in models.values():
        model.batch_tokens = budget
        model.free.clear()  # until all jobs are there, so that they mix

    async def main():
        async with Batching(models) as batcher:
            waiting = [batcher.embed(*job) for job in wanted]
            for model in models.values():
                model.free.set()
            return [await settled(job) for job in waiting]

    for (name, texts, which_layers, pooling, boundaries), arrays in zip(wanted, asyncio.run(main())):
        expected = list(elmos[name].embed(texts, layers=which_layers, pooling=pooling, boundaries=boundaries))
        assert len(arrays) == len(expected)
        for array, vectors in zip(arrays, expected):
            np.testing.assert_array_equal(array, vectors)
    for name, model in models.items():
        read = [sentence for batch in model.batches for sentence in batch]
        asked = [sentence for job in wanted if job[0] == name for sentence in job[1]]
        assert sorted(read) == sorted(asked)  # each once
        for batch in model.batches:
            longest = max(len(sentence) + 2 for sentence in batch)
            assert len(batch) == 1 or longest * len(batch) <= budget


def test_what_waits_is_computed_in_one_batch_though_many_asked(model):
    async def main():
        model.free.clear()
        async with Batching({"m": model}) as batcher:
            opening = batcher.embed("m", [["a"]], "mean")
            await until(model.reading)
            others = [batcher.embed("m", [["a", word]], "mean") for word in WORDS]
            model.free.set()
            for job in [opening, *others]:
                await settled(job)

    asyncio.run(main())
    assert [len(batch) for batch in model.batches] == [1, len(WORDS)]


def test_the_oldest_goes_first_whatever_its_length(model):
    model.batch_tokens = 12
    long, short = ["a"] * 10, ["of"]

    async def main():
        model.free.clear()
        async with Batching({"m": model}) as batcher:
            waiting = [batcher.embed("m", [["bank"]], "mean")]
            await until(model.reading)
            waiting += [batcher.embed("m", [sentence], "mean") for sentence in [short, long, short, short]]
            model.free.set()
            for job in waiting:
                await settled(job)

    asyncio.run(main())
    assert model.batches[1:] == [[short, short, short], [long]]


def test_a_job_that_left_is_not_computed(model):
    async def main():
        model.free.clear()
        async with Batching({"m": model}) as batcher:
            opening = batcher.embed("m", [["a"]], "mean")
            await until(model.reading)
            left = batcher.embed("m", [["of"], ["bank"]], "mean")
            stays = batcher.embed("m", [["a", "bank"]], "mean")
            batcher.leave(left)
            batcher.leave(left)  # saying so twice changes nothing
            assert sum(batcher._held.values()) == 3 + 4
            model.free.set()
            await settled(opening)
            await settled(stays)
            assert not left.future.done()

    asyncio.run(main())
    assert model.batches == [[["a"]], [["a", "bank"]]]


def test_leaving_while_it_is_computed_lets_the_rest_go_undone(model):
    model.batch_tokens = 3

    async def main():
        model.free.clear()
        async with Batching({"m": model}) as batcher:
            job = batcher.embed("m", [["a"], ["of"]], "mean")
            await until(model.reading)
            batcher.leave(job)
            model.free.set()

    asyncio.run(main())
    assert model.batches == [[["a"]]]


def test_an_error_reaches_only_the_job_whose_sentence_it_is(model):
    async def main():
        model.free.clear()
        async with Batching({"m": model}) as batcher:
            opening = batcher.embed("m", [["a"]], "mean")
            await until(model.reading)
            good = batcher.embed("m", [["of"], ["bank"]], "mean")
            bad = batcher.embed("m", [["bank"], [BAD], [BAD]], "mean")
            model.free.set()
            await settled(opening)
            with pytest.raises(ValueError, match="broken"):
                await settled(bad)
            np.testing.assert_array_equal(
                await settled(good), list(model.elmo.embed([["of"], ["bank"]], layers="mean"))
            )

    asyncio.run(main())


def test_a_call_gives_what_it_returns_or_raises(model):
    def fail():
        raise KeyError("gone")

    async def main():
        async with Batching({"m": model}) as batcher:
            thread = await settled(batcher.call("fill", 3, threading.current_thread))
            assert thread.name == "elmo-batcher"
            with pytest.raises(KeyError):
                await settled(batcher.call("fill", 3, fail))
            assert len(await settled(batcher.embed("m", [["a"]], "mean"))) == 1  # it works on

    asyncio.run(main())


def test_what_comes_before_is_done_before_anything_is_taken(model):
    async def main():
        threads = []
        batcher = Batcher({"m": model}, Limits(), Metrics())
        await batcher.start(before=lambda: threads.append(threading.current_thread().name))
        assert threads == ["elmo-batcher"]
        assert len(await settled(batcher.embed("m", [["a"]], "mean"))) == 1
        await batcher.stop()

    asyncio.run(main())


def test_stopping_finishes_what_waits_and_takes_no_more(model):
    async def main():
        model.free.clear()
        batcher = Batcher({"m": model}, Limits(), Metrics())
        await batcher.start()
        waiting = [batcher.embed("m", [["a"] * n], "mean") for n in range(1, 5)]
        stopping = asyncio.create_task(batcher.stop())
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            batcher.embed("m", [["a"]], "mean")
        assert refused.value.status == 503
        assert "Retry-After" in refused.value.headers
        model.free.set()
        await stopping
        for job in waiting:
            assert len(await settled(job)) == 1

    asyncio.run(main())


def test_a_full_queue_refuses_whole_and_says_when_to_come_again(model):
    async def main():
        model.free.clear()
        async with Batching({"m": model}, Limits(queue=10)) as batcher:
            large = batcher.embed("m", [["a"] * 40], "mean")  # nothing before it: taken, however large
            await until(model.reading)
            with pytest.raises(Refused, match="--queue") as refused:
                batcher.embed("m", [["a"]], "mean")
            assert refused.value.status == 429
            assert int(refused.value.headers["Retry-After"]) >= 1
            assert sum(batcher._held.values()) == 42
            asked = batcher.embed("m", [["a"]], "mean", first=True)  # whether it is well may always be asked
            model.free.set()
            await settled(large)
            await settled(asked)
            small = [batcher.embed("m", [["a"]], "mean")]
            small.append(batcher.embed("m", [["a"] * 3], "mean"))  # 3 + 5 of 10
            for job in small:
                await settled(job)

    asyncio.run(main())


def test_work_that_would_take_too_long_is_refused(model):
    async def main():
        model.free.clear()
        async with Batching({"m": model}, Limits(wait=2.0)) as batcher:
            batcher._seconds["m"] = 0.5  # per token, as if measured
            waiting = [batcher.embed("m", [["a"]], "mean")]  # 3 tokens: 1.5 seconds
            waiting.append(batcher.embed("m", [["a"]], "mean"))
            with pytest.raises(Refused, match="--max-wait") as refused:  # 3 seconds wait
                batcher.embed("m", [["a"]], "mean")
            assert refused.value.status == 429
            assert refused.value.headers["Retry-After"] == "2"
            model.free.set()
            for job in waiting:
                await settled(job)

    asyncio.run(main())


def test_one_slow_call_does_not_make_the_next_look_slow(model):
    """The first of its kind, or one of many, may have to load something."""

    async def main():
        async with Batching({"m": model}) as batcher:
            for seconds in (100.0, 1.0, 1.0, 100.0, 1.0):
                batcher._measured("fill", 10, seconds)
            assert batcher._seconds["fill"] == pytest.approx(0.1)
            for _ in range(3):
                batcher._measured("fill", 10, 100.0)  # it has become slow
            assert batcher._seconds["fill"] == pytest.approx(10.0)

    asyncio.run(main())


def test_no_sentences_are_answered_at_once(model):
    async def main():
        async with Batching({"m": model}) as batcher:
            job = batcher.embed("m", [], "mean")
            assert job.future.done()
            assert job.future.result() == []

    asyncio.run(main())
    assert model.batches == []
