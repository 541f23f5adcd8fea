"""How long one sentence takes: 16 tokens, none of whose words is known (cold) or all of them are (warm).

    .venv/bin/python benchmarks/latency.py [--recipe small] [--weights float32 ...] [--seconds 3] [--threads 2]

Prints the median, the 99th percentile and the shortest of many calls, in milliseconds, interleaved; and where the
time goes: words (characters, highway, projection) and LSTMs (with what is given out), each timed by itself as a
call of the library; and Python, the processor's time of calls in which the library does nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from unittest.mock import patch

import numpy as np
import torch

from elmokit import Elmo
from elmokit.model import kernels
from elmokit.model.kernels import reading
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.reading import Tokens, packed_model, read

SENTENCE = "the river runs past a town where people sell bread and fish on the old bridge".split()
_numbers = count()


def unknown() -> list[str]:
    """The sentence in words that nobody has met, about as long."""
    number = next(_numbers)
    return [f"{word}{number:x}" for word in SENTENCE]


def milliseconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    run()
    return 1000 * (clock() - begun)


class Ways:
    """What is timed, of one model."""

    def __init__(self, elmo: Elmo) -> None:
        self.elmo = elmo
        self._model = packed_model(elmo._bilm)
        with torch.inference_mode(), elmo.token_layer.placed([unknown()], self._model.encoder) as new:
            read(self._model, new)
        self._new = new
        self._known = new._replace(ids=new.ids[:0])
        self._words = Tokens(new.table, new.places[:0], new.lengths[:0], new.ids, new.first)
        self.times: dict[str, list[float]] = {way: [] for way in ("cold", "warm", "words", "LSTMs")}

    def once(self) -> None:
        """Each way, once."""
        sentence = unknown()
        with torch.inference_mode():
            self.times["cold"].append(milliseconds(lambda: self.elmo.embed([sentence])))
            self.times["warm"].append(milliseconds(lambda: self.elmo.embed([sentence])))
            self.times["words"].append(milliseconds(lambda: read(self._model, self._words)))
            self.times["LSTMs"].append(milliseconds(lambda: read(self._model, self._known)))

    def python(self, known: bool) -> float:
        """Without the library's own work, which is not done here: milliseconds of the processor."""
        times = []
        with torch.inference_mode(), patch.object(reading, "call", lambda *_: None):
            for _ in range(200):
                sentence = SENTENCE if known else unknown()
                times.append(milliseconds(partial(self.elmo.embed, [sentence]), time.thread_time))
        return float(np.median(times))

    def lines(self) -> Iterator[str]:
        median = {way: float(np.median(times)) for way, times in self.times.items()}
        for way, parts in (("cold", ("words", "LSTMs")), ("warm", ("LSTMs",))):
            shares = [f"{part} {median[part]:.2f}" for part in parts]
            worst, best = np.percentile(self.times[way], 99), min(self.times[way])
            yield (
                f"{way}: p50 {median[way]:.2f} ms, p99 {worst:.2f}, best {best:.2f}; "
                f"{', '.join(shares)}, Python {self.python(way == 'warm'):.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="small", help="a recipe's name or file")
    parser.add_argument("--weights", nargs="+", choices=WEIGHT_FORMATS, default=list(WEIGHT_FORMATS))
    parser.add_argument("--seconds", type=float, default=3.0, help="in all, for each of the weights")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{kernels.variant()}, {arguments.threads} threads, {arguments.recipe}, {len(SENTENCE)} tokens")
    ways = {weights: Ways(Elmo.from_recipe(arguments.recipe, weights=weights)) for weights in arguments.weights}
    until = time.perf_counter() + arguments.seconds * len(ways)
    while time.perf_counter() < until or len(next(iter(ways.values())).times["cold"]) < 3:
        for each in ways.values():
            each.once()
    for weights, each in ways.items():
        for line in each.lines():
            print(f"{weights:<8} {line}")


if __name__ == "__main__":
    main()
