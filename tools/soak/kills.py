"""Jobs that are killed again and again, and finish by the same command as if nothing had been.

Each case is one job in a process of its own, ended by signals at random times, then left to finish. Its files must
be those of a job that was never ended, to the byte, with nothing left beside them.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from case import Case
from nursery import Nursery

MOST_KILLS = 6  # of one case
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 120.0  # seconds until a job hangs
WORDS = "the of and to in a is was he for it with as his on be at by had not are but from or have an they".split()
SMALL = ("encoder.filters=[[1, 4], [2, 6]]", "lstm.cells=16", "lstm.width=8")


class Job(NamedTuple):
    name: str
    command: list[str]  # of `elmo`, in a folder of its own
    prints: Callable[[Path], dict[str, bytes]]  # of that folder: what must be the same

    def run(
        self, nursery: Nursery, folder: Path, number: int | None = None, after: float = PATIENCE
    ) -> tuple[int, str]:
        return nursery.run(self.command, folder, number, after, PATIENCE)


class Reference(NamedTuple):
    seconds: float
    prints: dict[str, bytes]


def campaign(seed: int, seconds: float, folder: Path) -> Iterator[Case]:
    """Cases until the time is used; the last one is ended."""
    end = time.monotonic() + seconds
    draw = random.Random(seed)
    data = folder / "data"
    data.mkdir(parents=True)
    jobs = _jobs(data, seed)
    references: dict[str, Reference] = {}
    order: list[Job] = []
    number = 0
    with closing(Nursery(data / "cache")) as nursery:
        while time.monotonic() < end:
            order = order or draw.sample(jobs, len(jobs))
            job = order.pop()
            if job.name not in references:
                references[job.name] = _uninterrupted(job, nursery, folder / f"{job.name}-reference")
            number += 1
            case = _case(job, nursery, references[job.name], folder / f"{job.name}-{number}", draw)
            if case.failure is None:
                shutil.rmtree(folder / f"{job.name}-{number}")
            yield case


def _case(job: Job, nursery: Nursery, reference: Reference, folder: Path, draw: random.Random) -> Case:
    folder.mkdir()
    told = []
    for _ in range(draw.randint(1, MOST_KILLS)):
        number, share = draw.choice(SIGNALS), draw.uniform(0.05, 1.05)
        told.append(f"{number.name[3:]} at {100 * share:.0f} %")
        code, message = job.run(nursery, folder, number, share * reference.seconds)
        if code == 0 or _is_there(code, message):
            break
        if code not in (-number, 128 + number):
            return Case(job.name, ", ".join(told), f"exit code {code}: {message}")
    else:
        code, message = job.run(nursery, folder)
        if code != 0 and not _is_there(code, message):
            return Case(job.name, ", ".join(told), f"does not finish, exit code {code}: {message}")
    return Case(job.name, ", ".join(told), _difference(job, reference, folder))


def _difference(job: Job, reference: Reference, folder: Path) -> str | None:
    left = [path for path in folder.rglob("*") if path.name.startswith(".") or path.suffix in (".partial", ".tmp")]
    if left:
        return f"left behind: {', '.join(str(path.relative_to(folder)) for path in left[:5])}"
    found = job.prints(folder)
    if found.keys() != reference.prints.keys():
        return f"other files: {sorted(found.keys() ^ reference.prints.keys())[:5]}"
    other = [name for name, content in found.items() if content != reference.prints[name]]
    return f"other bytes: {', '.join(other[:5])}" if other else None


def _is_there(code: int, message: str) -> bool:
    """Killed when all was done: the same command finds its output."""
    return code == 1 and "exists already" in message


def _uninterrupted(job: Job, nursery: Nursery, folder: Path) -> Reference:
    folder.mkdir()
    begun = time.monotonic()
    code, message = job.run(nursery, folder)
    if code != 0:
        raise RuntimeError(f"{job.name} fails without being killed: {message}")
    return Reference(time.monotonic() - begun, job.prints(folder))


def _jobs(data: Path, seed: int) -> list[Job]:
    draw = random.Random(seed)
    text, tagged, model = data / "text.txt", data / "tagged.conllu", data / "model"
    text.write_text("".join(f"{_sentence(draw)} .\n" for _ in range(1500)))
    tagged.write_text("\n".join(_tagged(draw) for _ in range(60)) + "\n")
    trees = data / "trees.txt"
    trees.write_text("".join(_tree(draw) + "\n" for _ in range(60)))
    _save_model(model)
    settings = [part for setting in SMALL for part in ("--set", f"model.{setting}")]
    settings += ["--set", "train.rows=8", "--set", "train.steps=6", "--set", "train.min_count=1"]
    pretrain = ["pretrain", str(text), "--out", "run", "--recipe", "tiny", "--tokens", "12000", "--threads", "1"]
    pretrain += ["--checkpoint-minutes", "0.002", "--held-out", "0.02", "--evaluations", "3", *settings]
    jobs = [Job("pretrain", pretrain, _weights)]
    for suffix in (".h5", ".npz", ".safetensors", *([".parquet"] if find_spec("pyarrow") else [])):
        command = ["embed", str(text), "-m", str(model), "-o", f"out{suffix}", "--threads", "1"]
        jobs.append(Job(f"embed {suffix}", [*command, "--batch-tokens", "64"], _everything))
    for task, file in (("pos", tagged), ("sentiment", trees)):
        command = ["task", "train", task, "--train", str(file), "--dev", str(file), "-m", str(model)]
        command += ["--out", "run", "--cache", "cache", "--threads", "1"]
        command += ["--set", "train.epochs=4", "--set", "train.patience=4", "--set", "cells=8"]
        jobs.append(Job(f"task {task}", command, _weights))
    if find_spec("lancedb"):
        command = ["index", "build", str(text), "-m", str(model), "-o", "index", "--threads", "1"]
        jobs.append(Job("index", command, _index))
    return jobs


def _everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _weights(folder: Path) -> dict[str, bytes]:
    """Of the model and of the last checkpoints; other files have times in them."""
    return {
        name: content for name, content in _everything(folder).items() if name.endswith("model.safetensors")
    } | {path.name: path.read_bytes() for path in sorted(folder.rglob("training.safetensors"))[-1:]}


def _index(folder: Path) -> dict[str, bytes]:
    """LanceDB's files have random names: what is in them."""
    import lancedb

    table = lancedb.connect(str(folder / "index")).open_table("tokens").to_arrow()
    facts = json.loads((folder / "index" / "index.json").read_bytes())["facts"]
    columns = {name: repr(table[name].to_pylist()).encode() for name in table.column_names}
    return {**columns, "facts": json.dumps(facts).encode()} | {
        "sentences": (folder / "index" / "sentences.jsonl").read_bytes()
    }


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 14)))


