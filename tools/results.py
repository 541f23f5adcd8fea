"""The tasks with ELMo and without, three seeds each, and the table of docs/results.md. `make results` runs it.

    .venv/bin/python tools/results.py --data ../shared/data --elmo en-small --out build/results [--tasks ner srl]

Every run is an `elmo task train`, on one thread; as many at a time as there are cores. Stopped, it goes on: what
is done is not done again, and what was begun is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmokit import __version__
from elmokit.atomic import write_file

ROOT = Path(__file__).parent.parent
GLOVE = "vectors/glove.6B.100d.50k.txt.xz"


@dataclass(frozen=True)
class Experiment:
    title: str
    train: str
    dev: str
    paper: str  # the paper's gain as it states it
    options: tuple[str, ...] = field(default=())


# The paper's relative error reductions are on other data (OntoNotes, CoNLL-2003, all of SNLI): for scale.
EXPERIMENTS = {
    "squad": Experiment(
        "question answering, SQuAD 1.1 (8,000 questions), F1",
        "squad/train-v1.1.json.xz",
        "squad/dev-v1.1.json.xz",
        "24.9",
        ("--limit", "8000"),
    ),
    "entailment": Experiment(
        "entailment, SNLI (20,000 pairs), accuracy", "snli/train.jsonl.xz", "snli/dev.jsonl.xz", "5.8"
    ),
    "srl": Experiment("semantic roles, web text, F1", "srl/train.conll.xz", "srl/dev.conll.xz", "17.2"),
    "coref": Experiment("coreference, LitBank, average F1", "coref/train.conll.xz", "coref/dev.conll.xz", "9.8"),
    "ner": Experiment("named entities, WNUT-17, F1", "ner/train.conll", "ner/dev.conll", "21"),
    "sentiment": Experiment("sentiment, SST-5, accuracy", "sst/train.txt", "sst/dev.txt", "6.8"),
    "pos": Experiment("parts of speech, UD EWT, accuracy", "pos/en-train.conllu.xz", "pos/en-dev.conllu", "-"),
}
VARIANTS = ("baseline", "elmo")


def command(task: str, variant: str, seed: int, folder: Path, arguments: argparse.Namespace) -> list[str]:
    experiment, data = EXPERIMENTS[task], arguments.data
    line = [sys.executable, "-m", "elmokit", "task", "train", task, "--out", str(folder), "--seed", str(seed)]
    line += ["--train", str(data / experiment.train), "--dev", str(data / experiment.dev)]
    line += ["--vectors", str(data / GLOVE), "--threads", "1", *experiment.options]
    return line + (["--elmo", arguments.elmo] if variant == "elmo" else [])


def runs(arguments: argparse.Namespace) -> Iterator[tuple[str, str, int, Path]]:
    """Seed by seed, so that a table is there early."""
    for seed in range(arguments.seeds):
        for task in arguments.tasks:
            for variant in VARIANTS:
                yield task, variant, seed, arguments.out / task / f"{variant}-{seed}"


def run(task: str, variant: str, seed: int, folder: Path, arguments: argparse.Namespace) -> None:
    if (folder / "results.json").is_file():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(
            command(task, variant, seed, folder, arguments), stdout=log, stderr=log, cwd=ROOT, env=environment
        )
    if done.returncode:
        print(f"{task} {variant} {seed} failed: {folder.parent / (folder.name + '.log')}", flush=True)
    else:
        found = json.loads((folder / "results.json").read_bytes())
        print(f"{task} {variant} {seed}: {found['score']:.2f} ({found['seconds'] / 60:.1f} min)", flush=True)


def collect(arguments: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for task, variant, _, folder in runs(arguments):
        if (folder / "results.json").is_file():
            result = json.loads((folder / "results.json").read_bytes())
            found.setdefault(task, {}).setdefault(variant, []).append(result)
    return found


def spread(scores: list[float]) -> str:
    deviation = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{deviation}"


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    lines = [
        "| task | baseline | + ELMo at the input | gain | error reduction | the paper's | seeds | minutes a run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, variants in found.items():
        if set(variants) != set(VARIANTS):
            continue
        scores = {variant: [result["score"] for result in results] for variant, results in variants.items()}
        base, elmo = (statistics.mean(scores[variant]) for variant in VARIANTS)
        minutes = [statistics.mean(r["seconds"] for r in variants[v]) / 60 for v in VARIANTS]
        lines.append(
            f"| {EXPERIMENTS[task].title} | {spread(scores['baseline'])} | {spread(scores['elmo'])} "
            f"| {elmo - base:+.2f} | {100 * (elmo - base) / (100 - base):.1f} % | {EXPERIMENTS[task].paper} % "
            f"| {min(map(len, scores.values()))} | {minutes[0]:.1f}, {minutes[1]:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--elmo", default="en-small")
    parser.add_argument("--out", type=Path, default=ROOT / "build/results")
    parser.add_argument("--tasks", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--write", type=Path, help="also put the table into this page, between its two marks")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda each: run(*each, arguments), list(runs(arguments))))
    found = collect(arguments)
    text = table(found)
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_file(arguments.out / "results.json", json.dumps({"elmokit": __version__, "results": found}).encode())
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        before, _, rest = page.partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end -->")
        write_file(arguments.write, f"{before}<!-- table -->\n{text}\n<!-- end -->{after}".encode())


if __name__ == "__main__":
    main()
