"""Files made to hurt, each by its name: a few bytes that ask for memory, time, other files or code that runs.

Each is made in a folder with a healthy model of the right kind to edit, and says how to try it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import torch
from damage import seal_again, write_config

HUGE = 10**9
DEEP = b'{"format":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BILM, OURS, MANY = "bilm", "elmokit", "many-langs"


class Hostile(NamedTuple):
    name: str
    sample: str  # the kind of healthy file that it is made of
    make: Callable[[Path, Path], Any]  # (a copy of the sample, what code in it would write) -> changes it
    embed: bool = False  # try it by embedding a sentence too


def named() -> list[Hostile]:
    return [*_configs(), *_pipes(), *_hdf5(), *_pickles(), *_vectors(), *_texts()]


def _edit(path: Path, *keys: str, value: Any) -> None:
    table = json.loads(path.read_bytes())
    inner = table
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(table))


def _setting(sample: str, file: str, *keys: str, value: Any) -> Hostile:
    def make(folder: Path, marker: Path) -> None:
        _edit(folder / file, *keys, value=value)
        if sample == OURS:
            seal_again(folder)

    return Hostile(f"{file} {'.'.join(keys)} = {str(value)[:20]}", sample, make, embed=True)


def _configs() -> Iterator[Hostile]:
    for value in (HUGE, 2**62, 10**30, float("inf"), float("nan"), "many", [1], -1, 0, True):
        for key in ("layers", "cells", "width", "cell_clip"):
            yield _setting(OURS, "config.json", "model", "lstm", key, value=value)
        for key in ("highway", "embedding", "characters", "words", "word_embedding", "filters"):
            yield _setting(OURS, "config.json", "model", "encoder", key, value=value)
        yield _setting(OURS, "config.json", "softmax_width", value=value)
        yield _setting(OURS, "mapper.json", "max_characters_per_token", value=value)
        for key in ("n_layers", "dim", "projection_dim", "cell_clip"):
            yield _setting(BILM, "options.json", "lstm", key, value=value)
        for key in ("n_highway", "max_characters_per_token", "filters", "embedding", "activation"):
            yield _setting(BILM, "options.json", "char_cnn", key, value=value)
        for key in ("n_layers", "dim", "projection_dim"):
            yield _setting(MANY, "config.json", "encoder", key, value=value)
        for key in ("n_highway", "max_characters_per_token", "char_dim", "word_dim", "filters"):
            yield _setting(MANY, "config.json", "token_embedder", key, value=value)
    yield _setting(OURS, "config.json", "model", "encoder", "filters", value=[[1, 1]] * 200_000)
    yield _setting(BILM, "options.json", "char_cnn", "filters", value=[[1, 1]] * 200_000)
    yield _setting(BILM, "options.json", "lstm", "x" * 5_000_000, value=1)
    for sample, file in ((OURS, "config.json"), (BILM, "options.json"), (MANY, "config.json")):
        yield Hostile(f"{sample} {file} 100,000 deep", sample, _writes(file, DEEP))
        for deep in (900, 300):
            content = b'{"format": "elmokit", "version": 1, "model":' + b"[" * deep + b"]" * deep + b"}"
            yield Hostile(f"{sample} {file} {deep} deep", sample, _writes(file, content))
    yield Hostile(
        "config.json of 40 MB", OURS, _writes("config.json", b'{"format": "' + b"x" * 40_000_000 + b'"}')
    )
    yield Hostile("weights of 50 GB, sparse", OURS, _sparse)


def _writes(file: str, content: bytes) -> Callable[[Path, Path], Any]:
    return lambda folder, marker: (folder / file).write_bytes(content)


def _sparse(folder: Path, marker: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, 50 << 30)
    table = json.loads((folder / "config.json").read_bytes())
    table["files"][path.name]["bytes"] = 50 << 30
    write_config(folder, table)


def _pipes() -> Iterator[Hostile]:
    files = {
        OURS: ("config.json", "model.safetensors", "mapper.json", "tokenizer.json", "vocabulary.txt", "README.md"),
        BILM: ("options.json", "weights.hdf5", "config.json"),
        MANY: ("config.json", "char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl"),
        "vectors .h5": ("",),
    }
    for sample, names in files.items():
        for name in names:
            yield Hostile(f"a pipe as {sample} {name}", sample, _pipe(name))
            yield Hostile(f"/dev/zero as {sample} {name}", sample, _pipe(name, "/dev/zero"))


def _pipe(name: str, link: str | None = None) -> Callable[[Path, Path], Any]:
    def make(sample: Path, marker: Path) -> None:
        path = sample / name if name else sample
        path.unlink(missing_ok=True)
        path.symlink_to(link) if link else os.mkfifo(path)

    return make


def _hdf5() -> Iterator[Hostile]:
    def edit(change: Callable[[Any, Path], Any]) -> Callable[[Path, Path], Any]:
        def make(folder: Path, marker: Path) -> None:
            with h5py.File(folder / "weights.hdf5", "r+") as file:
                shape = file["char_embed"].shape
                del file["char_embed"]
                change((file, shape), folder)

        return make

    def space(shape: tuple[int, ...] | None = None, **options: Any) -> Callable[[Any, Path], Any]:
        return lambda at, folder: at[0].create_dataset("char_embed", shape or at[1], "f4", **options)

    def virtual(at: Any, folder: Path) -> None:
        layout = h5py.VirtualLayout(at[1], "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", at[1])
        at[0].create_virtual_dataset("char_embed", layout)

    changes = {
        "10^9 numbers that are not there": space((HUGE,)),
        "10^12 numbers that are not there": space((10**12,)),
        "numbers that are not there": space(),
        "gzip, 10^9 numbers": space((HUGE,), compression="gzip", chunks=(1 << 20,)),
        "gzip": space(compression="gzip"),
        "numbers in another file": space(external=[("/etc/passwd", 0, 1 << 20)]),
        "a virtual array": virtual,
        "an external link": lambda at, _: at[0].__setitem__("char_embed", h5py.ExternalLink("/etc/passwd", "/x")),
        "a soft link": lambda at, _: at[0].__setitem__("char_embed", h5py.SoftLink("/CNN/b_cnn_0")),
        "a soft link to itself": lambda at, _: at[0].__setitem__("char_embed", h5py.SoftLink("/char_embed")),
        "a group": lambda at, _: at[0].create_group("char_embed"),
        "a loop of groups": lambda at, _: at[0].__setitem__("CNN/loop", at[0]["/"]),
        "text": lambda at, _: at[0].__setitem__("char_embed", "text"),
    }
    for name, change in changes.items():
        yield Hostile(f"weights.hdf5: {name}", BILM, edit(change))


def _pickles() -> Iterator[Hostile]:
    def repeated(folder: Path, marker: Path) -> None:
        torch.save({"forward_layer_0.input_linearity.weight": torch.zeros(1).expand(HUGE)}, folder / "encoder.pkl")

    def repeated_to_fit(folder: Path, marker: Path) -> None:
        """The config asks for it, and 600 bytes say that they have it."""
        _edit(folder / "config.json", "encoder", "dim", value=1 << 20)
        state = torch.load(folder / "encoder.pkl", weights_only=True)
        wide = {name: torch.zeros(1).expand(*_wider(tuple(tensor.shape))) for name, tensor in state.items()}
        torch.save(wide, folder / "encoder.pkl")

    def packed(folder: Path, marker: Path) -> None:
        plain = io.BytesIO()
        torch.save({"x": torch.zeros(200_000_000)}, plain)
        with zipfile.ZipFile(folder / "encoder.pkl", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for member in zipfile.ZipFile(plain).infolist():
                archive.writestr(member.filename, zipfile.ZipFile(plain).read(member))

    def nested(folder: Path, marker: Path) -> None:
        key: Any = "x"
        for _ in range(60):
            key = (key, key)
        header = pickle.dumps(torch.serialization.MAGIC_NUMBER, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
        body = b"\x80\x02}" + pickle.dumps(key, 2)[2:-1] + b"K\x01s."
        (folder / "encoder.pkl").write_bytes(header + body + pickle.dumps([], 2))

    yield Hostile("encoder.pkl: stride 0, 10^9 numbers", MANY, repeated)
    yield Hostile("encoder.pkl: stride 0, as the config says", MANY, repeated_to_fit)
    yield Hostile("encoder.pkl: 800 MB of zeros, packed", MANY, packed)
    yield Hostile("encoder.pkl: a key of 2^60 parts", MANY, nested)
    for file in ("encoder.pkl", "token_embedder.pkl"):
        for is_zip in (True, False):
            for name, call in CALLS.items():
                yield Hostile(f"{file}: {name}, zip {is_zip}", MANY, _malicious(file, call, is_zip))


def _wider(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple({20: 4 << 20, 5: 1 << 20}.get(n, n) for n in shape)


class _Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


CALLS: dict[str, Callable[[str], Any]] = {
    "os.system": lambda marker: _Call(os.system, f"touch {marker}"),
    "open": lambda marker: _Call(open, marker, "w"),
    "exec": lambda marker: _Call(exec, f"open({marker!r}, 'w')"),
    "eval": lambda marker: _Call(eval, f"open({marker!r}, 'w')"),
    "Path.touch": lambda marker: _Call(Path.touch, Path(marker)),
    "torch.load": lambda marker: _Call(torch.load, marker),
    "bytearray of 10^10": lambda marker: _Call(bytearray, 10**10),
}


def _malicious(file: str, call: Callable[[str], Any], is_zip: bool) -> Callable[[Path, Path], Any]:
    def make(folder: Path, marker: Path) -> None:
        torch.save({"x": call(str(marker))}, folder / file, _use_new_zipfile_serialization=is_zip)

    return make


def _vectors() -> Iterator[Hostile]:
    def npz(header: bytes, content: bytes, packing: int, times: int = 1) -> Callable[[Path, Path], Any]:
        def make(path: Path, marker: Path) -> None:
            with zipfile.ZipFile(path) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
            with zipfile.ZipFile(path, "w", packing) as archive:
                for name, kept in members.items():
                    archive.writestr(name, magic + content * times if name == "vectors.npy" else kept)

        return make

    said = b"{'descr': '%s', 'fortran_order': False, 'shape': (%d, 2, 8), }"
    yield Hostile("vectors.npz: 10^12", "vectors .npz", npz(said % (b"<f4", 10**12), b"", zipfile.ZIP_STORED))
    yield Hostile("vectors.npz: objects", "vectors .npz", npz(said % (b"|O", 1), b"x" * 16, zipfile.ZIP_STORED))
    bomb = npz(said % (b"<f4", 10**7), bytes(64), zipfile.ZIP_DEFLATED, 10**7)
    yield Hostile("vectors.npz: 640 MB of zeros, packed", "vectors .npz", bomb)
    yield Hostile("vectors.npz: nested header", "vectors .npz", npz(b"(" * 9000, b"", zipfile.ZIP_STORED))
    header = json.dumps({"vectors": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    content = struct.pack("<Q", len(header)) + header
    yield Hostile("vectors.safetensors: 10^12", "vectors .safetensors", _content(content))
    yield Hostile("vectors.safetensors: header", "vectors .safetensors", _content(struct.pack("<Q", 1 << 60)))

    def unwritten(path: Path, marker: Path) -> None:
        with h5py.File(path, "r+") as file:
            for name in ("line", "text", "tokens"):
                del file[name]
                file.create_dataset(name, (10**12,), file["0"].dtype)

    yield Hostile("vectors.h5: 10^12 lines that are not there", "vectors .h5", unwritten)
    wide = b"w " + b"0 " * 400_000 + b"\n"
    yield Hostile("words: one line of 400,000 numbers", "words text", _content(wide))
    yield Hostile("words: a header of 10^18", "words text", _content(b"1%s 1%s\n" % (b"0" * 17, b"0" * 17)))

    def words(path: Path, marker: Path) -> None:
        with lzma.open(path, "wb", preset=1) as file:
            for i in range(400_000):
                file.write(b"w%d" % i + b" 0" * 300 + b"\n")

    yield Hostile("words: 480 MB of zeros, packed", "words text", words)


def _content(content: bytes) -> Callable[[Path, Path], Any]:
    return lambda path, marker: path.write_bytes(content)


def _texts() -> Iterator[Hostile]:
    def line(path: Path, marker: Path) -> None:
        with gzip.open(path, "wb", 1) as file:
            for _ in range(600):
                file.write(b"word " * 200_000)

    yield Hostile("a line of 600 MB, packed", "text", line)
