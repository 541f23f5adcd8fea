"""Does a sampled softmax's step cost the same for any vocabulary? 10,000, 100,000 and 800,000 words, interleaved.

    .venv/bin/python benchmarks/sampled_softmax.py [--rounds 12] [--optimizer adamw] [--words 10000 100000 800000]

A step is what pretraining does for the softmax: draw 8,192 negatives, gather the rows in play, loss and gradients
of 2 x 640 positions of width 128 (both directions, shared negatives), and the update of the rows.
Targets are Zipfian. Milliseconds are the best of all rounds, part by part and as a whole.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch

from elmokit.model.language_head import LanguageHead
from elmokit.model.sampling import LogUniformSampler
from elmokit.pretrain.optimizer import OptimizerConfig, RowOptimizer

POSITIONS, WIDTH, NEGATIVES = 640, 128, 8192  # positions of one direction
PARTS = ("draw", "gather", "loss", "update", "whole")


class Step:
    def __init__(self, words: int, config: OptimizerConfig) -> None:
        self.words = words
        self.head, self.sampler = LanguageHead(words, WIDTH), LogUniformSampler(words)
        self.optimizer = RowOptimizer(self.head.weight, self.head.bias, config)
        self.generator = np.random.default_rng(0)
        self.touched = 0

    def run(self) -> tuple[float, ...]:
        """Seconds of each of PARTS."""
        zipf = np.exp(self.generator.random((2, POSITIONS)) * math.log(self.words)).astype(np.int64)
        targets = torch.from_numpy(np.minimum(zipf, self.words) - 1)
        h = torch.randn(2, POSITIONS, WIDTH, requires_grad=True)
        times = [time.perf_counter()]
        negatives = self.sampler.sample(NEGATIVES, self.generator)
        times.append(time.perf_counter())
        rows = self.head.rows(targets, negatives.ids)
        times.append(time.perf_counter())
        losses = [rows.sampled_loss(x, target, negatives, self.sampler) for x, target in zip(h, targets)]
        (sum(losses) / targets.numel()).backward()
        times.append(time.perf_counter())
        self.optimizer.step(rows, 1e-3)
        times.append(time.perf_counter())
        self.touched = len(rows.ids)
        return (*np.diff(times), times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--optimizer", choices=["adamw", "adagrad"], default="adamw")
    parser.add_argument("--words", type=int, nargs="+", default=[10_000, 100_000, 800_000])
    arguments = parser.parse_args()
    torch.manual_seed(0)
    steps = [Step(words, OptimizerConfig(kind=arguments.optimizer)) for words in arguments.words]
    for step in steps:
        step.run()  # the first step of a sampler counts how many draws it is going to need
    rounds = np.array([[step.run() for step in steps] for _ in range(arguments.rounds)])  # [rounds, steps, parts]
    best = 1e3 * rounds.min(axis=0)
    print(f"{torch.get_num_threads()} threads, {arguments.optimizer}, best of {arguments.rounds}; milliseconds")
    print(f"{'words':>8} {'rows':>6} " + " ".join(f"{part:>7}" for part in PARTS) + "   ratio")
    for step, parts in zip(steps, best):
        figures = " ".join(f"{value:7.2f}" for value in parts)
        print(f"{step.words:>8,} {step.touched:>6,} {figures} {parts[-1] / best[0, -1]:7.2f}")
    print(f"slowest / fastest: {best[:, -1].max() / best[:, -1].min():.2f}")


if __name__ == "__main__":
    main()
