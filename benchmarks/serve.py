"""`elmo serve` under load, beside the bare library in the same run.

    .venv/bin/python benchmarks/serve.py [--model en-small] [--parts clients latency overload]
        [--clients 1 8 64 256] [--inputs 1 16] [--seconds 8] [--rounds 3] [--threads 2] [--weights float32]

clients    requests/s, tokens/s, p50/p95/p99 by number of clients, each of which asks again when it has its answer;
           with batching and without; beside what `Elmo.encode` makes of these sentences in a process of its own.
latency    one client, one sentence: what the server adds to the library's own time.
overload   requests come at 4 times the rate that it can serve, for --overload seconds, whether or not earlier ones
           were answered: statuses, waiting times of those accepted, memory.

Server, library and load take turns, best of --rounds. The load is made by a process of its own, on the same cores.
Sentences are made up by Zipf's law, 22 tokens on average; all words are met before anything is timed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from elmokit.bench.machine import Machine, commit
from elmokit.bench.sentences import made_up, real_lengths

SENTENCES = 1024


class Load(NamedTuple):
    """What came of a load."""

    seconds: float
    statuses: dict[int, int]
    tokens: int  # of answered requests
    waits: list[float]  # seconds of answered requests, sorted

    def wait(self, share: float) -> float:
        """Milliseconds."""
        return 1000 * self.waits[min(len(self.waits) - 1, int(share * len(self.waits)))] if self.waits else 0.0

    @property
    def answered(self) -> int:
        return self.statuses.get(200, 0)


class Connection:
    """One HTTP/1.1 connection, kept open. The load runs on the server's cores: no more of HTTP than it needs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None

    async def ask(self, request: bytes) -> int:
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None
        await self.reader.readexactly(int(found[1]))
        if b"connection: close" in head:
            self.close()
        return int(head[9:12])

    def close(self) -> None:
        if self.reader is not None:
            self.writer.close()
            self.reader = None


def requests_of(texts: list[str], inputs: int, port: int) -> list[tuple[bytes, int]]:
    """Requests of so many sentences each, and their tokens."""
    requests = []
    for first in range(0, len(texts), inputs):
        part = texts[first : first + inputs]
        body = json.dumps({"input": part, "encoding_format": "base64"}).encode()
        head = f"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        requests.append(
            (f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, sum(len(t.split()) for t in part))
        )
    return requests


async def closed_loop(port: int, requests: list[tuple[bytes, int]], clients: int, seconds: float) -> Load:
    statuses: Counter[int] = Counter()
    waits: list[float] = []
    tokens = 0
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        nonlocal tokens
        connection = Connection(port)
        turn = number * 7
        while (begin := time.perf_counter()) < end:
            request, size = requests[turn % len(requests)]
            status = await connection.ask(request)
            statuses[status] += 1
            if status == 200:
                waits.append(time.perf_counter() - begin)
                tokens += size
            turn += 1
        connection.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return Load(time.perf_counter() - begin, dict(statuses), tokens, sorted(waits))


