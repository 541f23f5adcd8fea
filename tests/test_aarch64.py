"""tools/aarch64: the kernels on another processor, and what tells a good inner loop from a bad one."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elmokit.model.kernels.library import library
from elmokit.model.kernels.structs import Packed, Span, array_of

TOOL = Path(__file__).parent.parent / "tools" / "aarch64"
NEEDED = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-objdump", "qemu-aarch64")


@pytest.fixture
def tool(monkeypatch):
    """Modules of the tool, by name."""
    monkeypatch.syspath_prepend(str(TOOL))
    yield importlib.import_module
    for name in ("assembly", "processor"):  # others may have modules of these names
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.skipif(library() is None, reason="the native library is not here, or not chosen")
@pytest.mark.skipif(any(shutil.which(name) is None for name in NEEDED), reason="no cross compiler, or no qemu")
def test_the_kernels_give_the_same_on_aarch64():
    run = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "all as it should be" in run.stdout


def test_what_is_missing_is_named(tmp_path):
    run = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)}
    )
    assert run.returncode == 3
    assert "apt-get install g++-aarch64-linux-gnu binutils-aarch64-linux-gnu qemu-user" in run.stdout


def test_all_that_a_call_points_to_goes_along(tool):
    memory = tool("processor").Memory()
    tensor = torch.arange(6, dtype=torch.float32)
    spans = array_of([Span(bytes=tensor[2:].data_ptr(), count=16), Span(bytes=None, count=0)])
    assert memory.argument(spans, object) == (0, 0)
    memory.follow()
    assert memory.pointers == [(0, 0, 1, 8)]
    assert memory.regions[1].content == tensor.numpy().tobytes()


def test_a_pointer_to_what_is_gone_becomes_none(tool):
    memory = tool("processor").Memory()
    memory.argument(array_of([Packed(values=64)]), object)
    memory.follow()
    assert memory.pointers == [(0, 0, -1, 0)]


LISTING = """
0000000000000010 <void elmo::portable::tile<3>(int)>:
   10:\tmov\tx0, x1
   14:\tfmla\tv1.4s, v2.4s, v3.4s
   18:\tfmla\tv4.4s, v2.4s, v3.s[0]
   1c:\tstr\tq1, [sp, #112]
   20:\tldr\tq5, [x0, #112]
   24:\tb.ne\t14 <void elmo::portable::tile<3>(int)+0x4>
"""


def test_a_sum_that_leaves_its_register_is_counted(tool, monkeypatch):
    assembly = tool("assembly")
    monkeypatch.setattr(assembly, "FEWEST", 2)
    ((name, body),) = [part for part in assembly._functions(LISTING) if part[1]]
    (loop,) = assembly._loops_of(name, body)
    assert (loop.function, len(loop.instructions), loop.kind) == ("tile<3>", 5, "fmla v.4s")
    assert (loop.sums, loop.spills) == (2, 1)
