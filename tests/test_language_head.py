from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elmokit.model import language_head
from elmokit.model.language_head import LanguageHead
from elmokit.model.sampling import LogUniformSampler, Negatives
from elmokit.pretrain.optimizer import OptimizerConfig, RowOptimizer

V, P, N = 30, 6, 11
NARROW, WIDE = 4, 9  # widths of a softmax that has a map before it
TARGETS = torch.tensor([0, 3, -1, 29, 3, 7, -1, 12, 1, 0, 20])
NEGATIVES = Negatives(torch.tensor([0, 1, 2, 5, 7, 11, 19, 25]), tries=17)  # 0, 1 and 7 are targets as well
SAMPLER = LogUniformSampler(V)


def fresh(vocabulary=V, dtype=torch.float32, seed=0, softmax_width=0):
    torch.manual_seed(seed)
    head = LanguageHead(vocabulary, P, softmax_width).to(dtype)
    torch.nn.init.normal_(head.bias)
    return head, torch.randn(N, P, dtype=dtype)


def arrays(head, h):
    weight, bias, h = (tensor.detach().double().numpy() for tensor in (head.weight, head.bias, h))
    if head.projection_weight is not None:
        h = np.einsum("dp,np->nd", head.projection_weight.detach().double().numpy(), h)
    return weight, bias, h


def reference_full(head, h, targets):
    weight, bias, h = arrays(head, h)
    loss = 0.0
    for x, target in zip(h, targets.tolist()):
        if target >= 0:
            logits = weight @ x + bias
            loss += np.log(np.sum(np.exp(logits))) - logits[target]
    return loss


def reference_sampled(head, h, targets, negatives):
    """tf.nn.sampled_softmax_loss by its definition, a position and a word at a time."""
    weight, bias, h = arrays(head, h)
    vocabulary = len(bias)

    def corrected(x, word):
        p = (math.log(word + 2) - math.log(word + 1)) / math.log(vocabulary + 1)
        return weight[word] @ x + bias[word] - math.log(-math.expm1(negatives.tries * math.log1p(-p)))

    loss = 0.0
    for x, target in zip(h, targets.tolist()):
        if target >= 0:
            true = corrected(x, target)
            others = [-1e30 if word == target else corrected(x, word) for word in negatives.ids.tolist()]
            loss += np.log(np.sum(np.exp([true, *others]))) - true
    return loss


def sampled(head, h, targets=TARGETS, negatives=NEGATIVES):
    rows = head.rows(targets, negatives.ids)
    return rows.sampled_loss(h, targets, negatives, LogUniformSampler(len(head.bias))), rows


@pytest.mark.parametrize("softmax_width", [0, NARROW, WIDE])
def test_the_full_loss_is_the_definition(softmax_width):
    head, h = fresh(softmax_width=softmax_width)
    assert head.full_loss(h, TARGETS).item() == pytest.approx(reference_full(head, h, TARGETS), rel=1e-6)


@pytest.mark.parametrize("softmax_width", [0, NARROW, WIDE])
def test_the_sampled_loss_is_the_definition(softmax_width):
    head, h = fresh(softmax_width=softmax_width)
    loss, _ = sampled(head, h)
    assert loss.item() == pytest.approx(reference_sampled(head, h, TARGETS, NEGATIVES), rel=1e-6)


