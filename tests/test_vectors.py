"""Vector files that are damaged or lie: a message, and no memory for what is not in the file."""

from __future__ import annotations

import json
import random
import struct
import zipfile

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

from elmokit.embed.job import EmbedJob
from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from helpers.jobs import SUFFIXES, run
from helpers.models import SENTENCES, make_elmo


@pytest.fixture
def vectors(tmp_path):
    def make(suffix):
        text = tmp_path / "text.txt"
        text.write_text("\n".join(SENTENCES), encoding="utf-8")
        EmbedJob(make_elmo(), text, tmp_path / f"v{suffix}").run()
        return tmp_path / f"v{suffix}"

    return make


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_info_on_damaged_vector_files_is_a_message(vectors, suffix):
    """Forty damaged copies of each: read as before, or a UserError."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = vectors(suffix)
    whole, rng, refused = path.read_bytes(), random.Random(0), []
    for _ in range(40):
        content = bytearray(whole)
        for _ in range(rng.choice((1, 8, 64))):
            at = rng.randrange(len(content))
            content[at : at + 4] = rng.randbytes(4)
        path.write_bytes(content[: rng.choice((len(content), rng.randrange(len(content))))])
        try:
            opened = open_vectors(path)
            opened.describe()
            list(opened)
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert max(map(len, refused)) < 1000


def edit_npz(path, name, content, packing=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members[f"{name}.npy"] = content
    with zipfile.ZipFile(path, "w", packing) as archive:
        for member, each in members.items():
            archive.writestr(member, each)


def npy(shape, kind="<f4", content=b""):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    ("content", "packing", "message"),
    [
        (npy((10**12, 3, 16)), zipfile.ZIP_STORED, r"an array of \(1000000000000, 3, 16\) float32 in 0 bytes"),
        (npy((1, 3, 16), "|O", b"x" * 384), zipfile.ZIP_STORED, "not a whole file"),
        (npy((10**6, 1), content=bytes(4 * 10**6)), zipfile.ZIP_DEFLATED, "no larger than the file"),
        (npy((10, 3, 16), content=bytes(1920)), zipfile.ZIP_STORED, "expected .* vectors, found"),
        (b"\x93NUMPY\x01\x00\x00\x10" + b"(" * 4096, zipfile.ZIP_STORED, "not a whole file"),
    ],
)
def test_an_npz_that_claims_more_than_it_holds_is_refused(vectors, content, packing, message):
    path = vectors(".npz")
    edit_npz(path, "vectors", content, packing)
    with pytest.raises(UserError, match=message):
        open_vectors(path)


def test_metadata_nested_100_000_deep_is_refused(vectors):
    path = vectors(".npz")
    deep = b"[" * 100_000
    edit_npz(path, "metadata", npy((len(deep),), "|u1", deep))
    with pytest.raises(UserError, match="not a whole file"):
        open_vectors(path)


def test_metadata_of_wrong_types_is_refused(vectors):
    path = vectors(".npz")
    for shape, message in ((3, "where text is expected"), ("0x3", "expected the shape"), ("axb", "not a whole")):
        said = json.dumps({"shape": shape, "layers": "", "pooling": "", "model": "", "elmokit": ""}).encode()
        edit_npz(path, "metadata", npy((len(said),), "|u1", said))
        with pytest.raises(UserError, match=message):
            open_vectors(path)


def test_an_h5_of_vectors_that_are_elsewhere_is_refused(vectors, tmp_path):
    path = vectors(".h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.zeros((3, 9, 16), dtype=np.float32)
    for link, message in (
        (h5py.ExternalLink("other.h5", "/secret"), "a link to elsewhere"),
        (h5py.SoftLink("/1"), "a link to elsewhere"),
    ):
        with h5py.File(path, "r+") as file:
            del file["0"]
            file["0"] = link
        with pytest.raises(UserError, match=message):
            open_vectors(path)[0]


def test_a_damaged_heap_of_strings_is_refused_before_hdf5_reads_it_for_ever(vectors):
    path = vectors(".h5")
    with h5py.File(path) as file:
        address = struct.unpack_from("<IQI", path.read_bytes(), file["text"].id.get_offset())[1]
    content = bytearray(path.read_bytes())
    assert content[address : address + 4] == b"GCOL"
    content[address + 40 : address + 4000] = bytes(3960)
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        list(open_vectors(path))


def test_a_string_that_claims_to_be_long_takes_no_memory(vectors):
    path = vectors(".h5")
    with h5py.File(path) as file:
        offset = file["text"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[offset : offset + 4] = struct.pack("<I", 2**31)
    path.write_bytes(content)
    with pytest.raises(UserError, match="string 0 is damaged"):
        open_vectors(path)[0]


def test_files_whose_attributes_are_in_a_heap_are_read_and_checked(vectors):
    """As 0.1.0 wrote them."""
    path = vectors(".h5")
    sentences = [(s.text, s.tokens) for s in open_vectors(path)]
    with h5py.File(path, "a") as file:
        for key, value in dict(file.attrs).items():
            file.attrs[key] = value.decode()
        assert h5py.check_string_dtype(file.attrs.get_id("shape").dtype).length is None
    assert [(s.text, s.tokens) for s in open_vectors(path)] == sentences
    content = bytearray(path.read_bytes())
    address = content.rfind(b"GCOL")  # that of the attributes, which were written last
    content[address + 40 : address + 4000] = bytes(3960)
    path.write_bytes(content)
    with pytest.raises(UserError, match="its strings are damaged"):
        open_vectors(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", ["cut", "junk", "empty"])
def test_a_damaged_vector_file_is_said_to_be_one(tmp_path, suffix, damage):
    path = tmp_path / f"out{suffix}"
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    run(tmp_path / "t.txt", path)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "junk": b"junk" * 400, "empty": b""}[damage])
    with pytest.raises(UserError, match="not a whole file as elmo embed writes them"):
        open_vectors(path)


def test_a_file_of_another_program_is_said_to_be_one(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["line"] = np.zeros(3)
    np.savez(tmp_path / "other.npz", vectors=np.zeros((2, 4)), offsets=np.zeros(2), sentences=np.zeros(1))
    save_file({name: np.zeros(2) for name in ("vectors", "offsets", "sentences")}, tmp_path / "other.safetensors")
    for suffix, message in (
        (".h5", "not written by"),
        (".npz", "not a whole"),
        (".safetensors", "not written by"),
    ):
        with pytest.raises(UserError, match=message):
            open_vectors(tmp_path / f"other{suffix}")


def test_a_vector_file_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        open_vectors(tmp_path / "none.h5")
    (tmp_path / "out.txt").write_text("x")
    with pytest.raises(ValueError, match=r"expected .h5"):
        open_vectors(tmp_path / "out.txt")
