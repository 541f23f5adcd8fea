"""How busy are 1, 2, 4, 8 or 16 threads? The library's own split of the work, replayed: cores are not needed.

    .venv/bin/python benchmarks/threads.py [--recipe small] [--weights float32]

Each task of a split (some rows of one direction, or some words and filters) is timed by itself, on one thread, in
CPU time. Then threads take the tasks in their order, as the library's do: how long the last one works, and what
share of their time all threads are idle. What cores take from each other (memory, caches, clock) is left out.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from functools import cache
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.char_encoder import CharEncoder
from elmokit.model.kernels import convolution, recurrent
from elmokit.model.kernels.cache import trust_versions
from elmokit.model.kernels.library import call, library
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.structs import PANEL
from elmokit.pretrain.recipe import load_recipe

THREADS = (1, 2, 3, 4, 8, 16)
DIRECTIONS = 2
BLOCK = 48  # rows, as in kernels.h
REPEATS = 7
HEAD = "| case | threads | tasks | idle | times as fast |"


def replay(tasks: Sequence[float], threads: int) -> float:
    """When the last of these tasks is done, where each free thread takes the next."""
    free = [0.0] * threads
    for task in tasks:
        heapq.heappush(free, heapq.heappop(free) + task)
    return max(free)


def idle(tasks: Sequence[float], threads: int) -> float:
    """The share of all threads' time in which there is nothing to do."""
    return 1 - sum(tasks) / (threads * replay(tasks, threads))


def split(lengths: Tensor, threads: int) -> list[int]:
    """lengths [B], the longest first -> where the library cuts the rows."""
    counted, ends = lengths.to(torch.int32), torch.empty(len(lengths) + 1, dtype=torch.int64)
    loaded = library()
    assert loaded is not None
    count = loaded.elmo_split(counted.data_ptr(), len(counted), DIRECTIONS, threads, ends.data_ptr())
    return ends[:count].tolist()


def best(run: Callable[[], object]) -> float:
    """CPU seconds of this thread in the library, the best of some runs."""
    seconds = []

    def timed(*arguments: object) -> None:
        start = time.thread_time()
        call(*arguments)  # type: ignore[arg-type]
        seconds[-1] += time.thread_time() - start

    with patch.object(recurrent, "call", timed), patch.object(convolution, "call", timed):
        for _ in range(REPEATS):
            seconds.append(0.0)
            run()
    return min(seconds)


def rows_cost(bilm: BiLM, lengths: Tensor) -> float:
    """Seconds of one direction of these rows, all layers."""
    x = torch.randn(len(lengths), int(lengths.max()), bilm.config.lstm.width)
    mask = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
    return best(lambda: bilm.contextualize(x, mask)) / DIRECTIONS


def sentences(count: int | None = None, tokens: int | None = None) -> Tensor:
    """Lengths like those of English text, boundaries included; the longest first."""
    drawn = np.random.default_rng(0).lognormal(3.0, 0.6, 2000).round().clip(3, 120).astype(np.int64)
    if count is None:
        count = int(np.searchsorted(drawn.cumsum(), tokens)) + 1
    return torch.from_numpy(np.sort(drawn[:count])[::-1].copy())


def show(name: str, alone: float, tasks: Sequence[float], threads: int) -> None:
    faster = alone / replay(tasks, threads)
    print(f"| {name} | {threads} | {len(tasks)} | {100 * idle(tasks, threads):.0f} % | {faster:.1f} |", flush=True)


def lstms(name: str, bilm: BiLM, lengths: Tensor) -> None:
    costs: dict[tuple[int, int], float] = {}
    for threads in THREADS:
        ends = split(lengths, threads)
        parts = list(itertools.pairwise(ends))
        for part in parts:
            costs[part] = costs[part] if part in costs else rows_cost(bilm, lengths[slice(*part)])
        show(name, DIRECTIONS * costs[0, len(lengths)], DIRECTIONS * [costs[part] for part in parts], threads)


def words(name: str, encoder: CharEncoder, count: int) -> None:
    """Tasks as elmo_convolve makes them: runs of words for the last filters, then for those before them."""
    embedding, *weights = encoder._table_weights()
    tables = convolution.make_tables(embedding, weights)
    ids = torch.randint(1, len(embedding), (64, 12))

    @cache
    def cost(filters: int, size: int) -> float:
        table, number = tables[filters], encoder.config.filters[filters][1]
        return best(lambda: convolution.convolve([table], [number], ids[:size]))

    alone = 0.0
    for threads in THREADS:
        run = max(8, min(64, count // (2 * threads)))
        whole, rest = divmod(count, run)
        tasks: list[float] = []
        for filters in reversed(range(len(tables))):
            tasks += [cost(filters, run)] * whole + ([cost(filters, rest)] if rest else [])
        alone = alone or sum(tasks)
        show(name, alone, tasks, threads)


def panels(name: str, width: int, rows: int) -> None:
    """Tasks as PanelTasks (native/team.h) makes them of a highway layer; each costs its rows times its columns."""
    blocks, columns = -(-rows // BLOCK), width // PANEL
    for threads in THREADS:
        groups = max(1, min(columns, 16 * threads // blocks))
        sizes = [(i + 1) * columns // groups - i * columns // groups for i in range(groups)]
        tasks = [float(min(BLOCK, rows - block * BLOCK) * size) for block in range(blocks) for size in sizes]
        show(name, sum(tasks), tasks, threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--weights", choices=list(WEIGHT_FORMATS), default="float32")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bilm = BiLM(load_recipe(arguments.recipe, []).model).requires_grad_(False)
    bilm.weights = arguments.weights
    print(HEAD + "\n" + "|---" * (HEAD.count("|") - 1) + "|")
    with torch.no_grad(), trust_versions():
        lstms("1 sentence", bilm, torch.tensor([22]))
        for count in (32, 64):
            lstms(f"{count} sentences", bilm, sentences(count))
        lstms("4,096 tokens", bilm, sentences(tokens=4096))
        assert isinstance(bilm.encoder, CharEncoder)
        for count in (22, 300, 1000):
            words(f"{count} words, filters", bilm.encoder, count)
        for count in (22, 300, 1000):
            panels(f"{count} words, highway", sum(size for _, size in bilm.encoder.config.filters), count)


if __name__ == "__main__":
    main()
