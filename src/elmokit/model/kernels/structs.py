"""The native library's structs and functions as ctypes sees them: native/kernels.h and library.cpp, in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from typing import TypeVar

PANEL = 32  # as in native/kernels.h
S = TypeVar("S", bound=ctypes.Structure)


class Packed(ctypes.Structure):
    _fields_ = (("values", c_void_p), ("scale", c_void_p), ("offset", c_void_p))


class Layer(ctypes.Structure):
    _fields_ = (
        ("input", Packed),
        ("hidden", Packed),
        ("projection", Packed),
        ("bias", c_void_p),
        ("projection_transposed", c_void_p),
        ("hidden_transposed", c_void_p),
        ("inputs", c_int64),
        ("cells", c_int64),
        ("width", c_int64),
        ("block", c_int64),
        ("transposed_block", c_int64),
        ("cell_clip", c_float),
        ("projection_clip", c_float),
        ("format", c_int32),
    )


class Pass(ctypes.Structure):
    _fields_ = (
        ("rows", c_int64),
        ("steps", c_int64),
        ("lengths", c_void_p),
        ("backwards", c_int32),
        ("skip", c_int32),
        ("spared", c_int64),
        ("x", c_void_p),
        ("x_row", c_int64),
        ("x_token", c_int64),
        ("places", c_void_p),
        ("out", c_void_p),
        ("out_row", c_int64),
        ("out_token", c_int64),
        ("begins", c_void_p),
        ("hidden", c_void_p),
        ("cell", c_void_p),
        ("gates", c_void_p),
        ("cells", c_void_p),
        ("activated", c_void_p),
        ("projected", c_void_p),
        ("out_gradient", c_void_p),
        ("gradient_row", c_int64),
        ("gradient_token", c_int64),
        ("projected_gradient", c_void_p),
        ("start_cell", c_void_p),
    )


class Filters(ctypes.Structure):
    _fields_ = (
        ("table", c_void_p),
        ("table_gradient", c_void_p),
        ("width", c_int64),
        ("filters", c_int64),
        ("characters", c_int64),
        ("column", c_int64),
        ("real", c_int64),
    )


class Words(ctypes.Structure):
    _fields_ = (
        ("ids", c_void_p),
        ("words", c_int64),
        ("length", c_int64),
        ("features", c_void_p),
        ("stride", c_int64),
        ("where", c_void_p),
        ("features_gradient", c_void_p),
    )


class Linear(ctypes.Structure):
    _fields_ = (
        ("weight", Packed),
        ("bias", c_void_p),
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("format", c_int32),
    )


class Span(ctypes.Structure):
    _fields_ = (("bytes", c_void_p), ("count", c_int64))


class Operand(ctypes.Structure):
    _fields_ = (
        ("values", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("row", c_int64),
        ("column", c_int64),
    )


class Product(ctypes.Structure):
    _fields_ = (
        ("a", Operand),
        ("b", Operand),
        ("bias", c_void_p),
        ("c", c_void_p),
        ("stride", c_int64),
        ("packed", c_void_p),
        ("added", c_int32),
        ("symmetric", c_int32),
    )


class Layer16(ctypes.Structure):
    _fields_ = (
        ("input_weight", c_void_p),
        ("hidden_weight", c_void_p),
        ("bias", c_void_p),
        ("projection_weight", c_void_p),
        ("start", c_void_p),
        ("gates", c_void_p),
        ("projection", c_void_p),
        ("projection_transposed", c_void_p),
        ("gates_transposed", c_void_p),
        ("inputs", c_int64),
        ("cells", c_int64),
        ("width", c_int64),
        ("forget_bias", c_float),
        ("cell_clip", c_float),
        ("projection_clip", c_float),
    )


class Pass16(ctypes.Structure):
    _fields_ = (
        ("run", Pass),
        ("tokens", c_int64),
        ("inputs", c_void_p),
        ("activated", c_void_p),
        ("gates_gradient", c_void_p),
        ("projected_gradient", c_void_p),
        ("inputs_packed", c_void_p),
        ("activated_packed", c_void_p),
        ("x_gradient", c_void_p),
        ("places", c_void_p),
        ("distinct", c_int64),
        ("shares", c_void_p),
        ("shares_gradient", c_void_p),
        ("input_weight_gradient", c_void_p),
        ("hidden_weight_gradient", c_void_p),
        ("bias_gradient", c_void_p),
        ("projection_weight_gradient", c_void_p),
    )


class Softmax(ctypes.Structure):
    _fields_ = (
        ("h", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("hidden", c_void_p),
        ("targets", c_void_p),
        ("positions", c_int64),
        ("words", c_int64),
        ("width", c_int64),
        ("losses", c_void_p),
        ("h_gradient", c_void_p),
        ("weight_gradient", c_void_p),
        ("bias_gradient", c_void_p),
        ("chunk", c_int64),
        ("start", c_void_p),
        ("by_word", c_void_p),
        ("by_width", c_void_p),
        ("errors", c_void_p),
    )


class Highway16(ctypes.Structure):
    _fields_ = (
        ("x", c_void_p),
        ("transform", c_void_p),
        ("carry", c_void_p),
        ("out", c_void_p),
        ("out_gradient", c_void_p),
        ("x_gradient", c_void_p),
        ("transform_bias_gradient", c_void_p),
        ("carry_bias_gradient", c_void_p),
        ("rows", c_int64),
        ("width", c_int64),
    )


class Model(ctypes.Structure):  # native/reading.h
    _fields_ = (
        ("filters", POINTER(Filters)),
        ("filters_count", c_int64),
        ("bias", c_void_p),
        ("highways", POINTER(Linear)),
        ("highways_count", c_int64),
        ("projection", POINTER(Linear)),
        ("features", c_int64),
        ("by_tanh", c_int32),
        ("skip", c_int32),
        ("layers", POINTER(Layer)),
        ("layers_count", c_int64),
        ("cells", c_int64),
    )


class Reading(ctypes.Structure):
    _fields_ = (
        ("model", POINTER(Model)),
        ("ids", c_void_p),
        ("words", c_int64),
        ("length", c_int64),
        ("table", c_void_p),
        ("first", c_int64),
        ("stride", c_int64),
        ("places", c_void_p),
        ("lengths", c_void_p),
        ("rows", c_int64),
        ("steps", c_int64),
        ("hidden", c_void_p),
        ("cell", c_void_p),
        ("hidden_after", c_void_p),
        ("cell_after", c_void_p),
        ("margin", c_int64),
        ("out", c_void_p),
        ("mixed", c_void_p),
        ("weights", c_void_p),
        ("mixed_count", c_int64),
        ("factor", c_float),
        ("divisor", c_float),
        ("spans", POINTER(Span)),
        ("spans_count", c_int64),
        ("digests", POINTER(c_uint64)),
        ("threads", c_int64),
    )


STRUCTS: tuple[type[ctypes.Structure], ...] = (
    *(Layer, Pass, Filters, Words, Linear, Span, Packed),
    *(Operand, Product, Layer16, Pass16, Softmax, Highway16),
    *(Model, Reading),
)

# Each function of the library: what it returns and what it takes.
SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "elmo_version": (c_char_p, ()),
    "elmo_sources": (c_char_p, ()),
    "elmo_bytes": (c_int64, (c_char_p,)),
    "elmo_variant": (c_char_p, ()),
    "elmo_choose": (c_int, (c_char_p,)),
    "elmo_in_hardware": (c_int, (c_int,)),
    "elmo_split": (c_int64, (c_void_p, c_int64, c_int64, c_int64, c_void_p)),
    "elmo_forward": (
        c_int,
        (POINTER(Layer), POINTER(Pass), c_int64, c_int64, c_int64, POINTER(Span), c_int64, POINTER(c_uint64)),
    ),
    "elmo_backward": (c_int, (POINTER(Layer), POINTER(Pass), c_int64, c_int64)),
    "elmo_read": (c_int, (POINTER(Reading),)),
    "elmo_convolve": (c_int, (POINTER(Filters), c_int64, POINTER(Words), c_int64)),
    "elmo_convolve_backward": (c_int, (POINTER(Filters), c_int64, POINTER(Words), c_int64)),
    "elmo_linear": (c_int, (POINTER(Linear), c_void_p, c_void_p, c_int64, c_int64)),
    "elmo_highway": (c_int, (POINTER(Linear), POINTER(Linear), c_void_p, c_void_p, c_int64, c_int64)),
    "elmo_tanh": (c_int, (c_void_p, c_void_p, c_int64)),
    "elmo_digest": (c_int, (POINTER(Span), c_int64, POINTER(c_uint64), c_int64)),
    "elmo_products16": (c_int, (POINTER(Product), c_int64, c_int64)),
    "elmo_forward16": (c_int, (POINTER(Layer16), POINTER(Pass16), c_int64, c_int64)),
    "elmo_backward16": (c_int, (POINTER(Layer16), POINTER(Pass16), c_int64, c_int64)),
    "elmo_weights16": (c_int, (POINTER(Layer16), POINTER(Pass16), c_int64, c_int64)),
    "elmo_softmax16": (c_int, (POINTER(Softmax), c_int64)),
    "elmo_polynomials": (c_int, (c_void_p, c_int64, c_int64, c_void_p, c_int64, c_void_p, c_int64)),
    "elmo_highway16": (c_int, (POINTER(Highway16), c_int64)),
    "elmo_highway_backward16": (c_int, (POINTER(Highway16), c_int64)),
}


@cache  # ctypes itself makes a new class at every call, and classes are waste that only the collector finds
def _array_type(struct: type[S], count: int) -> type[ctypes.Array[S]]:
    return struct * count


def array_of(structs: Sequence[S]) -> ctypes.Array[S]:
    return _array_type(type(structs[0]), len(structs))(*structs)
