"""Hostile and damaged files: each gets a message and an exit code of 1, little time and little memory.

The named ones of hostile_files.py, and between them random damage of healthy files, until the time is over. They
are tried in processes of attempt.py, many in each; one that crashes or hangs fails the case that it was at.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from case import Case
from damage import damage
from hostile_files import Hostile, named
from samples import make_samples

SECONDS = 20.0  # that one file may take; on a machine that does other work too
KEPT = "failures"  # the folder of the files that failed, for who mends it


class Trial(NamedTuple):
    kind: str
    name: str
    folder: Path  # with the file or the model `target`
    target: Path
    embed: bool = False

    def jobs(self, text: Path) -> Iterator[tuple[str, list[str]]]:
        """(action of attempt.py, its arguments)"""
        if self.kind == "text":
            yield "elmo", ["embed", str(self.target), "-o", str(self.folder / "out.npz"), "-m", "en-small"]
            return
        if self.kind.startswith("words"):
            yield "words", [str(self.target)]
            return
        yield "elmo", ["info", str(self.target)]
        if self.kind.startswith("vectors"):
            yield "vectors", [str(self.target)]
        if self.embed:
            out = str(self.folder / "out.npz")
            yield "elmo", ["embed", str(text), "-o", out, "-m", str(self.target), "--overwrite"]


class Attempts:
    """A process of attempt.py, begun anew whenever one has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    def failure_of(self, action: str, arguments: list[str], marker: Path) -> str | None:
        if self._process is None or self._process.poll() is not None:
            self._process = self._begin()
        process = self._process
        self._number += 1
        job = {"number": self._number, "action": action, "arguments": arguments, "marker": str(marker)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        begun = self._answer(120)  # the imports come before
        answer = self._answer(SECONDS) if begun else None
        if answer is not None:
            failure: str | None = answer["failure"]
            return failure
        hangs = process.poll() is None
        self.close()
        return f"took more than {SECONDS:.0f} seconds" if hangs else f"crashed (code {process.returncode})"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _begin(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).parent / "attempt.py"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ELMOKIT_DEBUG": "0", "HF_HUB_OFFLINE": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, str(script)],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The next line, or None where none comes: the process hangs, or is no more."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if ready and not line:
            self._process.wait()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer


def campaign(seed: int, seconds: float, folder: Path) -> Iterator[Case]:
    """The named files, shuffled, and random damage in turn, within `seconds` (and what is begun is ended)."""
    end = time.monotonic() + seconds
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    samples = make_samples(folder / "samples")
    samples["text"] = folder / "samples" / "text.txt"
    attempts = Attempts()
    try:
        for trial in _trials(seed, samples, folder):
            yield _case(trial, attempts, samples["text"], folder)
            if time.monotonic() > end:
                break
    finally:
        attempts.close()


def _case(trial: Trial, attempts: Attempts, text: Path, folder: Path) -> Case:
    marker = folder / "executed"
    failure = None
    for action, arguments in trial.jobs(text):
        failure = failure or attempts.failure_of(action, arguments, marker)
    if failure is not None:
        (folder / KEPT).mkdir(exist_ok=True)
        shutil.move(trial.folder, folder / KEPT / trial.folder.name)
    else:
        shutil.rmtree(trial.folder)
    return Case(trial.kind, trial.name, failure)


def _trials(seed: int, samples: dict[str, Path], folder: Path) -> Iterator[Trial]:
    random = Random(seed)
    hostile = named()
    random.shuffle(hostile)
    kinds = [kind for kind in samples if kind != "text"]
    for number in count(1):
        if hostile:
            yield _named_trial(hostile.pop(), samples, folder / f"named-{number}", folder / "executed")
        kind = kinds[number % len(kinds)]
        target = _copy(samples[kind], folder / f"damage-{number}")
        how = damage(Random(f"{seed}/{number}"), target)
        yield Trial(
            kind, f"damage {number}: {how}", target.parent, target, embed=number % 4 == 0 and target.is_dir()
        )


def _named_trial(hostile: Hostile, samples: dict[str, Path], folder: Path, marker: Path) -> Trial:
    target = _copy(samples[hostile.sample], folder)
    if hostile.sample == "text":
        target = target.with_suffix(".txt.gz")
    hostile.make(target, marker)
    return Trial(hostile.sample, hostile.name, folder, target, hostile.embed)


def _copy(sample: Path, folder: Path) -> Path:
    folder.mkdir()
    target = folder / sample.name
    shutil.copytree(sample, target) if sample.is_dir() else shutil.copy(sample, target)
    return target
