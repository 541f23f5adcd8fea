"""The native kernels: plain C++17 behind ctypes, compiled where there is a compiler, left out where there is none.

All else about the package is in pyproject.toml.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/elmokit/model/kernels/native")
# -ffp-contract: multiply and add in one instruction; GCC leaves that out under -std=c++17 unless it is told.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fvisibility=hidden", "-pthread", "-g0"]
QUIET = ["-Wno-psabi", "-Wno-ignored-attributes"]

setup(
    ext_modules=[
        Extension(
            "elmokit.model.kernels._native",
            sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
            depends=sorted(str(path) for path in NATIVE.glob("*.h")),
            language="c++",
            extra_compile_args=[] if sys.platform == "win32" else [*FLAGS, *QUIET],
            extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
            optional=True,  # without it, PyTorch's own operations do the work
        )
    ]
)
