"""The native library, if it was compiled when the package was installed: loaded by ctypes, given pointers.

`ELMOKIT_KERNELS` chooses: `torch` for none of it, or the name of a variant (`portable`, `avx2`, `avx512`).
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from elmokit.errors import UserError

PANEL = 32  # as in native/kernels.h
VARIABLE = "ELMOKIT_KERNELS"
S = TypeVar("S", bound=ctypes.Structure)


class Layer(ctypes.Structure):
    _fields_ = (
        ("input", c_void_p),
        ("hidden", c_void_p),
        ("projection", c_void_p),
        ("input_scale", c_void_p),
        ("hidden_scale", c_void_p),
        ("projection_scale", c_void_p),
        ("bias", c_void_p),
        ("projection_back", c_void_p),
        ("hidden_back", c_void_p),
        ("inputs", c_int64),
        ("cells", c_int64),
        ("width", c_int64),
        ("block", c_int64),
        ("back", c_int64),
        ("cell_clip", c_float),
        ("projection_clip", c_float),
        ("kind", c_int32),
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
        ("kept", c_int64),
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
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("inputs", c_int64), ("outputs", c_int64))


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
        ("projection_back", c_void_p),
        ("gates_back", c_void_p),
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


DOORS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "elmo_variant": (c_char_p, ()),
    "elmo_choose": (c_int, (c_char_p,)),
    "elmo_forward": (c_int, (POINTER(Layer), POINTER(Pass), c_int64, c_int64, c_int64)),
    "elmo_backward": (c_int, (POINTER(Layer), POINTER(Pass), c_int64, c_int64)),
    "elmo_convolve": (c_int, (POINTER(Filters), c_int64, POINTER(Words), c_int64)),
    "elmo_convolve_back": (c_int, (POINTER(Filters), c_int64, POINTER(Words), c_int64)),
    "elmo_linear": (c_int, (POINTER(Linear), c_void_p, c_void_p, c_int64, c_int64)),
    "elmo_highway": (c_int, (POINTER(Linear), POINTER(Linear), c_void_p, c_void_p, c_int64, c_int64)),
    "elmo_tanh": (c_int, (c_void_p, c_void_p, c_int64)),
    "elmo_bfloat16": (c_int, ()),
    "elmo_product16": (c_int, (POINTER(Product), c_int64)),
    "elmo_forward16": (c_int, (POINTER(Layer16), POINTER(Pass16), c_int64, c_int64)),
    "elmo_backward16": (c_int, (POINTER(Layer16), POINTER(Pass16), c_int64, c_int64)),
    "elmo_softmax16": (c_int, (POINTER(Softmax), c_int64)),
}


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where there is none or none is wanted."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "torch":
        return None
    found = [
        path for suffix in EXTENSION_SUFFIXES if (path := Path(__file__).with_name("_native" + suffix)).is_file()
    ]
    try:
        loaded = ctypes.CDLL(str(found[0])) if found else None
    except OSError as error:  # compiled for another machine
        _warn(f"they could not be loaded ({error})")
        return None
    if loaded is None:
        _warn("they were not compiled when elmokit was installed")
        return None
    for name, (result, arguments) in DOORS.items():
        door = getattr(loaded, name)
        door.restype, door.argtypes = result, arguments
    if not loaded.elmo_choose(wanted.encode()):
        raise UserError(f"{VARIABLE}: expected torch, portable or what this processor can do, found {wanted!r}")
    return loaded


def _warn(why: str) -> None:
    warnings.warn(
        f"elmokit runs without its native kernels, several times slower: {why}. Install it again with "
        f"a C++ compiler, or set {VARIABLE}=torch to say that this is meant",
        RuntimeWarning,
        stacklevel=3,
    )


def variant() -> str:
    """What runs: `avx512`, `avx2`, `portable`, or `torch` without the library."""
    loaded = library()
    return "torch" if loaded is None else str(loaded.elmo_variant().decode())


def usable(*tensors: Tensor) -> bool:
    """Can the library work on these? It knows the memory of this machine and floats of 32 bits."""
    return library() is not None and all(tensor.dtype == torch.float32 and tensor.is_cpu for tensor in tensors)


@cache  # ctypes itself makes a new class at every call, and classes are waste that only the collector finds
def _array_type(struct: type[S], count: int) -> type[ctypes.Array[S]]:
    return struct * count


def array_of(structs: Sequence[S]) -> ctypes.Array[S]:
    return _array_type(type(structs[0]), len(structs))(*structs)


def call(door: str, *arguments: object) -> None:
    loaded = library()
    assert loaded is not None
    if getattr(loaded, door)(*arguments):
        raise MemoryError("not enough memory for a batch of this size: choose a smaller one")
