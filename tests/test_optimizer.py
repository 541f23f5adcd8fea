from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from safetensors.torch import load, save

from elmokit.config import build, dump
from elmokit.errors import UserError
from elmokit.model.language_head import LanguageHead
from elmokit.pretrain.optimizer import (
    Optimizer,
    OptimizerConfig,
    RowOptimizer,
    clip_gradients,
    rate_share,
)

V, P = 12, 4
KINDS = ["adamw", "muon", "adagrad"]


def fresh(seed=0):
    torch.manual_seed(seed)
    head = LanguageHead(V, P)
    torch.nn.init.normal_(head.bias)
    return head, [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(5))]


def rows_with_gradients(head, ids, generator, scale=1.0):
    rows = head.rows(torch.tensor(ids))
    rows.weight.grad = scale * torch.randn(len(rows.ids), P, generator=generator)
    rows.bias.grad = scale * torch.randn(len(rows.ids), generator=generator)
    return rows


def touched(step):
    return [[0, 3, 4], [3, 11], [0, 1, 2, 3], [7]][step % 4]


def test_rows_by_adagrad_are_dense_adagrad_to_the_bit():
    head, _ = fresh()
    dense = [head.weight.detach().clone().requires_grad_(), head.bias.detach().clone().requires_grad_()]
    reference = torch.optim.Adagrad(dense, lr=0.2, initial_accumulator_value=1.0, eps=0.0)
    rows_optimizer = RowOptimizer(head.weight, head.bias, OptimizerConfig(kind="adagrad"))
    generator = torch.Generator().manual_seed(0)
    for step in range(9):
        rows = rows_with_gradients(head, touched(step), generator)
        for parameter, gradient in zip(dense, (rows.weight.grad, rows.bias.grad)):
            parameter.grad = torch.zeros_like(parameter).index_copy_(0, rows.ids, gradient)
        reference.step()
        rows_optimizer.step(rows, 0.2)
    assert torch.equal(head.weight, dense[0])
    assert torch.equal(head.bias, dense[1])


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_row_by_adamw_is_dense_adamw_over_the_steps_that_touch_it(decay):
    head, _ = fresh()
    dense, optimizers = [], []
    for row in range(V):
        weight, bias = (tensor[row].detach().clone().requires_grad_() for tensor in (head.weight, head.bias))
        groups = [{"params": [weight], "weight_decay": decay}, {"params": [bias], "weight_decay": 0.0}]
        dense.append((weight, bias))
        optimizers.append(torch.optim.AdamW(groups, lr=0.1))
    ours = RowOptimizer(head.weight, head.bias, OptimizerConfig(row_weight_decay=decay))
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        rows = rows_with_gradients(head, touched(step), generator)
        for place, row in enumerate(rows.ids.tolist()):
            dense[row][0].grad, dense[row][1].grad = rows.weight.grad[place], rows.bias.grad[place]
            optimizers[row].step()
        ours.step(rows, 0.1)
    torch.testing.assert_close(head.weight.detach(), torch.stack([weight.detach() for weight, _ in dense]))
    torch.testing.assert_close(head.bias.detach(), torch.stack([bias.detach() for _, bias in dense]))


def test_dense_adagrad_is_tensorflows():
    """sum starts at 1; sum += g ** 2; parameter -= rate * g / sqrt(sum). By hand, two steps."""
    config = OptimizerConfig(kind="adagrad", learning_rate=0.2, schedule="constant", warmup=0.0, clip_norm=None)
    head, _ = fresh()
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = Optimizer([parameter], head, config, sampled=False)
    for gradient in ([3.0, 0.5], [-1.0, 0.0]):
        parameter.grad = torch.tensor(gradient)
        optimizer.step(None, 0.5)
    first = 1 - 0.2 * 3 / math.sqrt(10) + 0.2 * 1 / math.sqrt(11)
    torch.testing.assert_close(parameter.detach(), torch.tensor([first, -2 - 0.2 * 0.5 / math.sqrt(1.25)]))


