"""Weights as the native library reads them: panels of 32 columns, contiguous along the sum, in a chosen format.

    float32    as they are
    float16    stored in half the bytes; arithmetic is that of float32
    bfloat16   products of bfloat16, summed in float32: in hardware with AVX512_BF16
    int8       products of int8, summed as integers, each row by its own scale: in hardware with AVX512_VNNI

Of the last two, those that follow each other along the sum stand together in a word of 32 bits (native/words.h).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.kernels.structs import PANEL, Packed

WeightFormat = Literal["float32", "bfloat16", "float16", "int8"]
WEIGHT_FORMATS: dict[WeightFormat, int] = {"float32": 0, "bfloat16": 3, "float16": 1, "int8": 2}  # as in kernels.h
PER_WORD: dict[WeightFormat, int] = {"bfloat16": 2, "int8": 4}
ZERO = 128  # the byte that stands for 0 where bytes have no sign


class PackedMatrix:
    """weight [N, K], N whole panels: holds the tensors that `struct` points to.

    block: where values are not words, they are cut into blocks of the sum, for long sums to few columns.
    """

    def __init__(self, weight: Tensor, weights: WeightFormat, block: int | None = None) -> None:
        values, self.scale = in_format(weight, weights)
        self.offset = None if self.scale is None else -ZERO * values.sum(dim=1, dtype=torch.int32)
        if weights in PER_WORD:
            self.values = words(values, PER_WORD[weights])
        else:
            self.values = panels(values) if block is None else blocks(values, block)
        self.struct = Packed(
            values=self.values.data_ptr(),
            scale=None if self.scale is None else self.scale.data_ptr(),
            offset=None if self.offset is None else self.offset.data_ptr(),
        )


def in_format(weight: Tensor, weights: WeightFormat) -> tuple[Tensor, Tensor | None]:
    """[N, K] -> the same, smaller, and what its rows are to be multiplied by."""
    if weights == "float16":
        return weight.clamp(-65504, 65504).half(), None
    if weights == "bfloat16":
        return weight.bfloat16(), None
    if weights == "int8":
        scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        return (weight / scale.unsqueeze(1)).round().to(torch.int8), scale
    return weight, None


def up_to(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def padded(weight: Tensor, rows: int, columns: int) -> Tensor:
    return F.pad(weight, (0, columns - weight.shape[1], 0, rows - weight.shape[0]))


def panels(weight: Tensor) -> Tensor:  # [N, K], N whole panels -> [N / 32, K, 32]
    return weight.reshape(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()


def blocks(weight: Tensor, block: int) -> Tensor:  # [N, K] -> [K / block, N / 32, block, 32]
    rows, columns = weight.shape
    return weight.reshape(rows // PANEL, PANEL, columns // block, block).permute(2, 0, 3, 1).contiguous()


def words(weight: Tensor, each: int) -> Tensor:  # [N, K] -> [N / 32, K' / each, 32, each], K' whole words
    weight = F.pad(weight, (0, -weight.shape[1] % each))
    rows, columns = weight.shape
    return weight.reshape(rows // PANEL, PANEL, columns // each, each).transpose(1, 2).contiguous()
