"""What runs: one predicate decides, for the tensors at hand, which path a module takes.

Under torch.autocast the modules run as they are written: torch chooses the precision then, which the library and
what is done in place would pass over.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from elmokit.model.kernels import bfloat16
from elmokit.model.kernels.library import chosen, library


class Path(Enum):
    NATIVE_INFERENCE = "the native library, without gradients"
    NATIVE_TRAINING = "the native library, with gradients"
    BFLOAT16_TRAINING = "the native library, with gradients, products of bfloat16"
    TORCH_INFERENCE = "torch's operations in place, without gradients"
    DEFINITION = "the modules as they are written"

    @property
    def native(self) -> bool:
        return self in (Path.NATIVE_INFERENCE, Path.NATIVE_TRAINING, Path.BFLOAT16_TRAINING)


def path_for(*tensors: Tensor, training: bool | None = None) -> Path:
    """What can run on all of these, here and now.

    training: whether what is computed is part of training, with gradients or for an update of the weights; unless
    given, it is where torch records gradients of one of the tensors.
    """
    device, dtype = tensors[0].device, tensors[0].dtype
    if chosen() == "definition" or _autocast(device.type):
        return Path.DEFINITION
    if any(tensor.dtype != dtype or tensor.device != device for tensor in tensors):
        return Path.DEFINITION
    if training is None:
        training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    # The library knows the memory of this machine and floats of 32 bits.
    if device.type == "cpu" and dtype == torch.float32 and library() is not None:
        if not training:
            return Path.NATIVE_INFERENCE
        return Path.BFLOAT16_TRAINING if bfloat16.asked_for() and bfloat16.available() else Path.NATIVE_TRAINING
    return Path.DEFINITION if training else Path.TORCH_INFERENCE


def _autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