@pytest.mark.parametrize("softmax_width", [0, NARROW, WIDE])
def test_log_probabilities_are_the_definition(softmax_width):
    head, h = fresh(softmax_width=softmax_width)
    weight, bias, x = arrays(head, h)
    logits = x @ weight.T + bias
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(head(h).detach().numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(head(h.reshape(1, N, P)).detach().numpy()[0], expected, atol=1e-5)


def test_a_softmax_as_wide_as_h_has_no_map():
    tied, same, narrow = (LanguageHead(V, P, width) for width in (0, P, NARROW))
    assert list(tied.state_dict()) == list(same.state_dict()) == ["weight", "bias"]
    shapes = {name: tuple(tensor.shape) for name, tensor in narrow.state_dict().items()}
    assert shapes == {"weight": (V, NARROW), "bias": (V,), "projection_weight": (NARROW, P)}
    assert (tied.softmax_width, narrow.softmax_width) == (P, NARROW)


def test_the_map_begins_with_a_spread_that_keeps_the_size_of_h():
    torch.manual_seed(0)
    head = LanguageHead(3, 400, 300)
    assert head.projection_weight.std().item() == pytest.approx(400**-0.5, rel=0.02)
    assert abs(head.projection_weight.mean().item()) < 1e-3


def test_the_sampled_loss_of_drawn_negatives_is_the_definition():
    head, h = fresh(vocabulary=2000)
    targets = torch.randint(0, 2000, (N,))
    negatives = LogUniformSampler(2000).sample(500, np.random.default_rng(0))
    loss, _ = sampled(head, h, targets, negatives)
    assert loss.item() == pytest.approx(reference_sampled(head, h, targets, negatives), rel=1e-6)


def test_logits_too_large_for_exp_are_no_matter():
    head, h = fresh()
    h = h * 1e3
    assert torch.isfinite(sampled(head, h)[0])
    expected = -head(h)[torch.arange(N), TARGETS][TARGETS >= 0].sum()
    torch.testing.assert_close(head.full_loss(h, TARGETS), expected)


def test_with_every_other_word_surely_drawn_the_sampled_loss_is_the_full_one():
    """After very many tries every word was to be expected once: no correction. All V - 1 others are the rest."""
    head, h = fresh()
    for target in (0, 12, V - 1):
        negatives = Negatives(torch.tensor([word for word in range(V) if word != target]), tries=10**6)
        targets = torch.full((N,), target)
        torch.testing.assert_close(sampled(head, h, targets, negatives)[0], head.full_loss(h, targets))


def test_positions_without_target_take_no_part():
    head, h = fresh()
    kept = TARGETS >= 0
    h.requires_grad_()
    for loss in (head.full_loss, lambda h, targets: sampled(head, h, targets)[0]):
        (gradient,) = torch.autograd.grad(loss(h, TARGETS), h)
        assert not gradient[~kept].any()
        assert gradient[kept].any(dim=1).all()
        torch.testing.assert_close(loss(h, TARGETS), loss(h[kept], TARGETS[kept]))
        nothing = loss(h, torch.full((N,), -1))
        assert nothing.item() == 0
        assert not torch.autograd.grad(nothing, h)[0].any()


def test_batches_of_sentences_are_positions():
    head, _ = fresh()
    h, targets = torch.randn(2, 5, P), torch.randint(-1, V, (2, 5))
    torch.testing.assert_close(head.full_loss(h, targets), head.full_loss(h.flatten(0, 1), targets.flatten()))
    torch.testing.assert_close(sampled(head, h, targets)[0], sampled(head, h.flatten(0, 1), targets.flatten())[0])


@pytest.mark.parametrize(("logits", "positions"), [(1, 1), (1, 2), (3 * V, 1), (1 << 24, 32)])
def test_gradients_agree_with_numerical_ones(monkeypatch, logits, positions):
    """A position at a time, two, three, all."""
    monkeypatch.setattr(language_head, "LOGITS", logits)
    monkeypatch.setattr(language_head, "POSITIONS", positions)
    head, h = fresh(dtype=torch.float64)
    h.requires_grad_()

    def full(h, weight, bias):
        return torch.func.functional_call(_Full(head), {"head.weight": weight, "head.bias": bias}, (h,))

    assert torch.autograd.gradcheck(full, (h, head.weight, head.bias))
    rows = head.rows(TARGETS, NEGATIVES.ids)

    def loss(h, weight, bias):
        rows.weight, rows.bias = weight, bias
        return rows.sampled_loss(h, TARGETS, NEGATIVES, SAMPLER) * 0.3

    assert torch.autograd.gradcheck(loss, (h, rows.weight, rows.bias))


@pytest.mark.parametrize("softmax_width", [NARROW, WIDE])
def test_gradients_through_the_map_agree_with_numerical_ones(softmax_width):
    head, h = fresh(dtype=torch.float64, softmax_width=softmax_width)
    h.requires_grad_()
    names = ["weight", "bias", "projection_weight"]

    def full(h, *parameters):
        return torch.func.functional_call(_Full(head), {f"head.{n}": p for n, p in zip(names, parameters)}, (h,))

    assert torch.autograd.gradcheck(full, (h, *(getattr(head, name) for name in names)))
    rows = head.rows(TARGETS, NEGATIVES.ids)

    def loss(h, *parameters):
        rows.weight, rows.bias, rows.projection_weight = parameters
        return rows.sampled_loss(h, TARGETS, NEGATIVES, SAMPLER) * 0.3

    assert torch.autograd.gradcheck(loss, (h, *(getattr(rows, name) for name in names)))


@pytest.mark.parametrize("targets", [TARGETS, torch.full((N,), -1)])
def test_the_head_itself_gets_the_maps_gradient_of_a_sampled_loss(targets):
    """Also where nothing is predicted: all ranks then have it to sum."""
    head, h = fresh(softmax_width=NARROW)
    loss, _ = sampled(head, h, targets)
    loss.backward()
    assert head.weight.grad is None
    assert bool(head.projection_weight.grad.any()) == bool((targets >= 0).any())


class _Full(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, h):
        return self.head.full_loss(h, TARGETS)


@pytest.mark.parametrize(("logits", "positions"), [(1, 1), (1, 2), (3 * V, 1)])
def test_chunks_change_nothing_and_hold_the_bound(monkeypatch, logits, positions):
    head, h = fresh()
    expected = head.full_loss(h, TARGETS).item(), sampled(head, h)[0].item()
    monkeypatch.setattr(language_head, "LOGITS", logits)
    monkeypatch.setattr(language_head, "POSITIONS", positions)
    with torch.no_grad(), Largest() as largest:
        found = head.full_loss(h, TARGETS).item(), sampled(head, h)[0].item()
    assert found == pytest.approx(expected, rel=1e-6)
    # Beside the logits there are the vectors themselves, and the rows of the words in play.
    assert largest.numel <= max(logits, positions * V, N * P, V * P)


def test_one_set_of_rows_serves_both_directions():
    head, h = fresh(dtype=torch.float64)
    backward_targets = TARGETS.flip(0).roll(1)
    other = Negatives(torch.tensor([4, 5, 6, 28]), tries=6)
    rows = head.rows(TARGETS, backward_targets, NEGATIVES.ids, other.ids)
    loss = rows.sampled_loss(h, TARGETS, NEGATIVES, SAMPLER)
    loss = loss + rows.sampled_loss(-h, backward_targets, other, SAMPLER)
    loss.backward()
    expected = torch.zeros_like(head.weight), torch.zeros_like(head.bias)
    for x, targets, negatives in ((h, TARGETS, NEGATIVES), (-h, backward_targets, other)):
        alone, own = sampled(head, x, targets, negatives)
        alone.backward()
        expected[0].index_add_(0, own.ids, own.weight.grad)
        expected[1].index_add_(0, own.ids, own.bias.grad)
    torch.testing.assert_close(rows.weight.grad, expected[0][rows.ids])
    torch.testing.assert_close(rows.bias.grad, expected[1][rows.ids])


def test_rows_are_each_word_once_in_order_and_copies():
    head, _ = fresh()
    rows = head.rows(torch.tensor([[7, -1], [3, 7]]), torch.tensor([29, 0]))
    assert rows.ids.tolist() == [0, 3, 7, 29]
    assert torch.equal(rows.weight, head.weight[[0, 3, 7, 29]])
    assert torch.equal(rows.bias, head.bias[[0, 3, 7, 29]])
    assert rows.weight.is_leaf
    assert rows.weight.requires_grad


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation made, other than the given ones and views of them."""

    def __init__(self, *given):
        super().__init__()
        self.given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.given:
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize("kind", ["adamw", "adagrad"])
def test_no_operation_of_a_sampled_step_makes_anything_as_large_as_the_vocabulary(kind):
    vocabulary = 50_000
    head, h = fresh(vocabulary)
    h.requires_grad_()
    optimizer = RowOptimizer(head.weight, head.bias, OptimizerConfig(kind=kind))
    before = head.weight.detach().clone()
    negatives = LogUniformSampler(vocabulary).sample(40, np.random.default_rng(0))
    with Largest(head.weight, head.bias, *optimizer.state.values()) as largest:
        loss, rows = sampled(head, h, TARGETS, negatives)
        loss.backward()
        optimizer.step(rows, 0.1)
    assert largest.numel <= (N + 40) * max(P, N)
    assert head.weight.grad is None
    assert (head.weight != before).any(dim=1).nonzero().squeeze(1).tolist() == rows.ids.tolist()


def test_missing_rows_and_wrong_ids_are_refused():
    head, h = fresh()
    with pytest.raises(ValueError, match="found none of word 29: gather them"):
        head.rows(TARGETS[:3], NEGATIVES.ids).sampled_loss(h[:4], TARGETS[:4], NEGATIVES, SAMPLER)
    with pytest.raises(ValueError, match="found none of word 2"):
        head.rows(TARGETS).sampled_loss(h, TARGETS, NEGATIVES, SAMPLER)
    with pytest.raises(ValueError, match="below 30, found 30"):
        head.rows(torch.tensor([3, 30]))
    with pytest.raises(ValueError, match="below 30, found 31"):
        head.full_loss(h[:2], torch.tensor([3, 31]))
    with pytest.raises(ValueError, match="one target a vector"):
        head.full_loss(h, TARGETS[:-1])
