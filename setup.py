"""The native kernels: plain C++17 behind ctypes, compiled where there is a compiler, left out where there is none.

All else about the package is in pyproject.toml.
"""

import re
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/elmokit/model/kernels")
NATIVE = KERNELS / "native"
# -ffp-contract: multiply and add in one instruction; GCC leaves that out under -std=c++17 unless it is told.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fvisibility=hidden", "-pthread", "-g0"]
QUIET = ["-Wno-psabi", "-Wno-ignored-attributes"]


def version() -> str:
    found = re.search(r'^version = "(.+)"$', Path("pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


# Compiled in, and compared when the library is loaded: one that was compiled from other sources is not run.
sources_digest = runpy.run_path(str(KERNELS / "sources.py"))["sources_digest"]

setup(
    ext_modules=[
        Extension(
            "elmokit.model.kernels._native",
            sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
            depends=["pyproject.toml", "setup.py", *sorted(str(path) for path in NATIVE.glob("*.h"))],
            define_macros=[("ELMOKIT_VERSION", version()), ("ELMOKIT_SOURCES", sources_digest(NATIVE))],
            language="c++",
            extra_compile_args=[] if sys.platform == "win32" else [*FLAGS, *QUIET],
            extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
            optional=True,  # without it, PyTorch's own operations do the work
        )
    ]
)
