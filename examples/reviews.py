"""A table of reviews and a bundled model: vectors of a column, the reviews nearest to a question, a classifier;
then the same by the commands.

    python examples/reviews.py [--out reviews-output] [--no-commands]
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

from elmokit import Elmo
from elmokit.analysis.probes.linear import fit

REVIEWS = Path(__file__).parent / "reviews.csv"
QUESTIONS = ["It broke after a few days.", "I would read this book again."]
FOLDS = 8  # the reviews in so many parts, each of them the test of what was learned from the others
LABEL = "sentiment"

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def in_fold(rows: list[Row], fold: int) -> np.ndarray:
    """Rows come in pairs, a good review and a bad one: a pair stays together."""
    return np.arange(len(rows)) // 2 % FOLDS == fold


def nearest(elmo: Elmo, questions: list[str], rows: list[Row], matrix: np.ndarray, count: int = 3) -> None:
    cosines = elmo.similarity(questions, matrix)  # [questions, reviews]
    for question, row in zip(questions, cosines):
        print(f"\nnearest to: {question}")
        for i in np.argsort(-row)[:count]:
            print(f"  {row[i]:.3f}  {rows[i]['review']}")


def classify(rows: list[Row], matrix: np.ndarray, column: str) -> float:
    """The share of reviews whose label a logistic regression finds that was learned without them."""
    names = sorted({row[column] for row in rows})
    labels = np.array([names.index(row[column]) for row in rows])
    right = 0
    for fold in range(FOLDS):
        test = in_fold(rows, fold)
        learned = fit(matrix[~test], labels[~test], len(names))
        right += int((learned.predict(matrix[test]) == labels[test]).sum())
    return right / len(rows)


def commands(folder: Path) -> list[list[str]]:
    """The same without a line of Python, on the files that `main` wrote to the folder."""
    train, dev = str(folder / "train.csv"), str(folder / "dev.csv")
    columns = ["--text-column", "review", "--label-column", "sentiment"]
    few = ["--set", "train.epochs=5"]
    return [
        ["embed", str(REVIEWS), "--text-column", "review", "--pooling", "mean", "-o", str(folder / "reviews.npz")],
        ["probe", "text", train, dev, *columns],
        ["task", "train", "sentiment", "--train", train, "--dev", dev, *columns, *few, "-o", str(folder / "task")],
        ["task", "predict", str(folder / "task"), dev, "--text-column", "review"],
    ]


def run_commands(folder: Path) -> None:
    for command in commands(folder):
        print("\n$ elmo " + " ".join(command), flush=True)
        subprocess.run([sys.executable, "-m", "elmokit", *command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reviews-output"))
    parser.add_argument("--no-commands", action="store_true", help="the Python half alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    rows = read(REVIEWS)
    elmo = Elmo.from_pretrained("en-small")
    matrix = elmo.encode([row["review"] for row in rows], show_progress=sys.stderr.isatty())
    print(f"{len(rows)} reviews: a matrix {matrix.shape}")
    nearest(elmo, QUESTIONS, rows, matrix)

    accuracy = classify(rows, matrix, LABEL)
    print(f"\ngood or bad: {accuracy:.0%} right, by chance 50%: {len(rows)} are few to learn from")
    test = in_fold(rows, 0)
    write(options.out / "train.csv", [row for row, held in zip(rows, test) if not held])
    write(options.out / "dev.csv", [row for row, held in zip(rows, test) if held])
    if not options.no_commands:
        run_commands(options.out)


if __name__ == "__main__":
    main()
