"""The native library, if it was compiled when elmokit was installed: found, checked, loaded, chosen.

    from elmokit.model import kernels

    with kernels.use("torch"):  # in this block; kernels.use("torch") by itself: from now on
        elmo.embed(sentences)

`ELMOKIT_KERNELS` chooses for a process from its start. It is loaded by ctypes and given pointers: structs.py.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Literal, NamedTuple

from elmokit import __version__
from elmokit.errors import UserError
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.sources import sources_digest
from elmokit.model.kernels.structs import SIGNATURES, STRUCTS

VARIABLE = "ELMOKIT_KERNELS"
BEST = "best"  # of what the processor can do
VARIANTS = ("avx512", "avx512f", "avx2", "portable")
WITHOUT = ("torch", "definition")  # no library

_choice: str | None = None  # None: the environment has not been asked yet


def use(kernels: str) -> AbstractContextManager[object]:
    """Choose what runs: in a `with` block until its end, called by itself from now on. For the whole process.

    best        what the processor does best: what runs if nothing is chosen.
    avx512, avx2, portable     this variant of the native library; avx512f is avx512 without VNNI and BF16.
    torch       PyTorch's operations, arranged to be fast; as where the library was not compiled.
    definition  the modules as they are written: a loop over time, step by step. For comparisons.
    """
    before = chosen()
    if kernels in VARIANTS and _loaded() is None:
        raise UserError(f"kernels: there is no native library: expected torch or definition, found {kernels!r}")
    _choose(kernels, "kernels")
    undo = ExitStack()
    undo.callback(_choose, before, "kernels")
    return undo


def chosen() -> str:
    """What `use`, or else the environment, says."""
    if _choice is None:
        _choose(os.environ.get(VARIABLE) or BEST, VARIABLE)
    assert _choice is not None
    return _choice


def _choose(kernels: str, said_by: str) -> None:
    global _choice
    if kernels not in (BEST, *VARIANTS, *WITHOUT):
        expected = ", ".join((BEST, *VARIANTS, *WITHOUT))
        raise UserError(f"{said_by}: expected one of {expected}, found {kernels!r}")
    if kernels not in WITHOUT:
        loaded = _loaded()
        if loaded is not None and not loaded.elmo_choose(b"" if kernels == BEST else kernels.encode()):
            raise UserError(f"{said_by}: expected what this processor can do, found {kernels!r}: take {BEST!r}")
    _choice = kernels


def library() -> ctypes.CDLL | None:
    """The library, or None where there is none or another choice was made."""
    return None if chosen() in WITHOUT else _loaded()


def variant() -> str:
    """What runs: `avx512`, `avx2`, `portable`; or `torch`, also where there is no library, or `definition`."""
    loaded = library()
    if loaded is not None:
        return str(loaded.elmo_variant().decode())
    return chosen() if chosen() in WITHOUT else "torch"


class Arithmetic(NamedTuple):
    """What weights of a format are computed with."""

    precision: Literal["float32", "bfloat16", "int8"]  # of the products: whose limit they are measured by
    how: str

    def __str__(self) -> str:
        return self.how


def arithmetic(weights: str) -> Arithmetic:
    """What runs here, without gradients, for weights of this format: one of WEIGHT_FORMATS."""
    if library() is None:
        return Arithmetic("float32", "float32" if weights == "float32" else "float32: torch knows no other format")
    hardware = weights in units()
    if weights == "bfloat16":
        if hardware:
            return Arithmetic("bfloat16", "bfloat16 by the processor (VDPBF16PS)")
        return Arithmetic("float32", "bfloat16, by float32's instructions")
    if weights == "int8":
        return Arithmetic(
            "int8", "int8 by the processor (VPDPBUSD)" if hardware else "int8, without a unit for it"
        )
    if weights == "float32":
        return Arithmetic("float32", "float32")
    return Arithmetic("float32", f"stored as {weights}, computed in float32")


def units() -> list[str]:
    """The formats of weights beside float32 that the chosen variant has instructions of the processor for."""
    loaded = library()
    if loaded is None:
        return []
    return [name for name, number in WEIGHT_FORMATS.items() if loaded.elmo_in_hardware(number)]


def available_variants() -> list[str]:
    """The variants of the library that this processor can run, the best first; none where there is no library."""
    return [name for name in VARIANTS if _loaded() is not None and _can(name)]


def _can(name: str) -> bool:
    try:
        with use(name):
            return True
    except UserError:
        return False


def call(function: str, *arguments: object) -> None:
    loaded = library()
    assert loaded is not None
    if getattr(loaded, function)(*arguments):
        raise MemoryError("not enough memory for a batch of this size: choose a smaller one")


@cache
def _loaded() -> ctypes.CDLL | None:
    return load(Path(__file__).parent)


def load(folder: Path) -> ctypes.CDLL | None:
    """The library that lies in this folder; None, and a warning that says why, where there is none to be run."""
    found = [path for suffix in EXTENSION_SUFFIXES if (path := folder / ("_native" + suffix)).is_file()]
    if not found:
        _warn("they were not compiled when elmokit was installed")
        return None
    try:
        loaded = ctypes.CDLL(str(found[0]))
    except OSError as error:  # compiled for another machine
        _warn(f"they could not be loaded ({error})")
        return None
    difference = _difference(loaded, folder / "native")
    if difference:  # as after a `git pull`
        _warn(
            f"they were compiled from other sources than those of this elmokit ({difference})",
            "Compile them again, by `pip install -e .` in a clone",
        )
        return None
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _difference(loaded: ctypes.CDLL, native: Path) -> str | None:
    """In what the library is another than expected: functions, version, structs or sources; None if in nothing."""
    missing = [name for name in SIGNATURES if not hasattr(loaded, name)]
    if missing:
        return f"it has no {missing[0]}"
    for name in ("elmo_version", "elmo_sources"):
        getattr(loaded, name).restype = ctypes.c_char_p
    loaded.elmo_bytes.restype = ctypes.c_int64
    if (version := loaded.elmo_version().decode()) != __version__:
        return f"its version is {version}, not {__version__}"
    for struct in STRUCTS:
        name, last = struct.__name__, struct._fields_[-1][0]
        for place, expected in ((name, ctypes.sizeof(struct)), (f"{name}.{last}", getattr(struct, last).offset)):
            if (found := loaded.elmo_bytes(place.encode())) != expected:
                return f"{place}: {found} bytes, not {expected}"
    if native.is_dir():  # a clone; a wheel has none
        compiled, now = loaded.elmo_sources().decode(), sources_digest(native)
        if compiled != now:
            return f"{compiled}, not {now}"
    return None


def _warn(why: str, remedy: str = "Install it again with a C++ compiler") -> None:
    warnings.warn(
        f"elmokit runs without its native kernels, several times slower: {why}. {remedy}, or set {VARIABLE}=torch "
        "to say that this is meant",
        RuntimeWarning,
        stacklevel=4,
    )
