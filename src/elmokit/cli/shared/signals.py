"""Ctrl-C and SIGTERM: work ends in an orderly way, and what was there before is put back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def interrupt() -> None:
    """For work that may be broken off anywhere: what has been done so far is on disk."""
    raise KeyboardInterrupt


@contextmanager
def stoppable(stop: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Within, both signals call `stop`; what is yielded tells whether one came, for loops that ask."""
    stopped = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        stop()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: stopped
    finally:
        for number, old in before.items():
            signal.signal(number, old)
