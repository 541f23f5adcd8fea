"""The softmax's loss and its gradients from products of bfloat16; language_head.py has the definition.

Shapes: N positions, D width, C words.
"""

from __future__ import annotations

from ctypes import byref

import torch
from torch import Tensor

from elmokit.model.kernels.library import call
from elmokit.model.kernels.packing import up_to
from elmokit.model.kernels.structs import PANEL, Softmax


def loss_and_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, shared: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """h [N, D], weight [C, D], bias [C], targets [N], shared [C] -> loss, and gradients by h, weight and bias."""
    h, weight, bias, targets = (tensor.detach().contiguous() for tensor in (h, weight, bias, targets))
    hidden = None
    if shared is not None:  # a word that is not shared is seen by those alone whose target it is
        hidden = bias.new_zeros(up_to(len(bias), PANEL))
        hidden[: len(bias)].masked_fill_(~shared, -torch.inf)
    losses = torch.empty(len(h), dtype=torch.float64)
    # Without a position there is nothing that would fill them.
    gradients = tuple((torch.empty_like if len(h) else torch.zeros_like)(each) for each in (h, weight, bias))
    given = Softmax(
        h=h.data_ptr(),
        weight=weight.data_ptr(),
        bias=bias.data_ptr(),
        hidden=None if hidden is None else hidden.data_ptr(),
        targets=targets.data_ptr(),
        positions=len(h),
        words=len(bias),
        width=h.shape[1],
        losses=losses.data_ptr(),
        h_gradient=gradients[0].data_ptr(),
        weight_gradient=gradients[1].data_ptr(),
        bias_gradient=gradients[2].data_ptr(),
    )
    if len(h):
        call("elmo_softmax16", byref(given), torch.get_num_threads())
    return losses.sum().to(h.dtype), gradients
