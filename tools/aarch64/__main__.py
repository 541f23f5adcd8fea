"""The native kernels on aarch64: cross-compiled, run under qemu, compared; their inner loops looked at.

    python tools/aarch64 [--tests TEST...]

Each kernel is run by the library compiled for aarch64 and by the portable variant of this machine's, and compared
with that and with the definition in PyTorch. Exit code 1 where they differ, where a row's bits depend on what
stands beside it or on the threads, or where a sum does not stay in its register. --tests runs test files of
elmokit, with every call of the library on aarch64. Exit code 3: no cross compiler or no qemu.
"""

from __future__ import annotations

import argparse
import gc
import math
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from assembly import loops
from cases import EXACT, Case, cases, laws
from processor import Processor
from torch import Tensor

from elmokit import __version__
from elmokit.model.kernels import use
from elmokit.model.kernels.library import available_variants

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "src" / "elmokit" / "model" / "kernels"
# Debian's packages, by what is needed of them.
COMPILER, DISASSEMBLER, EMULATOR = "aarch64-linux-gnu-g++", "aarch64-linux-gnu-objdump", "qemu-aarch64"
PACKAGES = {COMPILER: "g++-aarch64-linux-gnu", DISASSEMBLER: "binutils-aarch64-linux-gnu", EMULATOR: "qemu-user"}
SYSTEM = "/usr/aarch64-linux-gnu"  # where the emulator finds the C library
MISSING = 3  # exit code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="+", metavar="TEST", help="run these tests on aarch64 instead")
    chosen = parser.parse_args().tests
    missing = [package for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    if missing:
        print(f"missing: what Debian has in {' '.join(missing)}\n    apt-get install {' '.join(missing)}")
        return MISSING
    torch.set_num_threads(1)  # of torch's own
    gc.freeze()  # modules and code: most of what is alive, and no call points to it
    with tempfile.TemporaryDirectory() as temporary:
        command = compiled(Path(temporary))
        if chosen:
            return tests(command, chosen)
        right = [compare(command), obey(command), look(Path(command[-1]))]
    print("all as it should be" if all(right) else "FAILED")
    return 0 if all(right) else 1


def compiled(folder: Path) -> list[str]:
    """The library as setup.py has it compiled, and what serves its functions: how to run that."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8").splitlines()
    flags = [part for line in setup if line.startswith(("FLAGS = ", "QUIET = ")) for part in line.split('"')[1::2]]
    digest = runpy.run_path(str(KERNELS / "sources.py"))["sources_digest"](KERNELS / "native")
    versions = [f"-DELMOKIT_VERSION={__version__}", f"-DELMOKIT_SOURCES={digest}"]
    sources = sorted(str(path) for path in (KERNELS / "native").glob("*.cpp"))
    library, serve = folder / "library.so", folder / "serve"
    parts = [(source, folder / f"{Path(source).stem}.o") for source in sources]
    running = [
        subprocess.Popen([COMPILER, *flags, *versions, "-fPIC", "-c", source, "-o", str(out)])
        for source, out in parts
    ]
    if any(process.wait() for process in running):
        sys.exit("the kernels do not compile for aarch64")
    subprocess.run([COMPILER, "-shared", "-pthread", *(str(out) for _, out in parts), "-o", library], check=True)
    here = Path(__file__).parent
    subprocess.run([COMPILER, "-std=c++17", "-O1", here / "serve.cpp", "-ldl", "-o", serve], check=True)
    return [EMULATOR, "-L", SYSTEM, str(serve), str(library)]


def compare(command: list[str]) -> bool:
    """A line for each function: the largest differences of all its cases."""
    print("| function | cases | from portable x86 | from avx2 | from the definition |\n|---|---|---|---|---|")
    rows: dict[str, list[tuple[float, float, float]]] = {}
    failures = []
    fused = "avx2" in available_variants()  # it multiplies and adds in one, as aarch64 does
    for case in cases():
        with Processor(command):
            found = case.run()
        beside = difference(found, in_variant("portable", case))
        alike = difference(found, in_variant("avx2", case)) if fused else math.nan
        defined = math.nan if case.defined is None else difference(found, in_variant("definition", case))
        label = f"{case.function} {case.name.split(',')[0]}" if case.function == "elmo_forward" else case.function
        rows.setdefault(label, []).append((beside, alike, defined))
        far = beside > case.allowed or (case.defined is not None and not defined <= case.defined)
        if far or (fused and alike > EXACT):
            found_apart = f"{beside:.1e} from portable, {alike:.1e} from avx2, {defined:.1e} from the definition"
            failures.append(f"{case.function}, {case.name}: {found_apart}")
    for label, differences in rows.items():
        print(
            f"| {label} | {len(differences)} |", " | ".join(_shown(max(each)) for each in zip(*differences)), "|"
        )
    for failure in failures:
        print("FAILED:", failure)
    return not failures


def in_variant(name: str, case: Case) -> list[Tensor]:
    with use(name):
        return case.run()


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest; infinite where one is no number and the other is, or shapes differ."""
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
            return math.inf
        apart = torch.where(one == other, 0.0, (one - other).abs()).nan_to_num(0.0, posinf=math.inf)
        largest = max(largest, float(apart.max()) if apart.numel() else 0.0)
    return largest


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1e}" if value else "0"


def obey(command: list[str]) -> bool:
    with Processor(command):
        broken = [law for law, holds in laws() if not holds]
    print("laws: a row's bits are its own, threads change none:", "hold" if not broken else "BROKEN", *broken)
    return not broken


def look(library: Path) -> bool:
    """The loops of the tiles, and of the formats of weights; sums in registers, or not."""
    print("\n| loop | instructions | products | sums | vectors to and from the stack |\n|---|---|---|---|---|")
    right = False
    for loop in loops(DISASSEMBLER, library):
        products = f"{len(loop.products)} {loop.kind}"
        print(f"| {loop.function} | {len(loop.instructions)} | {products} | {loop.sums} | {loop.spills} |")
        if loop.function.startswith("tile<3, Float32, 1>") and len(loop.products) == 96:
            right = loop.sums == 24 and not loop.spills
    print("the tile of three rows: 24 sums of four floats in registers:", "yes" if right else "NO")
    return right


def tests(command: list[str], chosen: list[str]) -> int:
    import pytest

    with Processor(command):
        return int(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not slow", *chosen]))


if __name__ == "__main__":
    sys.exit(main())
