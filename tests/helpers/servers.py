"""`elmo serve` as a process of its own, and what it serves: a small model with a head, a task and an index."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmokit import Client, Elmo, UserError
from elmokit.analysis.contexts.index import ContextIndex
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.ner.task import NamedEntities
from helpers.language_models import make_model
from helpers.models import SENTENCES

NER = Path(__file__).parent.parent / "tasks" / "ner.conll"
PATIENCE = 60.0  # seconds in which what is to come must have come; nothing is measured by it


class World(NamedTuple):
    """What there is to be served, and where it lies."""

    elmo: Elmo
    task: TaskModel
    index: ContextIndex
    model_folder: Path
    task_folder: Path

    @property
    def arguments(self) -> list[str]:
        """Of `elmo serve`."""
        task, index = f"ner={self.task_folder}", str(self.index.folder)
        return [f"small={self.model_folder}", "--task", task, "--index", index]


def make_world(folder: Path) -> World:
    """A model that predicts words, called small; a task on top of it, untrained; an index of a few lines."""
    model, task = folder / "model", folder / "ner"
    make_model().save(model)
    elmo = Elmo.from_pretrained(model)
    sizes, labels = (
        NamedEntities.settings_class(cells=(4,), filters=2),
        NamedEntities.labels_of(NamedEntities.read(NER)),
    )
    tagger = TaskModel.fresh(NamedEntities(sizes, labels), WordTable(["a"]), elmo, InputConfig())
    tagger.save(task)
    lines = folder / "lines.txt"
    lines.write_text("\n".join(filter(None, SENTENCES)) + "\n", encoding="utf-8")
    return World(elmo, TaskModel.load(task), ContextIndex.build(elmo, [lines], folder / "index"), model, task)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # by names in small letters
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Server:
    """A process of `elmo serve`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._told = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line.decode(errors="replace"))
            if found := re.search(r" on (http://\S+) \(Ctrl-C", self._lines[-1]):
                self.url = found[1]
                self._told.set()
        self._told.set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def logs(self) -> str:
        """What it has written to standard error so far."""
        return "".join(self._lines)

    @property
    def memory(self) -> int:
        """Resident, in bytes."""
        [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return 1024 * int(kilobytes)

    def wait_for_url(self) -> None:
        if not self._told.wait(PATIENCE) or not self.url:
            raise AssertionError(f"elmo serve has not begun to listen:\n{self.logs}")

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """On a connection of its own; a body that is not bytes is sent as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        page = self.ask("GET", "/metrics").content.decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; its exit code, when it has ended."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def end(self) -> None:
        """Whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def running(
    *arguments: object, command: str = "serve", port: int | None = 0, environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """`elmo serve` (or play) with these arguments, listening; killed at the end, if it has not ended by then."""
    options = ["--threads", "1", *([] if port is None else ["--port", str(port)])]
    if command == "serve":
        options += ["--log-level", "info"]
    process = subprocess.Popen(
        [sys.executable, "-m", "elmokit", command, *map(str, arguments), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200", **(environment or {})},
    )
    server = Server(process)
    try:
        server.wait_for_url()
        yield server
    finally:
        server.end()


class Load:
    """Threads that ask until they are told to stop, and keep what they got."""

    def __init__(self, world: World, url: str, threads: int = 4, **options: Any) -> None:
        self.stopping, self.answered = threading.Event(), 0
        self.wrong: list[Exception] = []
        self._expected = world.elmo.embed(["a b c"])[0]
        self._options, self._url = options, url
        self.threads = [threading.Thread(target=self._ask) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def _ask(self) -> None:
        client = Client(self._url, **self._options)
        while not self.stopping.is_set():
            try:
                np.testing.assert_array_equal(client.embed(["a b c"])[0], self._expected)
                self.answered += 1
            except (UserError, AssertionError) as error:
                self.wrong.append(error)
                return

    def end(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def eventually(holds: Any, seconds: float = PATIENCE) -> bool:
    """Whether it comes to hold: asked again and again."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
