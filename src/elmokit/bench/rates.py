"""Rates: the best of several rounds in which contenders take turns, and the largest that products reach here."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, TypeVar

import torch

from elmokit.progress import OnProgress, Progress, silent

K = TypeVar("K", bound=Hashable)
Precision = Literal["float32", "bfloat16", "int8"]
TYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}
SIDES = (256, 512, 1024, 2048, 3072)  # of square matrices
LONGEST = 1.0  # seconds


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_seconds(
    works: Mapping[K, Callable[[], float]],
    rounds: int,
    least: float = 0.0,
    *,
    allowed: float = float("inf"),
    best: dict[K, float] | None = None,
    stage: str = "measuring",
    on_progress: OnProgress = silent,
) -> dict[K, float]:
    """The least seconds that each work says it took. They take turns: what disturbs the machine meets them all.

    least    a turn lasts so many seconds at least: what takes less is done again.
    allowed  no round begins after so many seconds; the first one always does.
    best     is filled, and given back: whoever stops this midway has what is known.
    """
    best = {} if best is None else best
    last = time.perf_counter() + allowed
    for turn in range(rounds):
        if turn and time.perf_counter() > last:
            break
        for number, (name, work) in enumerate(works.items()):
            on_progress(Progress(stage, turn * len(works) + number, rounds * len(works)))
            end = time.perf_counter() + least
            best[name] = min(best.get(name, float("inf")), work())
            while time.perf_counter() < end:
                best[name] = min(best[name], work())
    on_progress(Progress(stage, rounds * len(works), rounds * len(works)))
    return best


def largest_rate(precision: Precision = "float32", longest: float = LONGEST) -> float:
    """Operations a second (two a multiply-add) of big products by torch, at their best: the GEMM limit.

    longest  seconds: a product that would take longer is not tried. Where there is no hardware for them, all do.
    """
    multiply = torch._int_mm if precision == "int8" else torch.mm
    rate = 0.0
    for side in SIDES:
        operations = 2 * side**3
        if rate and operations / rate > longest:
            break
        a = torch.ones(side, side).to(TYPES[precision])
        rate = max(rate, *(operations / seconds(lambda a=a: multiply(a, a)) for _ in range(3)))  # type: ignore[misc]
    return rate


def measurable(instruction_sets: tuple[str, ...]) -> list[Precision]:
    """The precisions whose products torch has, and for bfloat16 the processor too."""
    has_bfloat16 = bool({"BF16", "AMX"}.intersection(instruction_sets))
    return [
        precision
        for precision in TYPES
        if (precision != "bfloat16" or has_bfloat16) and (precision != "int8" or hasattr(torch, "_int_mm"))
    ]
