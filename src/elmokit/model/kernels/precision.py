"""weights="auto": the fastest format of weights whose measured scores stay with float32's.

`benchmarks/precision.py` measures what `DIFFERENCES` holds: probes are learned from float32's vectors and measured
with each format, for the bundled models. Of a model of your own this says nothing.

A probe in which one answer is worth more than `WITHIN` cannot tell a tenth of a point, and does not decide:
so it is with `pairs`. The rule was made after the measurement, in which bfloat16 changed one answer of
`pairs` in each of two rows; with `pairs` deciding, auto would be float32 everywhere. int8 is out either way,
by Korean parts of speech.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from elmokit.model.kernels.packing import WeightFormat

Weights = WeightFormat | Literal["auto"]
EXACT: WeightFormat = "float32"
WITHIN = 0.1  # points that a probe's score may differ from float32's, up or down


@dataclass(frozen=True)
class Difference:
    """Of one probe's scores from float32's, in points: the lowest and highest of its rows (layers, their mean)."""

    probe: str
    lowest: float
    highest: float
    answers: int  # on the development set

    @property
    def decides(self) -> bool:
        return 100 / self.answers <= WITHIN

    @property
    def within(self) -> bool:
        return self.lowest >= -WITHIN and self.highest <= WITHIN


# 2026-11-18, commit e3a89ba, Zen 4 with AVX-512, VNNI and BF16, 2 threads: `benchmarks/precision.py DATA`, seed 0.
# Differences as measured, not what they may be: the 95 % interval of bfloat16's NER reaches -0.12. The bundled
# models are stored as float16, so that float16 is float32 here.
ANSWERS = {  # `ner` is F1 of 2,551 entities, `pairs` are questions
    "en-small pairs": 600,
    "en-small pos": 25_147,
    "en-small wsd": 12_139,
    "en-small ner": 2_551,
    "ko-small pairs": 360,
    "ko-small pos": 25_278,
}
_MEASURED: dict[WeightFormat, tuple[tuple[float, float], ...]] = {
    "bfloat16": ((-0.167, 0.167), (0.0, 0.004), (-0.008, 0.025), (-0.039, 0.0), (0.0, 0.0), (-0.028, 0.032)),
    "float16": ((0.0, 0.0),) * 6,
    "int8": ((-0.5, 0.0), (-0.052, 0.044), (0.0, 0.008), (-0.068, 0.0), (0.0, 0.833), (-0.123, 0.0)),
}
DIFFERENCES = {
    weights: tuple(
        Difference(name, *ends, count) for (name, count), ends in zip(ANSWERS.items(), rows, strict=True)
    )
    for weights, rows in _MEASURED.items()
}


def faithful(weights: WeightFormat) -> bool:
    """Whether it was measured, and every probe that decides stays within `WITHIN` of float32; float32 does."""
    deciding = [difference for difference in DIFFERENCES.get(weights, ()) if difference.decides]
    return weights == EXACT or (bool(deciding) and all(difference.within for difference in deciding))


def by_speed(variant: str, units: Collection[str] = ()) -> tuple[WeightFormat, ...]:
    """The formats that pay on a processor, the fastest first; float32 is last, and all that is left elsewhere.

    variant   of the native library, as `kernels.variant` names it.
    units     the formats that the processor has instructions for, as `library.units` names them.

    Where a format has no unit, the same bits are computed by other instructions: of bfloat16 more slowly than
    float32, of int8 by AVX2 a little faster. float16 computes in float32: in batches it is never the fastest.
    """
    fast: list[WeightFormat] = []
    if "int8" in units or variant == "avx2":
        fast.append("int8")
    if "bfloat16" in units:
        fast.append("bfloat16")
    return (*fast, EXACT)


def fastest(variant: str, units: Collection[str] = ()) -> WeightFormat:
    """What weights="auto" means on this processor."""
    return next(weights for weights in by_speed(variant, units) if faithful(weights))
