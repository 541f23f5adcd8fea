"""What it costs to know that packed weights are still the model's: with the check and without, interleaved.

    .venv/bin/python benchmarks/weight_check.py [--models en-small small original] [--seconds 2] [--rounds 5]

Once a model has been handed out (`elmo.bilm`), every call hashes the weights that were packed: edits through
`.data` or NumPy leave no other trace. `kernels.trust_versions()` promises that there are none. A model that nobody
but its `Elmo` has is not hashed. Prints the best time of each, in milliseconds, and the ratio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from elmokit import Elmo
from elmokit.model import kernels
from elmokit.model.recipe import recipe_names
from elmokit.sources.bundled import bundled_names

WORDS = (
    "the river runs past a town where people sell bread and fish on the old bridge until it gets dark .".split()
)
CASES = {"1 sentence of 21 tokens": [WORDS], "32 sentences": [WORDS[: 5 + i % 17] for i in range(32)]}


def open_model(name: str) -> Elmo:
    if name in bundled_names() or name not in recipe_names():
        return Elmo.from_pretrained(name)
    return Elmo.from_recipe(name)


def best(elmo: Elmo, sentences: Sequence[Sequence[str]], seconds: float) -> float:
    """The shortest time of a call, in milliseconds."""
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        begun = time.perf_counter()
        elmo.embed(sentences)
        times.append(time.perf_counter() - begun)
    return 1000 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["en-small", "small"], help="bundled names, folders or recipes"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{kernels.variant()}, {torch.get_num_threads()} threads")
    for name in arguments.models:
        elmo = open_model(name)
        for case, sentences in CASES.items():
            kept: dict[str, list[float]] = {"private": [], "trusted": [], "checked": []}
            best(elmo, sentences, 0.0)  # packs, and fills the table of words
            for _ in range(arguments.rounds):
                elmo.bilm.private = True
                kept["private"].append(best(elmo, sentences, arguments.seconds))
                assert not elmo.bilm.private  # handed out by being asked
                kept["checked"].append(best(elmo, sentences, arguments.seconds))
                with kernels.trust_versions():
                    kept["trusted"].append(best(elmo, sentences, arguments.seconds))
            times = {way: min(found) for way, found in kept.items()}
            shown = ", ".join(f"{way} {value:.2f} ms" for way, value in times.items())
            print(
                f"{name:<10} {case:<24} {shown}; checked is x {times['checked'] / times['private']:.3f} of private"
            )


if __name__ == "__main__":
    main()
