"""A file of PyTorch's with tensors by name, and nothing else: code in it is not run, claims are not believed.

torch.load with weights_only runs no code, but what it makes may be of any size: a tensor of stride 0 has as many
numbers as it says, a zip archive unpacks to a thousand times its own size, and a key of tuples within tuples takes
for ever to hash. So the pickle is looked through first, without making anything of it, and no more is accepted
than the file itself holds.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from elmokit.config import shown
from elmokit.errors import UserError
from elmokit.regular import regular_size

ZIP = b"PK\x03\x04"
EXPECTED = "expected a whole PyTorch file of tensors by name and nothing else"
MOST_PICKLE = 1 << 24  # bytes: the names and shapes of a model's tensors take some thousands
MOST_PARTS = 1_000_000  # of a value, what is in it twice counted twice
HEADERS = 3  # pickles before that of the tensors, in the format before zip: magic number, version, machine
GROWS = ("SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS", "BUILD")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict by file and name, as many numbers as the file holds; still unread."""
    if not path.is_file():
        raise UserError(f"no file {path}: a folder of ELMoForManyLangs has encoder.pkl and token_embedder.pkl")
    try:
        for pickle in _pickles(path):
            _check_parts(pickle)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # of many kinds, and torch's own text advises to load the file unsafely
        raise UserError(
            f"{path}: {EXPECTED}; torch refuses it ({type(error).__name__}): copy or download it again, "
            "and distrust it if that does not help"
        ) from None
    if not isinstance(state, dict):
        raise UserError(f"{path}: {EXPECTED}, found {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UserError(f"{path}: {EXPECTED}, found {shown(name)} of type {type(tensor).__name__}")
        if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UserError(
                f"{path}: {name}: expected a dense array of floating-point numbers, "
                f"found {str(tensor.layout)[6:]} {str(tensor.dtype)[6:]} on {tensor.device}"
            )
    needed, size = sum(tensor.numel() * tensor.element_size() for tensor in state.values()), regular_size(path)
    if needed > size:
        raise UserError(f"{path}: expected {needed:,} bytes for its tensors, found a file of {size:,}")
    return {f"{path.name}/{name}": tensor.detach() for name, tensor in state.items()}


def _pickles(path: Path) -> Iterator[bytes]:
    """The pickles that torch.load would read, the storages left out."""
    size = regular_size(path)
    with path.open("rb") as file:
        if file.read(len(ZIP)) != ZIP:
            file.seek(0)
            yield from _old_pickles(file)
            return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise UserError(f"expected members no larger than the file of {size:,} bytes, found more: distrust it")
        for member in members:
            if member.filename.endswith(".pkl"):
                if member.file_size > MOST_PICKLE:
                    raise UserError(f"expected names and shapes, found {member.file_size:,} bytes of them")
                yield archive.read(member)


def _old_pickles(file: BinaryIO) -> Iterator[bytes]:
    """Of the format before zip, in which all ELMoForManyLangs models are published: one pickle after the other."""
    content = file.read(MOST_PICKLE)
    at = 0
    for _ in range(HEADERS + 2):  # the tensors, the storages' keys
        end = at
        for opcode, _, position in pickletools.genops(content[at:]):
            end = at + (position or 0) + len(opcode.code)
        yield content[at:end]
        at = end


def _check_parts(pickle: bytes) -> None:
    """How many parts every value would have if what is in it twice were there twice; without making any."""
    mark = -1
    stack: list[int] = []
    memo: dict[int, int] = {}
    for opcode, argument, _ in pickletools.genops(pickle):
        name = opcode.name
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else int(argument or 0)] = stack[-1]
            continue
        if name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
            continue
        if name == "MARK":
            stack.append(mark)
            continue
        parts = 0 if name in GROWS else 1
        before = opcode.stack_before
        if pickletools.stackslice in before or pickletools.markobject in before:
            while (top := stack.pop()) != mark:
                parts += top
            before = before[: before.index(pickletools.markobject)]
        for _ in before:
            parts += stack.pop()
        if parts > MOST_PARTS:
            raise UserError(f"{EXPECTED}, found values of more than {MOST_PARTS:,} parts: distrust it")
        stack += [parts] * len(opcode.stack_after)
