"""The native kernels under AddressSanitizer and UndefinedBehaviorSanitizer: their tests, in every variant.

    python tools/sanitize.py [TEST...]

Compiles the kernels into a copy of the package, in a temporary folder, and runs the tests of the kernels on it. A
read or write outside of memory, or undefined behaviour, ends the run with a report.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["kernels", "word_kernels", "convolution", "bfloat16", "bfloat16_training", "weight_cache", "dispatch"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="of tests/; by default those of the kernels")
    chosen = parser.parse_args().tests or [f"tests/test_{name}.py" for name in TESTS]
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
        compile_kernels(source / "elmokit" / "model" / "kernels")
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "LD_PRELOAD": " ".join(runtime(name) for name in ("libasan.so", "libubsan.so")),
            "ASAN_OPTIONS": f"detect_leaks=0:log_path={temporary}/report",  # Python keeps memory until it ends
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={temporary}/report",
        }
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *chosen]
        code = subprocess.run(line, cwd=ROOT, env=environment).returncode
        for report in sorted(Path(temporary).glob("report*")):  # pytest would have kept it to itself
            print(report.read_text(errors="replace"))
            code = code or 1
    print("clean" if code == 0 else "FAILED")
    return code


def compile_kernels(kernels: Path) -> None:
    """As setup.py does, less optimized, and with the sanitizers."""
    native, setup = kernels / "native", (ROOT / "setup.py").read_text(encoding="utf-8")
    flags = next(line for line in setup.splitlines() if line.startswith("FLAGS = ")).split('"')[1::2]
    flags = [flag for flag in flags if flag not in ("-O3", "-g0")] + ["-O1", "-g", "-Wno-psabi"]
    digest = runpy.run_path(str(kernels / "sources.py"))["sources_digest"](native)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = next(line.split('"')[1] for line in project.splitlines() if line.startswith("version"))
    out = kernels / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    print("compiling", flush=True)
    subprocess.run(
        [
            *(compiler(), *flags, *SANITIZERS, "-fPIC", "-shared", "-o", str(out)),
            *(f"-DELMOKIT_VERSION={version}", f"-DELMOKIT_SOURCES={digest}"),
            *sorted(str(path) for path in native.glob("*.cpp")),
        ],
        check=True,
    )


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def runtime(name: str) -> str:
    """Where the compiler has the sanitizer's library: it must be there before Python is."""
    found = subprocess.run([compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