def test_dense_adamw_is_torchs_with_decay_of_matrices_alone():
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.3, clip_norm=None)
    head, dense = fresh()
    copies = [parameter.detach().clone().requires_grad_() for parameter in dense]
    reference = torch.optim.AdamW([{"params": copies[:1]}, {"params": copies[1:], "weight_decay": 0.0}])
    reference.param_groups[0]["weight_decay"] = 0.3
    optimizer = Optimizer(dense, head, config, sampled=False, matrices=dense[:1])
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        for group in reference.param_groups:
            group["lr"] = 0.1 * rate_share(step / 5, config)
        for parameter, copy in zip(dense, copies):
            copy.grad = torch.randn(copy.shape, generator=generator)
            parameter.grad = copy.grad.clone()
        reference.step()
        assert optimizer.step(None, step / 5).rate == 0.1 * rate_share(step / 5, config)
    for parameter, copy in zip(dense, copies):
        torch.testing.assert_close(parameter, torch.nn.Parameter(copy.detach()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_full_softmax_is_dense(kind):
    head, dense = fresh()
    before = head.weight.detach().clone()
    optimizer = Optimizer(dense, head, OptimizerConfig(kind=kind), sampled=False, matrices=dense[:1])
    head.full_loss(torch.randn(3, P), torch.tensor([1, 2, 3])).backward()
    assert {id(parameter) for parameter in head.parameters()} <= {id(parameter) for parameter in optimizer.dense}
    optimizer.step(None, 0.5)
    assert (head.weight != before).all()
    assert head.weight.grad is None  # forgotten: the next step starts from nothing


@pytest.mark.parametrize("kind", KINDS)
def test_dense_and_row_gradients_are_clipped_together(kind):
    """AdamW hardly sees the scale of gradients, its moments do."""
    head, dense = fresh()
    config = OptimizerConfig(kind=kind, clip_norm=0.5)
    optimizer = Optimizer(dense, head, config, sampled=True, matrices=dense[:1])
    rows = rows_with_gradients(head, [1, 5], torch.Generator().manual_seed(0), scale=100)
    for parameter in dense:
        parameter.grad = torch.randn(parameter.shape) * 30
    gradients = [rows.weight.grad, rows.bias.grad, *(parameter.grad for parameter in dense)]
    norm = torch.cat([gradient.flatten() for gradient in gradients]).double().norm().item()
    expected = rows.weight.grad * 0.5 / norm
    assert optimizer.step(rows, 0.3).norm == pytest.approx(norm, rel=1e-6)
    if kind != "adagrad":
        seen = optimizer.state_dict()["rows.weight.exp_avg"][rows.ids] / (1 - config.betas[0])
    else:
        seen = (optimizer.state_dict()["rows.weight.sum"][rows.ids] - 1).sqrt() * expected.sign()
    torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-4)


def test_gradients_within_the_bound_stay_as_they_are():
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    assert clip_gradients(gradients, 5.0) == 5.0
    assert clip_gradients(gradients, None) == 5.0
    assert [float(gradient) for gradient in gradients] == [3.0, 4.0]
    assert clip_gradients(gradients, 1.0) == 5.0
    assert clip_gradients(gradients, None) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_of_no_finite_norm_changes_nothing(kind, bad):
    head, dense = fresh()
    optimizer = Optimizer(dense, head, OptimizerConfig(kind=kind), sampled=True, matrices=dense[:1])
    run(optimizer, head, dense, 0, 2)
    before = [tensor.detach().clone() for tensor in (*optimizer.state_dict().values(), *dense, head.weight)]
    for parameter in dense:
        parameter.grad = torch.ones_like(parameter)
    rows = rows_with_gradients(head, [1, 5], torch.Generator())
    rows.bias.grad[0] = bad
    assert not math.isfinite(optimizer.step(rows, 0.5).norm)
    after = [*optimizer.state_dict().values(), *dense, head.weight]
    assert all(torch.equal(one, other) for one, other in zip(before, after))
    assert dense[0].grad is None


def run(optimizer, head, dense, start, stop):
    for step in range(start, stop):
        generator = torch.Generator().manual_seed(step)
        for parameter in dense:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        sampled = optimizer.rows is not None
        rows = rows_with_gradients(head, touched(step), generator) if sampled else None
        if not sampled:
            head.weight.grad = torch.randn(V, P, generator=generator)  # its bias has none: no state but the first
        optimizer.step(rows, step / 8)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pause", [0, 3])
def test_a_resumed_run_goes_on_to_the_same_bits(kind, sampled, pause):
    config = OptimizerConfig(kind=kind, row_weight_decay=0.1)
    head, dense = fresh()
    optimizer = Optimizer(dense, head, config, sampled=sampled, matrices=dense[:1])
    run(optimizer, head, dense, 0, pause)
    tensors = {f"dense.{i}": parameter.detach() for i, parameter in enumerate(dense)}
    tensors |= {f"head.{name}": tensor for name, tensor in head.state_dict().items()}
    content, parameters = save(optimizer.state_dict()), save(tensors)
    run(optimizer, head, dense, pause, 7)

    other_head, other = fresh(seed=1)
    resumed = Optimizer(other, other_head, config, sampled=sampled, matrices=other[:1])
    run(resumed, other_head, other, 20, 22)  # a state that must not shine through
    stored = load(parameters)
    with torch.no_grad():
        for i, parameter in enumerate(other):
            parameter.copy_(stored[f"dense.{i}"])
        other_head.load_state_dict({name: stored[f"head.{name}"] for name in ("weight", "bias")})
    resumed.load_state_dict(load(content))
    run(resumed, other_head, other, pause, 7)

    ends = [optimizer.state_dict(), resumed.state_dict()]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    for one, another in zip((*dense, *head.parameters()), (*other, *other_head.parameters())):
        assert torch.equal(one, another)


def test_the_order_of_the_state_is_that_of_runs_which_were_begun_before():
    """Dense parameters, then the head's as it names them: a saved state knows them by their places alone."""
    head, dense = LanguageHead(V, P, softmax_width=2), fresh()[1]
    expected = [*dense, *(parameter for _, parameter in head.named_parameters())]
    found = Optimizer(dense, head, OptimizerConfig(), sampled=False).dense
    assert [id(parameter) for parameter in found] == [id(parameter) for parameter in expected]


def test_a_state_of_something_else_is_refused_and_changes_nothing():
    head, dense = fresh()
    optimizer = Optimizer(dense, head, OptimizerConfig(), sampled=True, matrices=dense[:1])
    run(optimizer, head, dense, 0, 3)
    state = optimizer.state_dict()
    before = {name: tensor.clone() for name, tensor in state.items()}
    zeros = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    wrong = [
        ({name: t for name, t in zeros.items() if name != "rows.steps"}, "rows.steps: expected int32 .*none"),
        ({**zeros, "dense.9.step": torch.zeros(())}, "dense.9.step: expected none, found float32"),
        ({**zeros, "dense.0.exp_avg": torch.zeros(3, 5)}, r"dense.0.exp_avg: expected float32 \[5, 3\]"),
        ({**zeros, "rows.bias.exp_avg": torch.zeros(V).double()}, "rows.bias.exp_avg: .* found float64"),
    ]
    for table, message in wrong:
        with pytest.raises(UserError, match=message):
            optimizer.load_state_dict(table)
    assert all(torch.equal(before[name], tensor) for name, tensor in optimizer.state_dict().items())


def test_rows_are_there_when_the_softmax_is_sampled_and_only_then():
    head, dense = fresh()
    rows = rows_with_gradients(head, [1], torch.Generator())
    with pytest.raises(UserError, match="expected rows of the softmax in each step, found none"):
        Optimizer(dense, head, OptimizerConfig(), sampled=True, matrices=dense[:1]).step(None, 0.0)
    with pytest.raises(UserError, match="expected no rows of the softmax in each step, found some"):
        Optimizer(dense, head, OptimizerConfig(), sampled=False, matrices=dense[:1]).step(rows, 0.0)
    with pytest.raises(UserError, match="call backward"):
        Optimizer(dense, head, OptimizerConfig(), sampled=True, matrices=dense[:1]).step(
            head.rows(torch.tensor([1])), 0.0
        )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # after 20 % of warm-up, the middle is 60 % of the budget, and a quarter of the rest is 40 %
        ("linear", {0.4: 0.775, 0.6: 0.55, 1.0: 0.1, 1.7: 0.1}),
        ("cosine", {0.4: 0.1 + 0.45 * (1 + math.sqrt(0.5)), 0.6: 0.55, 1.0: 0.1, 1.7: 0.1}),
        ("trapezoid", {0.4: 1.0, 0.75: 1.0, 0.875: 0.55, 1.0: 0.1, 1.7: 0.1}),  # down over the last quarter
        ("constant", {0.4: 1.0, 1.0: 1.0, 1.7: 1.0}),
    ],
)
def test_schedules(schedule, expected):
    config = OptimizerConfig(schedule=schedule, warmup=0.2, cooldown=0.25, final=0.1)
    for progress, share in {0.0: 0.0, 0.05: 0.25, 0.1: 0.5, 0.2: 1.0, **expected}.items():
        assert rate_share(progress, config) == pytest.approx(share, abs=1e-12), progress
    assert rate_share(0.0, dataclasses.replace(config, warmup=0.0)) == 1.0
    for wrong in (-0.1, math.nan):
        with pytest.raises(UserError, match="progress"):
            rate_share(wrong, config)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_softmax_has_a_rate_of_its_own(kind, sampled):
    """Ten times the rate, ten times the change, of the softmax's words alone."""
    changes = []
    for softmax_rate in (None, 0.01, 0.1):
        head, dense = fresh()
        before = [tensor.detach().clone() for tensor in (head.weight, head.bias, *dense)]
        config = OptimizerConfig(
            kind=kind, learning_rate=0.01, softmax_learning_rate=softmax_rate, weight_decay=0.0, every=1
        )
        run(Optimizer(dense, head, config, sampled=sampled, matrices=dense[:1]), head, dense, 0, 2)
        after = (head.weight, head.bias, *dense)
        changes.append([(now.detach() - then) for now, then in zip(after, before)])
    none, same, ten = changes
    for one, other in zip(none, same):
        assert torch.equal(one, other)
    torch.testing.assert_close(ten[0], 10 * same[0], rtol=1e-3, atol=1e-5)
    for one, other in zip(ten[2:], same[2:]):
        assert torch.equal(one, other)


