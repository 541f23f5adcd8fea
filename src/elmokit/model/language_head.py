"""The softmax over the vocabulary, shared by both directions: h_k -> log p(word).

It is trained in one of two ways, each a SUM of negative log likelihoods over the positions that have a target:

- `full_loss`, over all words; its gradients are those of `weight` and `bias`, as usual.
- `rows(...).sampled_loss`, over the true word and S negatives, as `tf.nn.sampled_softmax_loss`. Only the rows of
  the words in play are read, get gradients and are updated: a step costs the same for 10,000 and 800,000 words.

    negatives = sampler.sample(8192, generator)
    rows = head.rows(targets, negatives.ids)
    rows.sampled_loss(h, targets, negatives, sampler).backward()  # -> rows.weight.grad, rows.bias.grad, and h's

The softmax is as wide as h, or of a width of its own: then one linear map, shared by both directions and trained
densely, stands before it. Everything here takes h as the LSTM gives it, and maps it where there is a map.

Shapes: N positions, P width of h, D of the softmax, V words, S negatives, U rows in play, C columns of a loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from elmokit.errors import UserError
from elmokit.model.kernels import bfloat16, bfloat16_softmax
from elmokit.model.kernels.dispatch import Path, path_for
from elmokit.model.sampling import LogUniformSampler, Negatives

# Logits held at once, in training as in evaluation: so many (8 MiB in float32, which caches hold), or those of so
# few positions if the vocabulary is large (100 MB for 800,000 words), since fewer waste the product.
LOGITS, POSITIONS = 1 << 21, 32


class LanguageHead(nn.Module):
    projection_weight: nn.Parameter | None  # [D, P]; none where D = P

    def __init__(self, vocabulary: int, width: int, softmax_width: int = 0) -> None:
        """softmax_width: 0, as wide as h."""
        super().__init__()
        softmax_width = softmax_width or width
        self.weight = nn.Parameter(torch.empty(vocabulary, softmax_width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.weight, std=softmax_width**-0.5)
        self.register_parameter("projection_weight", None)
        if softmax_width != width:
            self.projection_weight = nn.Parameter(torch.empty(softmax_width, width))
            nn.init.normal_(self.projection_weight, std=width**-0.5)

    @property
    def softmax_width(self) -> int:
        return self.weight.shape[1]

    def forward(self, h: Tensor) -> Tensor:  # [..., P] -> log probabilities [..., V]
        return F.log_softmax(F.linear(_projected(h, self.projection_weight), self.weight, self.bias), dim=-1)

    def full_loss(self, h: Tensor, targets: Tensor) -> Tensor:
        """h [..., P], targets [...] (-1: nothing is predicted there) -> the sum of -log p(target)."""
        h, targets = _predicted(h, targets)
        if targets.numel() and int(targets.max()) >= len(self.bias):
            raise UserError(f"expected targets below {len(self.bias)}, found {int(targets.max())}")
        return _negative_log_likelihood(_projected(h, self.projection_weight), self.weight, self.bias, targets)

    def rows(self, *ids: Tensor) -> SoftmaxRows:
        """The rows of all these words: each once, sorted; -1 is no word.

        In a distributed run, give every rank the ids of all ranks: the rows, and so the gradients, then agree.
        """
        distinct = torch.unique(torch.cat([some.flatten() for some in ids]))
        distinct = distinct[distinct >= 0]
        if distinct.numel() and int(distinct[-1]) >= len(self.bias):
            raise UserError(f"expected ids below {len(self.bias)}, found {int(distinct[-1])}")
        return SoftmaxRows(
            distinct,
            self.weight.detach().index_select(0, distinct).requires_grad_(),
            self.bias.detach().index_select(0, distinct).requires_grad_(),
            self.projection_weight,
        )


class SoftmaxRows:
    """Copies of some rows of the softmax: leaves that collect the gradients of any number of losses.

    The map before the softmax is the head's own, not a copy: every position uses the whole of it.
    """

    def __init__(self, ids: Tensor, weight: Tensor, bias: Tensor, projection_weight: Tensor | None) -> None:
        self.ids = ids  # [U], distinct, sorted
        self.weight = weight  # [U, D]
        self.bias = bias  # [U]
        self.projection_weight = projection_weight  # [D, P], if there is a map

    def sampled_loss(self, h: Tensor, targets: Tensor, negatives: Negatives, sampler: LogUniformSampler) -> Tensor:
        """h [..., P], targets [...] (-1: nothing is predicted there) -> the sum of -log p(target), where p is the
        softmax over the target and the negatives, each logit less the log of its word's expected count.

        A negative that is a position's target (an accidental hit) does not count against it.
        """
        h, targets = _predicted(h, targets)
        # A column for each word in play here. A position sees the negatives' columns and that of its own target:
        # an accidental hit is then one column, and no two of them can stand for the same word.
        words = torch.unique(torch.cat([negatives.ids, targets]))  # [C]
        sampled = torch.zeros(len(words), dtype=torch.bool, device=words.device)
        sampled[torch.searchsorted(words, negatives.ids)] = True
        rows = self._places(words)
        correction = sampler.expected_count(words, negatives.tries).log().to(self.bias.dtype)
        return _negative_log_likelihood(
            _projected(h, self.projection_weight),
            self.weight.index_select(0, rows),
            self.bias.index_select(0, rows) - correction,
            torch.searchsorted(words, targets),
            sampled,
        )

    def _places(self, words: Tensor) -> Tensor:
        """Where these words' rows are."""
        places = torch.searchsorted(self.ids, words)
        missing = words[self.ids[places.clamp(max=len(self.ids) - 1)] != words] if len(self.ids) else words
        if missing.numel():
            raise UserError(
                f"expected rows of all targets and negatives, found none of word {int(missing[0])}: "
                "gather them with head.rows(targets, negatives.ids)"
            )
        return places


