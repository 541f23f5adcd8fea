"""Where a training step's time goes, and how many FLOPs its products really are.

`Parts` stands around the functions of a step while it is watched; what is left over is "the rest". Backwards,
characters and highway last from the gradient of what they gave to that of what they were given.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from elmokit.model.char_encoder import CharEncoder, CharEncoderConfig, Highway
from elmokit.model.kernels import bfloat16, bfloat16_layer, recurrent
from elmokit.model.kernels.bfloat16 import Precision
from elmokit.pretrain import muon
from elmokit.pretrain.optimizer import Optimizer
from elmokit.pretrain.step import Trainer
from elmokit.pretrain.windows import Window

PARTS = (
    *("characters", "highway", "LSTM forward", "LSTM backward", "weight gradients", "softmax", "optimizer"),
    # Maps: the first layer's share of distinct tokens, and that before the softmax.
    *("maps, backward", "the rest"),
)
NATIVE = {
    "elmo_forward": "LSTM forward",
    "elmo_forward16": "LSTM forward",
    "elmo_backward": "LSTM backward",
    "elmo_backward16": "LSTM backward",
    "elmo_weights16": "weight gradients",
}


class Parts:
    """Seconds by part of what runs inside `watching()`; a part within a part counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._open = ["the rest"]
        self._since = 0.0

    def _turn(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def enter(self, part: str) -> None:
        self._turn()
        self._open.append(part)

    def leave(self) -> None:
        self._turn()
        self._open.pop()

    def watched(self, part: str | Callable[..., str], function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            self.enter(part if isinstance(part, str) else part(*given))
            try:
                return function(*given, **named)
            finally:
                self.leave()

        return run

    def _with_backward(self, part: str, forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Backwards it lasts from the gradient of its result to that of its argument, or to the end."""

        def run(module: Any, x: Tensor, *others: Any) -> Tensor:
            y: Tensor = self.watched(part, forward)(module, x, *others)
            if y.requires_grad:
                y.register_hook(lambda _: self.enter(part))
            if x.requires_grad:
                x.register_hook(lambda _: self.leave())
            return y

        return run

    def _backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        def run(*given: Any, **named: Any) -> None:
            depth = len(self._open)
            backward(*given, **named)
            while len(self._open) > depth:
                self.leave()

        return run

    def _map(self) -> str:
        return "maps, backward" if len(self._open) == 1 else self._open[-1]

    @contextmanager
    def watching(self) -> Iterator[None]:
        functions: list[tuple[Any, str, str | Callable[..., str]]] = [
            (bfloat16_layer, "_call", lambda function, *_: NATIVE[function]),
            (recurrent, "_call", lambda function, *_: NATIVE[function]),
            (recurrent, "layer_of_repeated", "LSTM forward"),  # its shares, before the loop over time
            (recurrent, "_layer_gradients", "weight gradients"),
            (
                bfloat16._Linear,
                "backward",
                lambda *_: self._map(),
            ),
            (Trainer, "_losses", "softmax"),
            (Optimizer, "step", "optimizer"),
        ]
        changes = [(place, name, self.watched(part, getattr(place, name))) for place, name, part in functions]
        changes += [
            (CharEncoder, "encode", self._with_backward("characters", CharEncoder.encode)),
            (Highway, "forward", self._with_backward("highway", Highway.forward)),
            (Tensor, "backward", self._backward(Tensor.backward)),
        ]
        with ExitStack() as stack:
            for place, name, change in changes:
                stack.enter_context(patch.object(place, name, change))
            self._since = time.perf_counter()
            yield
            self._turn()


def computed_flops(trainer: Trainer, window: Window) -> dict[str, float]:
    """FLOPs of a step's products as they are computed, backward too: what is looked up or shared is not counted.

    Distinct tokens are encoded once, and where precision and dropout allow it their share of the first layer's
    gates is made once for a direction. A sampled softmax has one column more than negatives; in truth it has one
    for each target that is no negative. Muon's products are apart: they are no part of the model.
    """
    config, train = trainer.bilm.config, trainer.config
    encoder, lstm, head = config.encoder, config.lstm, trainer.head
    assert isinstance(encoder, CharEncoderConfig)
    both = window.forward_inputs, window.backward_inputs
    tokens, filters = window.begins.size, sum(count for _, count in encoder.filters)
    distinct = np.unique(both).size
    once = trainer.precision == "bfloat16" and train.dropout == 0
    first = sum(np.unique(inputs).size for inputs in both) if once else 2 * tokens
    columns = len(head.bias) if trainer.sampler is None else train.negatives + 1
    gates, width = 4 * lstm.cells * lstm.width, head.softmax_width
    products = {
        "highway": distinct * encoder.highway * 2 * filters**2,
        "projection": distinct * encoder.features * lstm.width * encoder.projection,
        "LSTM, input": (first + 2 * tokens * (lstm.layers - 1)) * gates,
        "LSTM, recurrent": 2 * tokens * lstm.layers * gates,
        "LSTM, projection": 2 * tokens * lstm.layers * lstm.cells * lstm.width,
        "softmax": 2 * window.tokens * (columns * width + (width != lstm.width) * width * lstm.width),
    }
    return {part: 3.0 * 2.0 * count for part, count in products.items()}


def muon_flops(matrices: Sequence[Tensor], every: int, halves: bool = False) -> float:
    """Of a step: of each block the Gram matrix, the polynomials' products, and the block times the root.

    halves: of what is symmetric, only the panels of 32 columns from the diagonal on are computed.
    """
    iterations = len(muon.COEFFICIENTS)
    count = 0.0
    for block in (block for matrix in matrices for block in muon.blocks_of(matrix.detach())):
        small, large = sorted(block.shape)
        panels = -(-small // 32)
        share = (panels + 1) / (2 * panels) if halves else 1.0
        count += small**2 * large * (1 + share) + (4 * iterations - 3) * small**3 * share
    return 2.0 * count / every


def peak(precision: Precision) -> float:
    """FLOP/s of torch.mm at this precision, at its best."""
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    rates = []
    for side in (1024, 2048, 3072):
        square = torch.ones(side, side, dtype=dtype)
        start = time.perf_counter()
        torch.mm(square, square)
        rates.append(2 * side**3 / (time.perf_counter() - start))
    return max(rates)


class StepFigures:
    """Steps of several trainers over the same windows: the best of each, beside the peak of its precision."""

    def __init__(self, trainers: dict[str, Trainer]) -> None:
        self.trainers = trainers
        self.best: dict[str, dict[str, float]] = {name: {} for name in trainers}  # seconds by part
        self.rates = dict.fromkeys(trainers, 0.0)  # FLOP/s of the model's products
        self.with_muon = dict.fromkeys(trainers, 0.0)
        self.steps = dict.fromkeys(trainers, float("inf"))  # seconds
        self.peaks: dict[Precision, float] = {each.precision: 0.0 for each in trainers.values()}

    def step(self, name: str, window: Window) -> float:
        """One step, on what must be its next window: its seconds."""
        trainer, parts = self.trainers[name], Parts()
        with parts.watching():
            trainer.train_step(0.5)
        took = sum(parts.seconds.values())
        flops = sum(computed_flops(trainer, window).values())
        updates = trainer.optimizer.muon
        more = muon_flops(updates.matrices, updates.every, halves=trainer.precision == "bfloat16")
        self.rates[name] = max(self.rates[name], flops / took)
        self.with_muon[name] = max(self.with_muon[name], (flops + more) / took)
        self.steps[name] = min(self.steps[name], took)
        best = self.best[name]
        self.best[name] = {part: min(parts.seconds[part], best.get(part, float("inf"))) for part in PARTS}
        return took

    def measure_peaks(self) -> None:
        for precision in self.peaks:
            self.peaks[precision] = max(self.peaks[precision], peak(precision))

    def show(self) -> None:
        peaks = {name: self.peaks[trainer.precision] for name, trainer in self.trainers.items()}
        rows: dict[str, list[str]] = {
            "best step, ms": [f"{1e3 * self.steps[name]:.1f}" for name in peaks],
            "peak, GFLOP/s": [f"{each / 1e9:.0f}" for each in peaks.values()],
            "of the peak": [f"{self.rates[name] / each:.1%}" for name, each in peaks.items()],
            "and Muon's products": [f"{self.with_muon[name] / each:.1%}" for name, each in peaks.items()],
            **{f"{part}, ms": [f"{1e3 * self.best[name][part]:.1f}" for name in peaks] for part in PARTS},
        }
        print(f"\n{'':<22}" + "".join(f"{name:>20}" for name in peaks))
        for row, figures in rows.items():
            print(f"{row:<22}" + "".join(f"{figure:>20}" for figure in figures))
