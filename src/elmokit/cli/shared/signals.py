"""Ctrl-C and SIGTERM: work ends in an orderly way, and what was there before is put back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer


def interrupt() -> None:
    """For work that may be broken off anywhere: what has been done so far is on disk."""
    raise KeyboardInterrupt


class Stopped:
    """Whether a signal came, for loops that ask; the exit code that says which, as shells have it."""

    number: int | None = None

    def __call__(self) -> bool:
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM: `elmo pretrain ... && next` does not go on without a model."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def stoppable(stop: Callable[[], None] = lambda: None) -> Iterator[Stopped]:
    """Within, both signals call `stop`; what is yielded tells whether one came.

    A KeyboardInterrupt that a signal led to, and that nobody caught, ends the command with its exit code.
    """
    stopped = Stopped()

    def handler(number: int, frame: FrameType | None) -> None:
        stopped.number = number
        stop()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    except KeyboardInterrupt:
        if stopped():
            raise typer.Exit(stopped.exit_code) from None
        raise
    finally:
        for number, old in before.items():
            signal.signal(number, old)
