"""How soon `elmo --help` answers and the first vector is there, beside `import torch`: best of several.

.venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 7
COMMANDS = {
    "python -c pass": "pass",
    "elmo --help": "import sys; sys.argv = ['elmo', '--help']; from elmokit.cli import main; main()",
    "python -c 'import torch'": "import torch",
    "first vector, en-small": "from elmokit import Elmo; Elmo.from_pretrained('en-small').embed(['He sat.'])",
}


def seconds(script: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    best = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(RUNS):
        for name, script in COMMANDS.items():
            best[name] = min(best[name], seconds(script))
    for name, value in best.items():
        print(f"{name:<26} {value:6.3f} s   {best['elmo --help'] / value:5.2f} of it is `elmo --help`")


if __name__ == "__main__":
    main()
