"""Children made by fork: they compute with one thread, and no lock is held by a thread that they do not have.

A fork copies none of the threads that torch computes with (OpenMP's): a child that hands them work waits for ever.
With one thread it hands out none. The native library's threads begin and end within a call, and are no matter.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from weakref import WeakSet

import torch


class ForkLock:
    """A lock that is free in a forked child, whoever held it in the parent.

    The child may find what it guards as it was at any moment within the block: each must be one to go on from.
    """

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: WeakSet[ForkLock] = WeakSet()


@cache  # once for a process, and not before it has a model
def prepare_for_forks() -> None:
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    torch.set_num_threads(1)
    for lock in list(_locks):
        lock.renew()
