"""The machine at hand: processor, instruction sets that matter here, caches, threads, and who else is at work."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from elmokit import __version__
from elmokit.model.kernels import variant

# What products run on, and the names that Linux has for it; the last two are ARM's.
SETS = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "BF16": ("avx512_bf16", "bf16"),
    "AMX": ("amx_tile",),
    "NEON": ("asimd", "neon"),
    "I8MM": ("i8mm",),
}
BUSY = 0.1  # of all cores, taken by others: more than that, and figures are low
CPUINFO, STAT = Path("/proc/cpuinfo"), Path("/proc/stat")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Machine:
    processor: str
    system: str
    cores: int
    logical: int  # with hyperthreads
    usable: int  # by this process
    instruction_sets: tuple[str, ...]
    caches: dict[str, str]  # of one core, or shared: "L2" -> "1024K"
    threads: int  # that torch and the kernels use
    load: float | None  # processes that ran or waited to, over the last minute

    @classmethod
    def here(cls) -> Machine:
        cpuinfo = CPUINFO.read_text(errors="replace") if CPUINFO.is_file() else ""
        logical = os.cpu_count() or 1
        return cls(
            processor=processor_name(cpuinfo),
            system=f"{platform.system()} {platform.machine()}",
            cores=physical_cores(cpuinfo) or logical,
            logical=logical,
            usable=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical,
            instruction_sets=instruction_sets(cpuinfo),
            caches=caches(),
            threads=torch.get_num_threads(),
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        )


def values_of(cpuinfo: str, *keys: str) -> Iterator[str]:
    """What stands behind these keys, processor by processor."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys:
            yield value.strip()


def processor_name(cpuinfo: str) -> str:
    names = values_of(cpuinfo, "model name", "Model", "Hardware")
    return next(names, "") or platform.processor() or platform.machine() or "unknown"


def physical_cores(cpuinfo: str) -> int:
    """0 where the system does not say: hyperthreads of a core have the same number."""
    return len(set(zip(values_of(cpuinfo, "physical id"), values_of(cpuinfo, "core id"))))


def instruction_sets(cpuinfo: str) -> tuple[str, ...]:
    flags = set(next(values_of(cpuinfo, "flags", "Features"), "").split())
    if not flags:  # not Linux: as far as torch knows
        known = {"AVX2": ("avx2",), "AVX512": ("avx2", "avx512f")}
        flags = set(known.get(torch.backends.cpu.get_cpu_capability(), ()))
        flags |= {"neon"} if platform.machine().lower() in ("arm64", "aarch64") else set()
    return tuple(name for name, spellings in SETS.items() if flags.intersection(spellings))


def caches(folder: Path = CACHES) -> dict[str, str]:
    """Those of data, as Linux has them; none elsewhere."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


class Company:
    """Who else is at work, from when this is made: ratios that were measured beside others mean little."""

    def __init__(self) -> None:
        self._before = _times()

    def share(self) -> float | None:
        """Of all cores' time until now, what other processes took; None where the system does not say."""
        now = _times()
        if now is None or self._before is None:
            return None
        passed, busy, own = (b - a for a, b in zip(self._before, now))
        whole = passed * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy - own) / whole)) if whole > 0 else None


def _times() -> tuple[float, float, float] | None:
    """Seconds by the clock, those of all cores at work, and our own of these."""
    try:
        first = STAT.read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, first[1:9])
    except (OSError, ValueError):
        return None
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return time.monotonic(), busy, sum(os.times()[:4])


def versions() -> dict[str, str | None]:
    """What was measured: to be kept with every figure."""
    return {
        "elmokit": __version__,
        "commit": commit(),
        "kernels": variant(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def commit() -> str | None:
    """Of the clone that elmokit runs from, with + where files differ from it; None where it is installed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip() + ("+" if changed else "")
