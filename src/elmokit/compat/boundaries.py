"""AllenNLP's `add_sentence_boundary_token_ids` and `remove_sentence_boundaries`, on any padded batch.

Shapes: B rows, T tokens, W ids per token, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elmokit.errors import UserError


def add_sentence_boundary_token_ids(
    tensor: Tensor, mask: Tensor, sentence_begin_token: Any, sentence_end_token: Any
) -> tuple[Tensor, Tensor]:
    """[B, T] or [B, T, W] -> two tokens longer, one before each row's tokens and one after them; and the mask.

    The tokens are numbers for [B, T], rows [W] for [B, T, W]. The mask is true where what was made is not 0.
    """
    if tensor.dim() not in (2, 3):
        raise UserError(f"expected ids [B, T] or [B, T, W], found {list(tensor.shape)}")
    begin, end = (torch.as_tensor(token).to(tensor) for token in (sentence_begin_token, sentence_end_token))
    rows, tokens = tensor.shape[:2]
    longer = tensor.new_zeros(rows, tokens + 2, *tensor.shape[2:])
    longer[:, 1:-1] = tensor
    longer[:, 0] = begin
    longer[torch.arange(rows, device=tensor.device), mask.long().sum(dim=1) + 1] = end
    return longer, longer != 0 if tensor.dim() == 2 else (longer > 0).any(dim=-1)


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T + 2, D], [B, T + 2] -> [B, T, D], [B, T] without each row's first and last token; 0 where padded."""
    lengths = mask.long().sum(dim=1) - 2
    inner = torch.arange(tensor.shape[1] - 2, device=tensor.device) < lengths.unsqueeze(1)  # [B, T]
    return torch.where(inner.unsqueeze(-1), tensor[:, 1:-1], tensor.new_zeros(())), inner
