"""What a campaign hands back, one at a time."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    kind: str  # what was attacked: a row of the table
    name: str  # which attack: with the seed, enough to repeat it
    failure: str | None  # what went wrong, in a line; None where all held
