"""One process or many: what ranks tell each other. A run of one is the same code with nothing to tell."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import Tensor, distributed

from elmokit.errors import UserError

TIMEOUT = timedelta(minutes=10)  # a rank that is gone is noticed by the others after so long at the latest


@contextmanager
def _together() -> Iterator[None]:
    """What all ranks do at one time; if one of them is gone, that cannot be done, and the others say so."""
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"another process of this run is gone ({str(error).splitlines()[0]}); nothing before the last "
            f"checkpoint is lost: start all of them again, and resume the run"
        ) from None


class Ranks:
    """rank, world, and sums and gatherings over all ranks; made by `Ranks.from_environment` under torchrun."""

    def __init__(self, rank: int = 0, world: int = 1, *, own: bool = True) -> None:
        self.rank, self.world, self._own = rank, world, own

    @classmethod
    def from_environment(cls) -> Ranks:
        if "WORLD_SIZE" not in os.environ:
            return cls()
        own = not distributed.is_initialized()  # a script may have begun a process group for more than this
        if own:
            # Its functions take the process group of the moment they are imported as a default, and torch's
            # optimizers import it. If that is ours, `close` cannot end it, and its threads may abort the
            # process as it exits, which torchrun takes for a failure of the run.
            importlib.import_module("torch.distributed.nn.functional")
            backend = "nccl" if torch.cuda.is_available() else "gloo"
            distributed.init_process_group(backend, timeout=TIMEOUT)
        return cls(distributed.get_rank(), distributed.get_world_size(), own=own)

    def close(self) -> None:
        if self._own and self.world > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    @property
    def first(self) -> bool:
        """The rank that writes files and speaks."""
        return self.rank == 0

    def rows(self, total: int) -> tuple[int, int]:
        """The rows of a batch that are this rank's: [first, last)."""
        if total % self.world:
            raise UserError(f"a batch of {total} rows cannot be shared evenly by {self.world} processes")
        share = total // self.world
        return self.rank * share, (self.rank + 1) * share

    def sum(self, *values: float) -> list[float]:
        """Each value's sum over all ranks."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        with _together():
            distributed.all_reduce(tensor)
        return [float(value) for value in tensor]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks; one message for all of them."""
        if self.world == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with _together():
            distributed.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))

    def gather(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """Every rank's tensor, of equal shapes, one after another."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        with _together():
            distributed.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, dim=dim)

    def wait(self) -> None:
        """Until all ranks have come this far."""
        self.sum(0.0)

    def any(self, value: bool) -> bool:
        """Whether any rank says yes: a signal may reach only one of them."""
        return self.sum(float(value))[0] > 0