async def open_loop(port: int, requests: list[tuple[bytes, int]], rate: float, seconds: float) -> Load:
    """Requests come at `rate` per second, by connections that are free or new."""
    statuses: Counter[int] = Counter()
    waits: list[float] = []
    tokens = 0
    free: list[Connection] = []
    under_way: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        nonlocal tokens
        connection = free.pop() if free else Connection(port)
        request, size = requests[number % len(requests)]
        begin = time.perf_counter()
        try:
            try:
                status = await asyncio.wait_for(connection.ask(request), 120)
            except asyncio.IncompleteReadError:  # it was idle for too long, and closed: every client asks again
                connection.close()
                status = await asyncio.wait_for(connection.ask(request), 120)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            statuses[0] += 1
            connection.close()
            return
        statuses[status] += 1
        if status == 200:
            waits.append(time.perf_counter() - begin)
            tokens += size
        free.append(connection)

    begin, number = time.perf_counter(), 0
    while (now := time.perf_counter() - begin) < seconds:
        while number < now * rate:
            task = asyncio.ensure_future(one(number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            number += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*under_way)
    for connection in free:
        connection.close()
    return Load(time.perf_counter() - begin, dict(statuses), tokens, sorted(waits))


def made(kind: str, port: int, requests: list[tuple[bytes, int]], how_many: float, seconds: float) -> Load:
    """A load, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_make, (kind, port, requests, how_many, seconds))


def _make(kind: str, port: int, requests: list[tuple[bytes, int]], how_many: float, seconds: float) -> Load:
    import uvloop

    load = closed_loop if kind == "closed" else open_loop
    return uvloop.run(load(port, requests, how_many, seconds))  # type: ignore[arg-type]


LIBRARY = """
import sys, time, json, torch
from elmokit import Elmo
torch.set_num_threads(int(sys.argv[3]))
elmo = Elmo.from_pretrained(sys.argv[1], weights=sys.argv[2])
texts = json.load(sys.stdin)
elmo.encode(texts)
print("ready", flush=True)
for line in open("/dev/fd/3"):
    what, seconds = line.split()
    end, count, waits = time.perf_counter() + float(seconds), 0, []
    begin = time.perf_counter()
    while time.perf_counter() < end:
        if what == "all":
            elmo.encode(texts, normalize=True); count += len(texts)
        else:
            start = time.perf_counter()
            elmo.encode(texts[count % len(texts)], normalize=True); count += 1
            waits.append(time.perf_counter() - start)
    print(json.dumps([count / (time.perf_counter() - begin), sorted(waits)]), flush=True)
"""


class Library:
    """`Elmo.encode` in a process of its own, idle when it is not asked."""

    def __init__(self, texts: list[str], options: argparse.Namespace) -> None:
        read, self._write = os.pipe()
        arguments = [options.model, options.weights, str(options.threads)]
        script = LIBRARY.replace("/dev/fd/3", f"/dev/fd/{read}")
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[read],
            env={**os.environ, "GOMP_SPINCOUNT": "1000"},
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._process.stdin.write(json.dumps(texts))
        self._process.stdin.close()
        assert self._out.readline() == "ready\n"

    def ask(self, what: str, seconds: float) -> tuple[float, list[float]]:
        """Sentences per second, and the seconds of each call where they come one by one."""
        os.write(self._write, f"{what} {seconds}\n".encode())
        rate, waits = json.loads(self._out.readline())
        return rate, waits

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def serving(options: argparse.Namespace, *more: str) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    command = [
        sys.executable,
        "-m",
        "elmokit",
        "serve",
        options.model,
        "--port",
        "0",
        "--log-level",
        options.log_level,
    ]
    command += ["--threads", str(options.threads), "--weights", options.weights, *more]
    with tempfile.TemporaryFile("w+") as logs:  # a pipe that nobody reads would stop the server
        process = subprocess.Popen(command, stderr=logs)
        try:
            found = None
            while found is None:
                assert process.poll() is None, "the server did not start"
                time.sleep(0.1)
                logs.seek(0)
                found = re.search(r"http://127\.0\.0\.1:(\d+)", logs.read())
            yield int(found[1]), process.pid
        finally:
            process.terminate()
            process.wait()


def resident(pid: int) -> float:
    """MiB."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def clients_part(texts: list[str], options: argparse.Namespace) -> None:
    tokens = sum(len(text.split()) for text in texts) / len(texts)
    library = Library(texts, options)
    patient = ("--queue", "100000000", "--max-wait", "1000", "--timeout", "1000")  # nothing is to be refused here
    with (
        serving(options, *patient) as (batched, _),
        serving(options, *patient, "--batch-tokens", "1") as (alone, _),
    ):
        ports = {"batches": batched, "one at a time": alone}
        for port in ports.values():
            made("closed", port, requests_of(texts, 16, port), 4, 3)
        for inputs in options.inputs:
            print(f"\n{inputs} sentence(s) per request, {tokens:.1f} tokens per sentence")
            print("| clients | server | requests/s | tokens/s | of the library's | p50 ms | p95 | p99 |")
            print("|---|---|---|---|---|---|---|---|")
            for clients in options.clients:
                best: dict[str, Load] = {}
                bare = 0.0
                for _ in range(options.rounds):
                    bare = max(bare, library.ask("all", min(4, options.seconds))[0] * tokens)
                    for name, port in ports.items():
                        load = made("closed", port, requests_of(texts, inputs, port), clients, options.seconds)
                        assert set(load.statuses) == {200}, load.statuses
                        if name not in best or load.tokens / load.seconds > best[name].tokens / best[name].seconds:
                            best[name] = load
                for name, load in best.items():
                    rate = load.tokens / load.seconds
                    waits = " | ".join(f"{load.wait(share):.1f}" for share in (0.5, 0.95, 0.99))
                    print(
                        f"| {clients} | {name} | {load.answered / load.seconds:,.0f} | {rate:,.0f} "
                        f"| {100 * rate / bare:.0f} % of {bare:,.0f} | {waits} |",
                        flush=True,
                    )
    library.end()


def latency_part(texts: list[str], options: argparse.Namespace) -> None:
    library = Library(texts, options)
    own: list[float] = []
    served: list[Load] = []
    with serving(options) as (port, _):
        requests = requests_of(texts, 1, port)
        made("closed", port, requests, 1, 2)
        for _ in range(options.rounds):
            own.append(1000 * statistics.median(library.ask("each", options.seconds / 2)[1]))
            served.append(made("closed", port, requests, 1, options.seconds / 2))
    library.end()
    best = min(load.wait(0.5) for load in served)
    print(
        f"\none client, one sentence: library {min(own):.2f} ms, server {best:.2f} ms at the median: "
        f"{best - min(own):.2f} ms more (p99 {min(load.wait(0.99) for load in served):.2f} ms)"
    )


def overload_part(texts: list[str], options: argparse.Namespace) -> None:
    with serving(options) as (port, pid):
        requests = requests_of(texts, 16, port)
        made("closed", port, requests, 8, 3)
        able = made("closed", port, requests, 64, options.seconds)
        rate = able.answered / able.seconds
        made("open", port, requests, 4 * rate, options.overload / 4)  # buffers of the connections are made
        before = resident(pid)
        load = made("open", port, requests, 4 * rate, options.overload)
        after = resident(pid)
        again = made("closed", port, requests, 64, options.seconds)
    print(
        f"\noverload: {4 * rate:,.0f} requests/s of 16 sentences for {options.overload:g} s, 4 x what it serves "
        f"({rate:,.0f}): statuses {load.statuses}, "
        f"accepted p50 {load.wait(0.5):,.0f} ms, p99 {load.wait(0.99):,.0f} ms, "
        f"served {load.answered / load.seconds:,.0f}/s; memory {before:.0f} -> {after:.0f} MiB; "
        f"afterwards {again.answered / again.seconds:,.0f}/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--parts", nargs="+", default=["clients", "latency", "overload"])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 64, 256])
    parser.add_argument("--inputs", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--overload", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", default="float32")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args()
    texts = [" ".join(sentence) for sentence in made_up(real_lengths(SENTENCES))]
    machine = Machine.here()
    print(
        f"{machine.processor}, {' '.join(machine.instruction_sets)}; {options.threads} threads; commit {commit()}"
    )
    for name, part in (("clients", clients_part), ("latency", latency_part), ("overload", overload_part)):
        if name in options.parts:
            part(texts, options)


if __name__ == "__main__":
    main()
