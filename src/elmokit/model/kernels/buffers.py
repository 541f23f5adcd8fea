"""Memory that is used again from step to step: what the LSTMs keep for their backward pass."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from elmokit.model.kernels.forking import ForkLock


class BufferPool:
    """Buffers are handed out and come back: fresh pages took a fifth of the forward pass."""

    MOST = 32  # tensors: those of four layers and more

    def __init__(self) -> None:
        self._free: list[Tensor] = []
        self._lock = ForkLock()

    def acquire(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer of this shape; what is in it is left over."""
        with self._lock:
            for i, tensor in enumerate(self._free):
                if tensor.shape == shape and tensor.dtype == dtype:
                    return self._free.pop(i)
        return torch.empty(shape, dtype=dtype)

    def release(self, tensors: Iterable[Tensor]) -> None:
        with self._lock:
            self._free = [*self._free, *tensors][-self.MOST :]


BUFFERS = BufferPool()