def test_muon_takes_the_matrices_and_adamw_the_rest_at_its_own_rate():
    config = OptimizerConfig("muon", 0.01, adamw_learning_rate=0.02, every=1)
    adamw = dataclasses.replace(config, kind="adamw", learning_rate=0.02)
    ends = []
    for chosen in (config, adamw):
        head, dense = fresh()
        run(Optimizer(dense, head, chosen, sampled=True, matrices=dense[:1]), head, dense, 0, 3)
        ends.append([tensor.detach().clone() for tensor in (*dense, head.weight, head.bias)])
    (matrix, *others), (other_matrix, *same) = ends
    assert (matrix != other_matrix).all()
    assert all(torch.equal(one, other) for one, other in zip(others, same))


def test_settings_come_from_a_recipe_and_go_back():
    table = {"kind": "adagrad", "learning_rate": 0.2, "betas": [0.8, 0.9], "schedule": "linear"}
    config = build(OptimizerConfig, table)
    assert config == OptimizerConfig("adagrad", 0.2, "linear", betas=(0.8, 0.9))
    assert build(OptimizerConfig, dump(config)) == config


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"eps": 0.0},
        {"initial_accumulator": 0.0},
        {"weight_decay": -0.1},
        {"row_weight_decay": -0.1},
        {"betas": (0.9, 1.0)},
        {"adamw_learning_rate": 0.0},
        {"softmax_learning_rate": -1.0},
        {"momentum": 1.0},
        {"every": 0},
        {"warmup": 1.0},
        {"cooldown": 0.0},
        {"cooldown": 0.6, "schedule": "trapezoid", "warmup": 0.5},
        {"final": 1.5},
        {"clip_norm": 0.0},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        OptimizerConfig(**wrong)
