"""Does memory stay flat? Resident memory of `elmo embed` over 100,000 sentences, sampled all the way.

    .venv/bin/python benchmarks/embed_memory.py [--sentences 100000] [--recipe tiny] [--suffix .h5] [--text FILE]

The text is FILE's lines (plain or compressed), repeated as needed; without one, made-up sentences of 3 to 40
words from a vocabulary of 50,000. Prints memory by tenths of the work; "flat" compares the largest value after
the first tenth with the value at its end.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from elmokit import Elmo
from elmokit.text.corpus import LineReader

SAMPLE = 0.2  # seconds


def made_up() -> Iterator[str]:
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(50_000)]
    while True:
        yield " ".join(rng.choices(words, k=rng.randint(3, 40)))


def of_file(path: Path) -> Iterator[str]:
    with LineReader(path, "skip") as lines:
        kept = [line.text for line in islice(lines, 200_000) if 0 < len(line.text) < 400]
    return cycle(kept)


def resident(pid: int) -> float:
    """Megabytes that are the process's own: what the kernel counts as RSS, without mapped files."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--suffix", default=".h5")
    parser.add_argument("--text", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Elmo.from_recipe(arguments.recipe).save(folder / "model")
        sentences = of_file(arguments.text) if arguments.text else made_up()
        with (folder / "text.txt").open("w", encoding="utf-8") as file:
            file.writelines(sentence + "\n" for sentence in islice(sentences, arguments.sentences))
        output = folder / f"out{arguments.suffix}"
        command = ["embed", str(folder / "text.txt"), "-o", str(output), "-m", str(folder / "model")]
        script = f"import sys; sys.argv = ['elmo', *{command!r}]; from elmokit.cli import main; main()"
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", script])
        samples: list[tuple[int, float]] = []  # bytes of vectors so far, megabytes
        vectors = folder / f"{output.name}.partial" / "vectors.bin"
        while process.poll() is None:
            try:
                samples.append((vectors.stat().st_size if vectors.exists() else 0, resident(process.pid)))
            except (OSError, KeyError):
                break  # it has just ended
            time.sleep(SAMPLE)
        if process.wait():
            raise SystemExit("elmo embed failed")
        seconds = time.perf_counter() - start
        print(f"{arguments.sentences:,} sentences, {output.stat().st_size / 1e9:.2f} GB in {seconds:.0f} s")
        show(samples)


def show(samples: list[tuple[int, float]]) -> None:
    total = max(size for size, _ in samples)
    first = next(i for i, (size, _) in enumerate(samples) if size >= total / 10)
    for tenth in range(1, 11):
        here = [memory for size, memory in samples if (tenth - 1) * total / 10 <= size <= tenth * total / 10]
        if here:
            print(f"  tenth {tenth:>2}: up to {max(here):7.1f} MB")
    at_first, after = samples[first][1], max(memory for _, memory in samples[first:])
    print(f"after the first tenth {at_first:.1f} MB, at most {after:.1f} MB later: x {after / at_first:.3f}")


if __name__ == "__main__":
    main()
