"""What was made of a module's weights, for as long as these are the same bytes: it can never be stale.

torch counts what is done to a tensor in place, but not what is done to it through `.data` or NumPy. So where its
count and its place are as before, all bytes are hashed as well (native/digest.h), at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from ctypes import c_uint64
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from elmokit.model.kernels.forking import ForkLock
from elmokit.model.kernels.library import call
from elmokit.model.kernels.structs import Span, array_of

T = TypeVar("T")


class Seen(NamedTuple):
    """Weights as they were when something was made of them."""

    counts: tuple[tuple[int, int], ...]  # of each weight: its address, and torch's count of what was done to it
    digests: tuple[int, ...] | None  # None: they were to change at once, and were not hashed


class _Made(NamedTuple):
    seen: Seen
    value: Any


_made: WeakKeyDictionary[nn.Module, dict[Hashable, _Made]] = WeakKeyDictionary()
_lock = ForkLock()
_versions_trusted = False
_private: ContextVar[bool] = ContextVar("private", default=False)  # the weights at hand are nobody else's


def remembered(
    module: nn.Module, name: Hashable, weights: Sequence[Tensor], make: Callable[[], T], *, changing: bool = False
) -> T:
    """What `make` made of a module's weights: from an earlier call, as long as they are the same."""
    with _lock:
        known = _made.setdefault(module, {})
        before = known.get(name)
    seen = look(weights, before.seen if before else None, changing=changing)
    if before is not None and seen is before.seen:
        value: T = before.value
        return value
    value = make()
    with _lock:
        known[name] = _Made(seen, value)
    return value


def look(weights: Sequence[Tensor], before: Seen | None, *, changing: bool = False) -> Seen:
    """`before` itself where the weights are still the same, and what they are now where they are not.

    changing: in training every step changes the weights, and torch counts it. They are not hashed then; whoever
    finds the count unchanged after all takes them for changed, once.
    """
    counts = tuple((weight.data_ptr(), -1 if weight.is_inference() else weight._version) for weight in weights)
    if before is not None and before.counts == counts:
        if (_versions_trusted or _private.get()) and all(version >= 0 for _, version in counts):
            return before
        assumed = _assumed.get()
        if assumed is not None and before.digests is not None:
            assumed.add(weights, before.digests)
            return before
        digests = digests_of(weights)
        return before if before.digests == digests else Seen(counts, digests)
    # Hashed before anything is made of them: an edit in between is found at the next call.
    return Seen(counts, None if changing else digests_of(weights))


class Hashing:
    """Weights for the library to hash: what it is given, and what it found."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._whole = [weight.detach().contiguous() for weight in weights]
        spans = [Span(bytes=weight.data_ptr(), count=weight.nbytes) for weight in self._whole]
        self._digests = (c_uint64 * len(spans))()
        self.arguments = (array_of(spans) if spans else None, len(spans), self._digests)

    def digests(self) -> tuple[int, ...]:
        return tuple(self._digests)


def digests_of(weights: Sequence[Tensor]) -> tuple[int, ...]:
    """64 bits of all bytes of each."""
    hashing = Hashing(weights)
    call("elmo_digest", *hashing.arguments, torch.get_num_threads())
    return hashing.digests()


class _Assumed:
    """Weights that are taken to be what they were, until they have been hashed."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, int], int] = {}  # by address and size: what each is taken to be
        self._left: dict[tuple[int, int], Tensor] = {}  # not hashed yet
        self.true = True

    def add(self, weights: Sequence[Tensor], digests: Sequence[int]) -> None:
        for weight, digest in zip(weights, digests):
            key = weight.data_ptr(), weight.nbytes
            if key not in self._digests:
                self._digests[key], self._left[key] = digest, weight
            elif self._digests[key] != digest:  # seen at different times: one of them is no longer so
                self.true = False

    def left(self) -> list[Tensor]:
        return list(self._left.values())

    def check(self, digests: Sequence[int]) -> None:
        """Those that were left, hashed."""
        if any(self._digests[key] != digest for key, digest in zip(self._left, digests)):
            self.true = False
        self._left = {}


_assumed: ContextVar[_Assumed | None] = ContextVar("assumed", default=None)


def optimistic(compute: Callable[[], T], *, private: bool = False) -> T:
    """compute(), with what was made of weights before, and while it computes these are hashed on the side.

    If they have changed after all, it is computed again. A sentence by itself leaves most threads idle: they hash.

    private: nobody else has ever had the weights, so torch's count of changes tells all, and nothing is hashed.
    """
    if private:
        mark = _private.set(True)
        try:
            return compute()
        finally:
            _private.reset(mark)
    if _assumed.get() is not None:  # a part of a larger computation, which is seen to
        return compute()
    assumed = _Assumed()
    token = _assumed.set(assumed)
    try:
        result = compute()
    finally:
        _assumed.reset(token)
    if assumed.left():
        assumed.check(digests_of(assumed.left()))
    return result if assumed.true else compute()


@contextmanager
def certain() -> Iterator[None]:
    """Within an optimistic computation, what is kept beyond it: nothing is assumed here."""
    token = _assumed.set(None)
    try:
        yield
    finally:
        _assumed.reset(token)


@contextmanager
def on_the_side() -> Iterator[Hashing]:
    """What a call of the library is to hash meanwhile: all that is assumed so far."""
    assumed = _assumed.get()
    hashing = Hashing([] if assumed is None else assumed.left())
    yield hashing
    if assumed is not None:
        assumed.check(hashing.digests())


def trust_versions(trusted: bool = True) -> AbstractContextManager[object]:
    """Promise that weights are edited only in ways that torch counts: then they are not hashed.

    That is in place, by an optimizer, by `load_state_dict`; and not through `.data`, NumPy or the like. It pays
    where sentences are read one at a time. In a `with` block until its end, called by itself from now on; for the
    whole process, as `use`.
    """
    undo = ExitStack()
    undo.callback(_trust, _versions_trusted)
    _trust(trusted)
    return undo


def _trust(trusted: bool) -> None:
    global _versions_trusted
    _versions_trusted = trusted


def weights_of(module: nn.Module) -> list[nn.Parameter]:
    """list(module.parameters()), which also looks for names and for what is shared; that takes five times as long,
    and for a sentence of its own as long as a layer."""
    found = [weight for weight in module._parameters.values() if weight is not None]
    for part in module._modules.values():
        if part is not None:
            found += weights_of(part)
    return found
