"""The native library: which one is loaded, which is refused, and what chooses among its variants."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from elmokit import __version__
from elmokit.errors import UserError
from elmokit.model.kernels import library as library_module
from elmokit.model.kernels import use, variant
from elmokit.model.kernels.library import VARIABLE, available_variants, library, load
from elmokit.model.kernels.sources import sources_digest
from elmokit.model.kernels.structs import SIGNATURES

FOLDER = Path(library_module.__file__).parent
NATIVE = FOLDER / "native"
BUILT = next((path for path in FOLDER.glob("_native*") if path.name.endswith(tuple(EXTENSION_SUFFIXES))), None)
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
built = pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")
clone = pytest.mark.skipif(not NATIVE.is_dir(), reason="a wheel has no sources")
compiles = pytest.mark.skipif(COMPILER is None, reason="there is no compiler")


def copy(folder: Path, *, sources: bool) -> Path:
    """The library, and what it was compiled from, somewhere else."""
    shutil.copy(BUILT, folder)
    if sources:
        shutil.copytree(NATIVE, folder / "native")
    return folder


def compiled(folder: Path, code: str) -> Path:
    """A library of this code, under the name of ours."""
    (folder / "other.cpp").write_text(code)
    target = folder / ("_native" + EXTENSION_SUFFIXES[0])
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", target, folder / "other.cpp"], check=True)
    return folder


def run_python(script, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


@built
@pytest.mark.slow
def test_the_variable_chooses():
    script = "from elmokit.model.kernels import variant; print(variant())"
    for name in ("torch", "definition", *available_variants()):
        assert run_python(script, **{VARIABLE: name}).stdout.strip() == name
    assert run_python(script, **{VARIABLE: ""}).stdout.strip() == available_variants()[0]
    unknown = run_python(script, **{VARIABLE: "sse9"})
    assert unknown.returncode == 1
    assert "sse9" in unknown.stderr


@built
def test_use_chooses_in_a_block_and_from_now_on():
    before = variant()
    for name in ("torch", "definition", *available_variants()):
        with use(name):
            assert variant() == name
            assert (library() is None) == (name in ("torch", "definition"))
            with use("torch"):
                assert variant() == "torch"
            assert variant() == name
        assert variant() == before
    undo = use("torch")
    assert variant() == "torch"
    with undo:
        pass
    assert variant() == before


def test_use_is_undone_by_an_error_and_refuses_unknown_names():
    before = variant()
    with pytest.raises(ZeroDivisionError), use("torch"):
        raise ZeroDivisionError
    with pytest.raises(UserError, match="sse9"):
        use("sse9")
    assert variant() == before


def test_without_the_library_one_line_says_so(tmp_path):
    with pytest.warns(RuntimeWarning, match="without its native kernels.*compiler"):
        assert load(tmp_path) is None


@pytest.mark.skipif(BUILT is None, reason="elmokit was installed without a compiler")
def test_the_library_that_lies_here_is_up_to_date():
    """Else most tests of kernels are passed over: compile it again, by `pip install -e .`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(FOLDER) is not None


def test_where_torch_is_chosen_nothing_is_said():
    done = run_python("import elmokit.model.kernels as k; print(k.variant())", **{VARIABLE: "torch"})
    assert (done.stdout.strip(), done.stderr) == ("torch", "")


def test_a_library_for_another_machine_is_not_fatal(tmp_path):
    for suffix in EXTENSION_SUFFIXES:
        (tmp_path / f"_native{suffix}").write_bytes(b"\x7fELF no library")
    with pytest.warns(RuntimeWarning, match="could not be loaded"):
        assert load(tmp_path) is None


@built
def test_a_library_beside_its_sources_or_without_any_is_loaded(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(copy(tmp_path, sources=False)) is not None  # as in a wheel
        if NATIVE.is_dir():
            shutil.copytree(NATIVE, tmp_path / "native")
            assert load(tmp_path) is not None


@built
@clone
@pytest.mark.parametrize("change", ["edited", "added", "renamed", "removed"])
def test_a_library_of_other_sources_is_refused(tmp_path, change):
    native = copy(tmp_path, sources=True) / "native"
    path = native / "lstm.h"
    if change == "edited":
        path.write_text(path.read_text().replace("CHUNK = 256", "CHUNK = 512"))
    elif change == "added":
        (native / "new.h").write_text("")
    elif change == "renamed":
        path.rename(native / "other.h")
    else:
        path.unlink()
    with pytest.warns(RuntimeWarning, match=r"compiled from other sources.*pip install -e \."):
        assert load(tmp_path) is None


@clone
def test_line_endings_are_no_other_sources(tmp_path):
    shutil.copytree(NATIVE, tmp_path / "native")
    path = tmp_path / "native" / "lstm.h"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert sources_digest(tmp_path / "native") == sources_digest(NATIVE)


@compiles
def test_a_library_that_reports_nothing_is_refused(tmp_path):
    compiled(tmp_path, 'extern "C" const char* elmo_variant() { return "avx2"; }')
    with pytest.warns(RuntimeWarning, match=r"compiled from other sources.*it has no elmo_version"):
        assert load(tmp_path) is None


def reporting(version: str, size: int) -> str:
    """A library that has all functions, says that it is of this version and that every struct is so large."""
    answers = {
        "elmo_version": f'const char* elmo_version() {{ return "{version}"; }}',
        "elmo_bytes": f"long long elmo_bytes(const char*) {{ return {size}; }}",
    }
    functions = [answers.get(name, f"int {name}() {{ return 0; }}") for name in SIGNATURES]
    return 'extern "C" {\n' + "\n".join(functions) + "\n}\n"


@compiles
@pytest.mark.parametrize(
    ("version", "size", "message"),
    [
        ("0.0.1", 8, "its version is 0.0.1"),
        (__version__, 8, "Layer: 8 bytes, not"),
        (__version__, -1, "Layer: -1"),
    ],
)
def test_a_library_of_another_version_or_with_other_structs_is_refused(tmp_path, version, size, message):
    compiled(tmp_path, reporting(version, size))
    with pytest.warns(RuntimeWarning, match=f"compiled from other sources.*{message}"):
        assert load(tmp_path) is None


@built
def test_every_struct_and_its_last_field_are_known_to_the_library():
    known = library()
    names = [struct.__name__ for struct in library_module.STRUCTS]
    assert all(known.elmo_bytes(name.encode()) > 0 for name in names)
    assert known.elmo_bytes(b"Layer.nothing") == -1
    assert known.elmo_version().decode() == __version__