def _predicted(h: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The positions that have a target: h [N, P], targets [N]."""
    if h.shape[:-1] != targets.shape:
        raise UserError(
            f"expected one target a vector, found vectors {tuple(h.shape)} and targets {tuple(targets.shape)}"
        )
    h, targets = h.reshape(-1, h.shape[-1]), targets.reshape(-1)
    there = (targets >= 0).nonzero().squeeze(1)
    return (h, targets) if len(there) == len(targets) else (h[there], targets[there])


def _projected(h: Tensor, projection_weight: Tensor | None) -> Tensor:  # [..., P] -> [..., D]
    if projection_weight is None:
        return h
    if h.dim() == 2 and path_for(h, projection_weight, training=True) is Path.BFLOAT16_TRAINING:
        return bfloat16.linear(h, projection_weight, None)
    return F.linear(h, projection_weight)


def _negative_log_likelihood(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, shared: Tensor | None = None
) -> Tensor:
    """h [N, D], weight [C, D], bias [C], targets [N] in 0..C-1 -> the sum of -log softmax(h W' + b)[target].

    With shared [C], the columns where it is false are seen by the positions that they are the target of, alone.
    """
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (h, weight, bias))):
        return _loss_and_gradients(h, weight, bias, targets, shared, learns=False)[0]
    loss: Tensor = _NegativeLogLikelihood.apply(h, weight, bias, targets, shared)  # type: ignore[no-untyped-call]
    return loss


class _NegativeLogLikelihood(torch.autograd.Function):
    """The gradients are made beside the loss, chunk by chunk: nothing of size N x C is kept until backward."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, shared: Tensor | None
    ) -> Tensor:
        if path_for(h, weight, bias, training=True) is Path.BFLOAT16_TRAINING:
            loss, gradients = bfloat16_softmax.loss_and_gradients(h, weight, bias, targets, shared)
        else:
            loss, gradients = _loss_and_gradients(h, weight, bias, targets, shared, learns=True)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * scale for gradient in ctx.saved_tensors), None, None)


def _loss_and_gradients(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, shared: Tensor | None, learns: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The loss and, where it learns, its gradients by h, weight and bias; the logits of one chunk at once."""
    seen_bias = bias if shared is None else bias.masked_fill(~shared, -torch.inf)
    gradients = tuple(torch.zeros_like(tensor) for tensor in (h, weight, bias)) if learns else ()
    loss = torch.zeros((), dtype=torch.float64, device=h.device)
    size = min(len(h), max(POSITIONS, LOGITS // max(1, len(bias))))
    buffer = h.new_empty(size, len(bias))  # one for all chunks: fresh memory costs more than the softmax in it
    for start in range(0, len(h), max(1, size)):
        x, target = h[start : start + size], targets[start : start + size].unsqueeze(1)  # [n, D], [n, 1]
        own = ((x * weight[target[:, 0]]).sum(dim=1) + bias[target[:, 0]]).unsqueeze(1)  # [n, 1]
        logits = torch.addmm(seen_bias, x, weight.T, out=buffer[: len(x)]).scatter_(1, target, own)  # [n, C]
        highest = logits.amax(dim=1, keepdim=True)
        weights = logits.sub_(highest).exp_()
        total = weights.sum(dim=1, keepdim=True)
        loss += (highest - own + total.log()).double().sum()
        if learns:
            error = weights.div_(total)  # softmax - one-hot: the gradient by the logits
            error.scatter_add_(1, target, -torch.ones_like(own))
            torch.mm(error, weight, out=gradients[0][start : start + size])
            gradients[1].addmm_(error.T, x)
            gradients[2].add_(error.sum(dim=0))
    return loss.to(h.dtype), gradients
