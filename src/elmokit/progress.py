"""How far a piece of work has come: one type and one callback for all that takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Progress(NamedTuple):
    stage: str  # "embedding", "fitting"
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """The callback of a caller who has none."""


def watched(items: Iterable[Item], total: int, stage: str, on_progress: OnProgress) -> Iterator[Item]:
    """The items, each reported when whoever takes them asks for the next."""
    on_progress(Progress(stage, 0, total))
    for done, item in enumerate(items, start=1):
        yield item
        on_progress(Progress(stage, done, total))