def _tagged(draw: random.Random) -> str:
    words = _sentence(draw).split()
    rows = (f"{i}\t{w}\t{w}\t{'NOUN' if len(w) > 2 else 'DET'}" + "\t_" * 6 for i, w in enumerate(words, 1))
    return "\n".join(rows) + "\n"


def _tree(draw: random.Random) -> str:
    first, *rest = _sentence(draw).split()
    label = len(first) % 5
    tree = f"({label} {first})"
    for word in rest:
        tree = f"({label} {tree} (2 {word}))"
    return tree


def _save_model(folder: Path) -> None:
    from elmokit.checkpoint import Checkpoint
    from elmokit.model.bilm import BiLM, BiLMConfig
    from elmokit.model.char_encoder import CharEncoderConfig
    from elmokit.model.lstm import LSTMConfig
    from elmokit.model.seeding import seeded
    from elmokit.text.characters import ByteMapper
    from elmokit.text.tokens import TokenizerConfig

    encoder = CharEncoderConfig(embedding=4, filters=((1, 4), (2, 6)), highway=1)
    with seeded(1):
        bilm = BiLM(BiLMConfig(encoder, LSTMConfig(layers=2, cells=16, width=8))).eval()
    Checkpoint(bilm, ByteMapper(), TokenizerConfig("whitespace")).save(folder)
