"""weights="auto": the fastest format of weights whose measured scores stay with float32's.

`benchmarks/precision.py` measures what `DIFFERENCES` holds: probes are learned from float32's vectors and measured
with each format, for the bundled models. Of a model of your own this says nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from elmokit.model.kernels.packing import WeightFormat

Unit = Literal["vnni", "bf16"]  # products of int8 and of bfloat16 in hardware, beside AVX-512
EXACT: WeightFormat = "float32"
WITHIN = 0.1  # points that a probe's score may differ from float32's, up or down


@dataclass(frozen=True)
class Difference:
    """Of one probe's scores from float32's, in points: the lowest and highest of its rows (layers, their mean)."""

    probe: str
    lowest: float
    highest: float

    @property
    def within(self) -> bool:
        return self.lowest >= -WITHIN and self.highest <= WITHIN


DIFFERENCES: dict[WeightFormat, tuple[Difference, ...]] = {}


def faithful(weights: WeightFormat) -> bool:
    """Whether it was measured, and every bundled probe stays within `WITHIN` of float32; float32 does."""
    measured = DIFFERENCES.get(weights, ())
    return weights == EXACT or (bool(measured) and all(difference.within for difference in measured))


def by_speed(variant: str, units: Collection[Unit] = ()) -> tuple[WeightFormat, ...]:
    """The formats that pay on a processor, the fastest first; float32 is last, and all that is left elsewhere.

    variant   of the native library, as `kernels.variant` names it.
    units     that the processor has.

    Where a format has no unit, the same bits are computed by other instructions, and more slowly than float32.
    float16 is small and computes in float32: it is never the fastest.
    """
    if variant != "avx512":
        return (EXACT,)
    fast: list[WeightFormat] = []
    if "vnni" in units:
        fast.append("int8")
    if "bf16" in units:
        fast.append("bfloat16")
    return (*fast, EXACT)


def fastest(variant: str, units: Collection[Unit] = ()) -> WeightFormat:
    """What weights="auto" means on this processor."""
    return next(weights for weights in by_speed(variant, units) if faithful(weights))
