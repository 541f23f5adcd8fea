"""Kills, damaged and hostile files in one bounded command: `python tools/soak --minutes 20 --seed 0`.

A table of cases and failures by kind, and exit code 1 if anything failed. With the same seed the same cases come
in the same order; how many of them depends on the time.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
from case import Case

Campaign = Callable[[int, float, Path], Iterator[Case]]


def campaigns() -> dict[str, Campaign]:
    found: dict[str, Campaign] = {"hostile": hostile.campaign}
    if importlib.util.find_spec("kills") is not None:
        kills = importlib.import_module("kills")
        found["kills"] = kills.campaign
    return found


def run(chosen: dict[str, Campaign], seed: int, seconds: float, folder: Path) -> list[Case]:
    """The time is split evenly; what one leaves, the next one has."""
    end = time.monotonic() + seconds
    cases: list[Case] = []
    for left, (name, campaign) in zip(range(len(chosen), 0, -1), chosen.items()):
        for case in campaign(seed, max(0.0, end - time.monotonic()) / left, folder / name):
            cases.append(case)
            if case.failure is not None:
                print(f"FAILED  {case.kind}: {case.name}: {case.failure}", flush=True)
    return cases


def table(cases: list[Case]) -> str:
    counts, failures = Counter(case.kind for case in cases), Counter(case.kind for case in cases if case.failure)
    rows = [(kind, f"{counts[kind]:,}", f"{failures[kind]:,}") for kind in sorted(counts)]
    rows.append(("all", f"{len(cases):,}", f"{failures.total():,}"))
    width = max(len(kind) for kind, _, _ in rows)
    head = f"{'kind':{width}}  {'cases':>8}  {'failures':>8}"
    return "\n".join([head, *(f"{kind:{width}}  {count:>8}  {failed:>8}" for kind, count, failed in rows)])


def main() -> int:
    known = campaigns()
    parser = argparse.ArgumentParser(prog="python tools/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kinds", nargs="+", choices=sorted(known), default=sorted(known), help="campaigns to run"
    )
    parser.add_argument("--folder", type=Path, help="where to work; files that failed are kept there")
    arguments = parser.parse_args()
    chosen = {name: known[name] for name in arguments.kinds}
    with tempfile.TemporaryDirectory(prefix="elmokit-soak-") as temporary:
        folder = arguments.folder or Path(temporary)
        cases = run(chosen, arguments.seed, 60 * arguments.minutes, folder)
    print(table(cases))
    return 1 if any(case.failure for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
