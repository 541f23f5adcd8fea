"""The native library on another processor: calls of elmokit's are run by the same library under an emulator.

    with Processor(["qemu-aarch64", "serve", "library.so"]):
        model.contextualize(x, mask)

What a call points to is found among the tensors and structs that are alive, sent there, and written back after it.
"""

from __future__ import annotations

import ctypes
import gc
import subprocess
from bisect import bisect_right
from collections.abc import Callable, Iterator
from ctypes import c_char_p, c_void_p
from functools import partial
from struct import pack, unpack
from threading import Lock

import torch

from elmokit.model.kernels import library
from elmokit.model.kernels.structs import SIGNATURES, STRUCTS

NOWHERE = -1  # no region: a number, or a null pointer


class Processor:
    """Stands where elmokit expects the loaded library, for as long as the `with` block."""

    def __init__(self, command: list[str]) -> None:
        self._command, self._lock = command, Lock()

    def __enter__(self) -> Processor:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._before, self._choice = library._loaded, library._choice
        library._loaded = lambda: self  # type: ignore[assignment, return-value]
        library._choice = library.BEST
        for struct in STRUCTS:
            assert self.elmo_bytes(struct.__name__.encode()) == ctypes.sizeof(struct), struct
        return self

    def __exit__(self, *_: object) -> None:
        library._loaded, library._choice = self._before, self._choice
        self._process.communicate()  # closes its stdin, at which it ends

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name not in SIGNATURES:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, *arguments: object) -> object:
        with self._lock:
            return self._answered(name, *arguments)

    def _answered(self, name: str, *arguments: object) -> object:
        result, kinds = SIGNATURES[name]
        memory = Memory()
        places = [memory.argument(value, kind) for value, kind in zip(arguments, kinds)]
        memory.follow()
        sent = [_text(name.encode()), pack("<q", len(memory.regions))]
        sent += [_text(region.content) for region in memory.regions]
        sent += [pack("<q", len(memory.pointers)), *(pack("<4q", *pointer) for pointer in memory.pointers)]
        sent += [pack("<q", len(kinds)), *(pack("<2q", *place) for place in places)]
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join([*sent, pack("<q", result is c_char_p)]))
        self._process.stdin.flush()
        value = unpack("<q", self._read(8))[0]
        said = self._read(value) if result is c_char_p else None
        for region in memory.regions:
            content = self._read(len(region.content))
            if region.address and not region.points:  # pointers are those of the other side
                ctypes.memmove(region.address, content, len(content))
        return said if result is c_char_p else result(value).value  # type: ignore[misc]

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count)
        if len(content) != count:
            raise RuntimeError(f"the other processor stopped with exit code {self._process.wait()}")
        return content


def _text(content: bytes) -> bytes:
    return pack("<q", len(content)) + content


class Region:
    """Memory that goes along with a call; address 0 where nothing is to come back."""

    def __init__(self, address: int, content: bytes, points: list[tuple[int, int]]) -> None:
        self.address, self.content, self.points = address, content, points  # points: offset, where to


class Memory:
    """What a call sees: regions, and the pointers from one into another."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.pointers: list[tuple[int, int, int, int]] = []  # region, offset -> region, offset
        self._known: dict[int, int] = {}  # the region at an address
        self._alive: list[tuple[int, int, object]] = []  # address, size, owner, by address

    def argument(self, value: object, kind: type) -> tuple[int, int]:  # region, offset; or NOWHERE, number
        if not value and not isinstance(value, bytes):
            return NOWHERE, 0
        if isinstance(value, bytes):
            self.regions.append(Region(0, value + b"\0", []))
            return len(self.regions) - 1, 0
        if isinstance(value, (ctypes.Structure, ctypes.Array)):
            return self._region(ctypes.addressof(value), ctypes.sizeof(value), value), 0
        assert isinstance(value, int), value
        return self._place(value) if kind is c_void_p else (NOWHERE, value)

    def follow(self) -> None:
        """All that regions point to becomes a region, too."""
        for number, region in enumerate(self.regions):  # grows meanwhile
            self.pointers += [(number, offset, *self._place(address)) for offset, address in region.points]

    def _region(self, address: int, size: int, owner: object) -> int:
        if address not in self._known:
            self._known[address] = len(self.regions)
            self.regions.append(Region(address, ctypes.string_at(address, size), list(_pointers(owner))))
        return self._known[address]

    def _place(self, address: int) -> tuple[int, int]:
        if not self._alive:
            self._alive = sorted(_alive(), key=lambda block: block[:2])
        at = bisect_right(self._alive, address, key=lambda block: block[0]) - 1
        start, size, owner = self._alive[at] if at >= 0 else (0, 0, None)
        if address >= start + size:  # what was there is gone, as after a pass that has run: nobody reads it
            return NOWHERE, 0
        return self._region(start, size, owner), address - start


def _alive() -> Iterator[tuple[int, int, object]]:
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance, which would wake lazy modules
        if issubclass(kind, torch.Tensor):
            storage = thing.untyped_storage()
            if storage.nbytes():
                yield storage.data_ptr(), storage.nbytes(), None
        elif issubclass(kind, (ctypes.Structure, ctypes.Array)) and thing._b_base_ is None:
            yield ctypes.addressof(thing), ctypes.sizeof(thing), thing


def _pointers(thing: object, offset: int = 0) -> Iterator[tuple[int, int]]:
    """Of a struct or an array of them: where in it a pointer lies, and where that points."""
    if isinstance(thing, ctypes.Structure):
        for name, kind in thing._fields_:  # type: ignore[misc]
            value, at = getattr(thing, name), offset + getattr(type(thing), name).offset
            if kind is c_void_p:
                if value:
                    yield at, value
            else:
                yield from _pointers(value, at)
    elif isinstance(thing, ctypes.Array) and issubclass(thing._type_, ctypes.Structure):
        for i, part in enumerate(thing):
            yield from _pointers(part, offset + i * ctypes.sizeof(thing._type_))
