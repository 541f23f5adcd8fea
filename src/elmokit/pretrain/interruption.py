"""Ctrl-C while a Python program trains: after the step, not within it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C is noted, and what is yielded tells it; a second one raises KeyboardInterrupt at once.

    Only where it would have raised KeyboardInterrupt anyway: a program's own handler is left alone.
    """
    noted = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    main = threading.current_thread() is threading.main_thread()  # signals are for no other
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
