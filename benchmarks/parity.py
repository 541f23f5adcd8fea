"""How exact is it? Largest differences from the published fixture, from the NumPy reference, and between batches.

.venv/bin/python benchmarks/parity.py [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import h5py
import numpy as np

from elmokit import Elmo

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from reference import ReferenceBiLM  # noqa: E402


def largest(pairs: object) -> float:
    return max(float(np.abs(one - two).max()) for one, two in pairs)  # type: ignore[attr-defined]


def fixture(folder: Path) -> None:
    options, weights = folder / "options.json", folder / "lm_weights.hdf5"
    stream = json.loads((folder / "sentences.json").read_text())[0]
    ours = Elmo.from_original(options, weights, state="carry").embed(stream)
    with h5py.File(folder / "lm_embeddings_0.hdf5") as file:
        published = [np.concatenate(list(file[str(i)][...]), axis=-1) for i in range(len(stream))]
    reference, state, expected = ReferenceBiLM(options, weights), None, []
    for sentence in stream:
        layers, state = reference.layers(sentence.split(), state)
        expected.append(layers)
    print(f"published fixture, top layer, carry     {largest((o[2], p) for o, p in zip(ours, published)):.1e}")
    print(f"NumPy reference, all layers, carry      {largest(zip(ours, expected)):.1e}")


def batches(name: str, elmo: Elmo, sentences: list[list[str]]) -> None:
    together = elmo.embed(sentences)
    alone = [elmo.embed([sentence])[0] for sentence in sentences]
    order = random.Random(1).sample(range(len(sentences)), len(sentences))
    shuffled = elmo.embed([sentences[i] for i in order])
    print(
        f"{name:<9} together or alone: {largest(zip(together, alone)):.1e}   "
        f"in another order: {largest((together[i], array) for i, array in zip(order, shuffled)):.1e}   "
        f"(values up to {max(float(np.abs(array).max()) for array in together):.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    folder = parser.parse_args().data / "original_elmo"
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(1, 9))) for _ in range(500)]
    sentences = [rng.choices(words, k=rng.randint(1, 40)) for _ in range(60)]
    if folder.is_dir():
        fixture(folder)
        pair = folder / "options.json", folder / "lm_weights.hdf5"
        batches("fixture", Elmo.from_original(*pair), sentences)
    else:
        print(f"no published fixture at {folder}: left out")
    for recipe in ("tiny", "small", "original"):
        batches(recipe, Elmo.from_recipe(recipe, seed=0), sentences)


if __name__ == "__main__":
    main()
