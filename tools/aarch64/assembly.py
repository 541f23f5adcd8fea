"""What the compiler made of the inner loops: how many sums stay in registers, and what leaves them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FEWEST = 16  # multiplications of a loop that is one of those that count
PRODUCT = re.compile(r"^(fmla|sdot|udot|usdot|bfdot|bfmmla|mla|smlal2?)$")


class Instruction(NamedTuple):
    address: int
    name: str
    operands: str


class Loop(NamedTuple):
    function: str
    instructions: list[Instruction]

    @property
    def products(self) -> list[Instruction]:
        return [one for one in self.instructions if PRODUCT.match(one.name)]

    @property
    def kind(self) -> str:  # "fmla v.4s"
        return " ".join(
            sorted({f"{one.name} v.{one.operands.split(',')[0].split('.')[-1]}" for one in self.products})
        )

    @property
    def sums(self) -> int:  # registers that are added to
        return len({one.operands.split(".")[0] for one in self.products})

    @property
    def spills(self) -> int:  # whole vectors to the stack or from it
        return sum(bool(re.search(r"\bq\d+", one.operands)) and "[sp" in one.operands for one in self.instructions)


def loops(disassembler: str, library: Path) -> list[Loop]:
    """The innermost loops that multiply, by function."""
    command = [disassembler, "-d", "-C", "--no-show-raw-insn", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [loop for name, body in _functions(listing) for loop in _loops_of(name, body)]


def _functions(listing: str) -> Iterator[tuple[str, list[Instruction]]]:
    for part in re.split(r"\n(?=[0-9a-f]{16} <)", listing):
        head, *lines = part.splitlines() or [""]
        found = (re.match(r"\s*([0-9a-f]+):\t(\S+)\s*(.*)", line) for line in lines)
        name = re.sub(r"elmo::portable::|elmo::|void |::Stored", "", head[head.find("<") + 1 : -2])
        yield name.split("(")[0], [Instruction(int(one[1], 16), one[2], one[3]) for one in found if one]


def _loops_of(name: str, body: list[Instruction]) -> Iterator[Loop]:
    places = {instruction.address: i for i, instruction in enumerate(body)}
    for i, (address, jump, operands) in enumerate(body):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if not (jump.startswith(("b.", "cb", "tb")) and target) or not int(target[1], 16) <= address:
            continue
        inside = body[places.get(int(target[1], 16), i) : i + 1]
        if any(one.name.startswith(("b.", "cb", "tb", "bl")) for one in inside[:-1]):
            continue  # not the innermost
        loop = Loop(name, inside)
        if len(loop.products) >= FEWEST:
            yield loop
