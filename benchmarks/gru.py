"""How fast does a task's biGRU train? That of elmokit, beside two of torch's, one of them over turned sentences.

    .venv/bin/python benchmarks/gru.py [--rounds 12] [--sentences 20] [--tokens 150] [--inputs 100 612]

A step is forward and backward, gradients of x included, over ragged sentences: the longest of --tokens, the
shortest of half as many. Contenders take turns, round by round; milliseconds are those of the best round, of
either part and as a whole. "apart" is the largest difference of outputs, and of gradients of x.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.tasks.nn.bilstm import reversed_positions
from elmokit.tasks.nn.gru import BiGRU

PARTS = ("forward", "backward", "whole")


class TorchBiGRU(nn.Module):
    """torch's, with the weights of ours: a module a direction. x [B, T, I], mask [B, T] -> [B, T, 2H]."""

    def __init__(self, ours: BiGRU) -> None:
        super().__init__()
        cells = ours.width // 2
        self.forwards, self.backwards = (
            nn.GRU(ours.input_weight.shape[-1], cells, batch_first=True) for _ in range(2)
        )
        with torch.no_grad():
            for direction, gru in enumerate((self.forwards, self.backwards)):
                gru.weight_ih_l0.copy_(ours.input_weight[direction])
                gru.weight_hh_l0.copy_(ours.state_weight[direction])
                gru.bias_ih_l0.copy_(ours.bias[direction])
                gru.bias_hh_l0.zero_()[2 * cells :] = ours.state_bias[direction]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        turned = reversed_positions(mask).unsqueeze(-1)  # [B, T, 1]
        left, _ = self.forwards(x)
        right, _ = self.backwards(x.gather(1, turned.expand_as(x)))
        return torch.cat([left, right.gather(1, turned.expand_as(right))], dim=-1) * mask.unsqueeze(-1)


def step(gru: nn.Module, x: Tensor, mask: Tensor, upstream: Tensor) -> tuple[tuple[float, ...], Tensor, Tensor]:
    """Seconds of each of PARTS; the output, and the gradient of x."""
    x = x.clone().requires_grad_()
    gru.zero_grad(set_to_none=True)
    begun = time.perf_counter()
    output = gru(x, mask)
    between = time.perf_counter()
    output.backward(upstream)
    ended = time.perf_counter()
    return (between - begun, ended - between, ended - begun), output.detach(), x.grad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--inputs", type=int, nargs="+", default=[100, 612])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    torch.manual_seed(0)
    size, count, cells = arguments.sentences, arguments.tokens, arguments.cells
    mask = torch.arange(count) < torch.linspace(count, count / 2, size).long().unsqueeze(1)
    upstream = torch.randn(size, count, 2 * cells)
    print(
        f"{torch.get_num_threads()} threads, {size} x {count} tokens, {cells} cells, best of {arguments.rounds}; "
        "milliseconds"
    )
    print(f"{'inputs':>6} {'':<8}" + " ".join(f"{part:>8}" for part in PARTS))
    for inputs in arguments.inputs:
        ours = BiGRU(inputs, cells)
        contenders = {"torch": TorchBiGRU(ours), "elmokit": ours}
        x = torch.randn(size, count, inputs)
        warm = [step(gru, x, mask, upstream)[1:] for gru in contenders.values()]
        apart = [float((one - other).abs().max()) for one, other in zip(*warm)]
        rounds = [
            [step(gru, x, mask, upstream)[0] for gru in contenders.values()] for _ in range(arguments.rounds)
        ]  # [rounds, contenders, parts]
        best = 1e3 * np.array(rounds).min(axis=0)
        for name, parts in zip(contenders, best):
            print(f"{inputs:>6} {name:<8}" + " ".join(f"{value:8.1f}" for value in parts))
        ratios = " ".join(f"{value:8.2f}" for value in best[0] / best[1])
        print(f"{inputs:>6} {'x':<8}{ratios}   apart: {apart[0]:.0e}, {apart[1]:.0e}")


if __name__ == "__main__":
    main()
