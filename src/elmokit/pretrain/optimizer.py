"""Updates: dense parameters, rows of the softmax, the learning rate's schedule, clipping. Muon is in muon.py.

`Optimizer` ties them. Its state is a flat table of tensors, ready for safetensors; a run that saves and loads it
resumes to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.model.language_head import LanguageHead, SoftmaxRows
from elmokit.pretrain.muon import Muon


@dataclass(frozen=True)
class OptimizerConfig:
    kind: Literal["adamw", "muon", "adagrad"] = "adamw"
    learning_rate: float = 1e-3  # at its highest; Adagrad needs more (the published models had 0.2)
    schedule: Literal["cosine", "linear", "trapezoid", "constant"] = "cosine"  # after the warm-up
    warmup: float = 0.02  # share of the budget, from 0 up to the full rate
    cooldown: float = 0.2  # trapezoid: share of the budget, at its end, from the full rate down; level before it
    final: float = 0.0  # what all but constant end at, as a share of the full rate
    clip_norm: float | None = 10.0  # of all gradients together
    adamw_learning_rate: float | None = None  # muon: of what it leaves to AdamW; none: the same
    softmax_learning_rate: float | None = None  # of the words that are predicted; none: as what is no matrix
    betas: tuple[float, float] = (0.9, 0.999)  # adamw, also beside muon
    eps: float = 1e-8  # adamw
    weight_decay: float = 0.01  # adamw and muon, dense matrices; vectors (biases) have none
    row_weight_decay: float = 0.0  # adamw, rows of a sampled softmax, when they are touched
    momentum: float = 0.95  # muon
    every: int = 2  # muon: steps between two updates of a matrix, each by as many times the rate
    initial_accumulator: float = 1.0  # adagrad; there is no epsilon, as in TensorFlow

    @property
    def rest_rate(self) -> float:
        """Of dense parameters that Muon does not take."""
        return (self.adamw_learning_rate if self.kind == "muon" else None) or self.learning_rate

    @property
    def softmax_rate(self) -> float:
        return self.softmax_learning_rate or self.rest_rate

    def __post_init__(self) -> None:
        for name in (
            "learning_rate",
            "adamw_learning_rate",
            "softmax_learning_rate",
            "eps",
            "initial_accumulator",
        ):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise UserError(f"{name}: expected more than 0, found {getattr(self, name)}")
        for name in ("weight_decay", "row_weight_decay"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name}: expected 0 or more, found {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas: expected two of 0 or more, below 1, found {self.betas}")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum: expected 0 or more, below 1, found {self.momentum}")
        if self.every < 1:
            raise UserError(f"every: expected 1 or more, found {self.every}")
        if not 0 <= self.warmup < 1:
            raise UserError(f"warmup: expected a share of the budget, 0 or more and below 1, found {self.warmup}")
        if not 0 < self.cooldown <= 1 or (self.schedule == "trapezoid" and self.warmup + self.cooldown > 1):
            raise UserError(
                f"cooldown: expected a share of the budget, more than 0 and what the warm-up leaves at most, "
                f"found {self.cooldown}"
            )
        if not 0 <= self.final <= 1:
            raise UserError(f"final: expected a share of the learning rate, 0 to 1, found {self.final}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UserError(f"clip_norm: expected a positive bound or none, found {self.clip_norm}")


def rate_share(progress: float, config: OptimizerConfig) -> float:
    """The share of the highest rate at a share of the budget (tokens, epochs or hours); past its end, the last."""
    if not progress >= 0:
        raise UserError(f"progress: expected a share of the budget, 0 or more, found {progress}")
    if progress < config.warmup:
        return progress / config.warmup
    along = (min(progress, 1.0) - config.warmup) / (1 - config.warmup)
    left = {
        "cosine": (1 + math.cos(math.pi * along)) / 2,
        "linear": 1 - along,
        "trapezoid": min(1.0, (1 - along) * (1 - config.warmup) / config.cooldown),
        "constant": 1.0,
    }[config.schedule]
    return config.final + (1 - config.final) * left


def clip_gradients(gradients: Iterable[Tensor], bound: float | None) -> float:
    """Scale all gradients in place so that their common norm is at most `bound`; returns what it was before."""
    gradients = list(gradients)
    if not gradients:
        return 0.0
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
    if bound is not None and math.isfinite(norm) and norm > bound:
        for gradient in gradients:
            gradient.mul_(bound / norm)
    return norm


class RowOptimizer:
    """AdamW or Adagrad for a matrix [V, P] and a bias [V] of which a step touches U rows, and costs as much.

    A row that is not touched stays as it is, and so do its moments. For Adagrad that is what zero gradients do
    anyway. For AdamW it is the lazy variant: every row counts its own steps, and is corrected and decayed by
    those, so that a row fares as if the steps that touched it were all that there were.
    """

    def __init__(self, weight: Tensor, bias: Tensor, config: OptimizerConfig) -> None:
        self.config = config
        self.tables = {"weight": weight.detach(), "bias": bias.detach()}  # the same memory
        self.state: dict[str, Tensor] = {}
        for name, table in self.tables.items():
            if config.kind == "adagrad":
                self.state[f"{name}.sum"] = torch.full_like(table, config.initial_accumulator)
            else:
                self.state[f"{name}.exp_avg"] = torch.zeros_like(table)
                self.state[f"{name}.exp_avg_sq"] = torch.zeros_like(table)
        if config.kind != "adagrad":
            self.state["steps"] = torch.zeros(len(bias), dtype=torch.int32, device=bias.device)

    @torch.no_grad()
    def step(self, rows: SoftmaxRows, rate: float) -> None:
        ids, gradients = rows.ids, row_gradients(rows)  # ids are distinct: each row is written once
        if self.config.kind == "adagrad":
            for name, gradient in gradients.items():
                self._adagrad(name, ids, gradient, rate)
            return
        steps = self.state["steps"].index_select(0, ids) + 1  # [U]
        self.state["steps"].index_copy_(0, ids, steps)
        for name, gradient in gradients.items():
            self._adamw(name, ids, gradient, rate, steps)

    def _adagrad(self, name: str, ids: Tensor, gradient: Tensor, rate: float) -> None:
        table, sums = self.tables[name], self.state[f"{name}.sum"]
        total = sums.index_select(0, ids).addcmul_(gradient, gradient)
        sums.index_copy_(0, ids, total)
        table.index_copy_(0, ids, table.index_select(0, ids).addcdiv_(gradient, total.sqrt_(), value=-rate))

    def _adamw(self, name: str, ids: Tensor, gradient: Tensor, rate: float, steps: Tensor) -> None:
        table, (beta1, beta2) = self.tables[name], self.config.betas
        firsts, seconds = self.state[f"{name}.exp_avg"], self.state[f"{name}.exp_avg_sq"]
        first = firsts.index_select(0, ids).lerp_(gradient, 1 - beta1)
        second = seconds.index_select(0, ids).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        firsts.index_copy_(0, ids, first)
        seconds.index_copy_(0, ids, second)
        # A float32 power loses 1 - beta2 to rounding; there are only U of them.
        powers = steps.double().reshape(-1, *[1] * (gradient.dim() - 1))  # [U, 1] or [U]
        correction1 = (1 - beta1**powers).to(table.dtype)
        correction2 = (1 - beta2**powers).sqrt().to(table.dtype)
        scale = second.sqrt_().div_(correction2).add_(self.config.eps)
        row = table.index_select(0, ids)
        if name == "weight" and self.config.row_weight_decay:
            row.mul_(1 - rate * self.config.row_weight_decay)
        table.index_copy_(0, ids, row.addcdiv_(first.div_(correction1), scale, value=-rate))


def row_gradients(rows: SoftmaxRows) -> dict[str, Tensor]:
    if rows.weight.grad is None or rows.bias.grad is None:
        raise UserError("expected rows with gradients, found none: call backward on their loss first")
    return {"weight": rows.weight.grad, "bias": rows.bias.grad}


class Update(NamedTuple):
    norm: float  # of all gradients together, before clipping
    rate: float


class Optimizer:
    """The given parameters and the softmax: its touched rows if it is sampled, else as dense parameters too.

    `matrices` are those of `dense` that Muon takes, if it is chosen. The map before the softmax, where there is
    one, is dense and a matrix: every step touches all of it.
    """

    def __init__(
        self,
        dense: Iterable[nn.Parameter],
        head: LanguageHead,
        config: OptimizerConfig,
        *,
        sampled: bool,
        matrices: Iterable[nn.Parameter] = (),
    ) -> None:
        self.config = config
        projection = [] if head.projection_weight is None else [head.projection_weight]
        softmax = [] if sampled else [head.weight, head.bias]
        self.dense = [*dense, *softmax, *projection]  # the state goes by this order
        for_muon = {id(p) for p in (*matrices, *projection)} if config.kind == "muon" else set()
        self.muon = Muon(
            [p for p in self.dense if id(p) in for_muon], config.momentum, config.weight_decay, config.every
        )
        others = for_muon | {id(p) for p in softmax}
        self._torch = _dense_optimizer([p for p in self.dense if id(p) not in others], softmax, config)
        self.rows = RowOptimizer(head.weight, head.bias, config) if sampled else None

    def step(self, rows: SoftmaxRows | None, progress: float) -> Update:
        """Update by the gradients that are there, and forget them.

        Where their norm is not finite, no parameter and no state changes: the caller sees the norm, and decides.
        """
        if (rows is None) != (self.rows is None):
            expected, found = ("rows", "none") if rows is None else ("no rows", "some")
            raise UserError(f"expected {expected} of the softmax in each step, found {found}")
        gradients = [parameter.grad for parameter in self.dense if parameter.grad is not None]
        if rows is not None:
            gradients += row_gradients(rows).values()
        share = rate_share(progress, self.config)
        update = Update(clip_gradients(gradients, self.config.clip_norm), share * self.config.learning_rate)
        if math.isfinite(update.norm):
            for group in self._torch.param_groups:
                group["lr"] = share * group["highest"]
            self._torch.step()
            self.muon.step(update.rate)
            if self.rows is not None and rows is not None:
                self.rows.step(rows, share * self.config.softmax_rate)
        for parameter in self.dense:
            parameter.grad = None  # those of rows go with their rows
        return update

    def state_dict(self) -> dict[str, Tensor]:
        """All state, by name (dense parameters by their place in the list); the tensors themselves, not copies."""
        momenta = {id(p): {"momentum": state} for p, state in zip(self.muon.matrices, self.muon.momenta)}
        state: dict[str, Tensor] = {
            f"dense.{i}.{key}": value
            for i, parameter in enumerate(self.dense)
            for key, value in (momenta.get(id(parameter)) or self._torch.state[parameter]).items()
        }
        if self.muon.matrices:
            state["muon.steps"] = self.muon.steps
        if self.rows is not None:
            state |= {f"rows.{name}": value for name, value in self.rows.state.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a state as `state_dict` gave it; a wrong one is refused before anything is changed."""
        own = self.state_dict()
        for key in sorted(own.keys() | state.keys()):
            expected, found = _described(own.get(key)), _described(state.get(key))
            if expected != found:
                raise UserError(f"state of another model or optimizer: {key}: expected {expected}, found {found}")
        for key, tensor in own.items():
            tensor.copy_(state[key])


def _dense_optimizer(
    parameters: list[nn.Parameter], softmax: list[nn.Parameter], config: OptimizerConfig
) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in some if (p.dim() > 1) == matrices],
            "highest": rate,
            **({} if config.kind == "adagrad" else {"weight_decay": config.weight_decay if matrices else 0.0}),
        }
        for some, rate in ((parameters, config.rest_rate), (softmax, config.softmax_rate))
        for matrices in (True, False)
    ]
    groups = [group for group in groups if group["params"]]
    if config.kind == "adagrad":
        # With no epsilon, this is TensorFlow's: sum += g ** 2; parameter -= rate * g / sqrt(sum).
        return torch.optim.Adagrad(groups, initial_accumulator_value=config.initial_accumulator, eps=0.0)
    optimizer = torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=True)
    # torch would make these in the first step; made now, the state has the same names before it and after.
    for parameter in (*parameters, *softmax):
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        moments = {key: torch.zeros_like(parameter.detach()) for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": step, **moments}
    return optimizer


def _described(tensor: Tensor | None) -> str:
    return "none" if tensor is None else f"{str(tensor.dtype)[6:]} {list(tensor.shape)}"
